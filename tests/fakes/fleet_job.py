"""Plans and reports of fleets without benchmarks, and a job: ``python -m tests.fakes.fleet_job FOLDER NUMBER``.

The job stands for ``tfbench fleet job``. Everything in it is real but the check of the code and the measuring.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from tests.fakes.report import CODE, complete, row
from tfbench.errors import TfbenchError
from tfbench.fleet import node
from tfbench.fleet.jobs import FleetFolder, Job, cut, jobs_of, write_plan
from tfbench.fs import write_whole
from tfbench.model import Case, Report
from tfbench.policy import preset
from tfbench.report import json_format

PROGRAM = (sys.executable, "-m", "tests.fakes.fleet_job")
SIDE = {"spec": "git:main", "tree": "", "python": "3.11.7", "packages": {}}


def plan(place: Path, jobs: int, cases: int = 1, **changes):
    """Write a fleet of jobs with this number of cases each."""
    suite = [Case(f"benchmarks/test_a.py::test_{n}", f"test_{n}", f"g{n}") for n in range(jobs * cases)]
    sides = {"baseline": SIDE, "contender": {**SIDE, "spec": "working tree"}}
    fields = {
        "policy": json.loads(json.dumps(preset("quick").as_json())),
        "sides": sides,
        "device": "all",
        "scale": "small",
    }
    parts = cut(suite, dict.fromkeys((one.name for one in suite), 1.0), cases)
    return write_plan(place, jobs_of(parts, partial(Job, **{**fields, **changes}), "2026-11-22T18:40:06+00:00"), place)


def report_of(job: Job, **more) -> Report:
    """Return the report of a job whose cases are unchanged."""
    sides = {name: {"spec": side["spec"], "slowdown": 0.0, "root": "/", **CODE} for name, side in job.sides.items()}
    fields = {"policy": dict(job.policy), "sides": sides, "shard": job.part.of_cases(job.cases), "seed": job.seed}
    return complete([row(case) for case in job.cases], **{**fields, **more})


def measure(job: Job, root: Path, work: Path) -> None:
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
    write_whole(work / "report.json", json_format.render(report_of(job)))


def main(folder: str, index: str) -> int:
    try:
        node.run(FleetFolder(Path(folder)), int(index), Path("/"), measure, lambda *_: None)
    except TfbenchError as error:
        print(error, flush=True)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
