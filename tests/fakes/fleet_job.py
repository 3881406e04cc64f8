"""Do a job of a fleet without benchmarks: ``python -m tests.fakes.fleet_job JOB`` in the place of ``tfbench job run``.

Everything is real but the check of the code, the canary and the measuring, which sleeps for ``FAKE_SECONDS`` while it
holds the lease of the host, and then writes a report. ``FAKE_CANARY`` names nodes whose canary fails.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import IO

from tests.fakes.report import CODE, complete, row
from tfbench.errors import TfbenchError
from tfbench.fleet import node
from tfbench.fleet.jobs import Job, cut, jobs_of, node_name, write_plan
from tfbench.fleet.node import Canary
from tfbench.fs import write_whole
from tfbench.model import Case, Report
from tfbench.policy import preset
from tfbench.race.lanes import Processors
from tfbench.report import json_format

PROGRAM = (sys.executable, "-m", "tests.fakes.fleet_job")
SIDE = {"spec": "git:main", "tree": "", "python": "3.11.7", "packages": {}}


def plan(place: Path, jobs: int, cases: int = 1, machine_class: str = "any"):
    """Write a fleet of jobs with this number of cases each."""
    suite = [Case(f"benchmarks/test_a.py::test_{n}", f"test_{n}", f"g{n}") for n in range(jobs * cases)]
    sides = {"baseline": SIDE, "contender": {**SIDE, "spec": "working tree"}}
    make = partial(
        Job, policy=json.loads(json.dumps(preset("quick").as_json())), sides=sides, machine_class=machine_class, driver="",
        device="all", scale="small",
    )  # fmt: skip
    return write_plan(
        place,
        jobs_of(cut(suite, dict.fromkeys((one.name for one in suite), 1.0), cases), make, "2026-11-22T18:40:06+00:00"),
        place,
    )


def report_of(job: Job, **more) -> Report:
    """Return the report of a job whose cases are unchanged."""
    sides = {name: {"spec": side["spec"], "slowdown": 0.0, "root": "/", **CODE} for name, side in job.sides.items()}
    fields = {"policy": dict(job.policy), "sides": sides, "shard": job.part.of_cases(job.cases), "seed": job.seed}
    return complete([row(case) for case in job.cases], **{**fields, **more})


def measure(job: Job, root: Path, work: Path, held: IO[str]) -> None:
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
    write_whole(work / "report.json", json_format.render(report_of(job)))
    if url := os.environ.get("TFBENCH_HISTORY"):
        from tests.fakes.histories import record_of_job
        from tfbench.storage.history import DatabaseHistory

        DatabaseHistory(url).record(record_of_job(job))


def canary(processors: Processors, rng: random.Random, device: str) -> Canary:
    bad = node_name() in os.environ.get("FAKE_CANARY", "").split(",")
    return Canary("regressed" if bad else "unchanged", "regressed", 0.0, "unchanged code is regressed" if bad else "")


def main(path: str) -> int:
    try:
        place = node.Place.of(Path(path))
        every = tuple(sorted(os.sched_getaffinity(0)))
        node.run(place, Path("/"), Processors(every[-1:], every), measure, race_canary=canary, check=lambda *_: None)
    except TfbenchError as error:
        print(error, flush=True)
        return 5
    return 0


def intervals(folder) -> list[tuple[float, float, int]]:
    """Return when each processor measured, from the attempts of a fleet: began, ended, processor."""
    found = []
    for path in sorted((folder.path / "attempts").rglob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found += [
            (one["began"], one["time"], cpu) for one in rows if one["event"] == "done" for cpu in one["processors"]
        ]
    return sorted(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
