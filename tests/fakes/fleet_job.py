"""Plans and reports of fleets without benchmarks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from tests.fakes.report import CODE, complete, row
from tfbench.fleet.jobs import Job, cut, write_plan
from tfbench.fs import write_whole
from tfbench.model import Case, Report
from tfbench.policy import preset
from tfbench.report import json_format

SIDE = {"spec": "git:main", "tree": "", "python": "3.11.7", "packages": {}}


def plan(place: Path, jobs: int, cases: int = 1, **changes):
    """Write a fleet of jobs with this number of cases each."""
    suite = [Case(f"benchmarks/test_a.py::test_{n}", f"test_{n}", f"g{n}") for n in range(jobs * cases)]
    sides = {"baseline": SIDE, "contender": {**SIDE, "spec": "working tree"}}
    fields = {"policy": json.loads(json.dumps(preset("quick").as_json())), "device": "all", "scale": "small"}
    parts = cut(suite, dict.fromkeys((one.name for one in suite), 1.0), cases)
    make = partial(Job, **{**fields, "sides": sides, **changes})
    return write_plan(place, parts, make, "2026-11-22T18:40:06+00:00", place)


def report_of(job: Job, **more) -> Report:
    """Return the report of a job whose cases are unchanged."""
    sides = {name: {"spec": side["spec"], "slowdown": 0.0, "root": "/", **CODE} for name, side in job.sides.items()}
    fields = {"policy": dict(job.policy), "sides": sides, "shard": job.part.of_cases(job.cases), "seed": job.seed}
    return complete([row(case) for case in job.cases], **{**fields, **more})


def measure(job: Job, root: Path, work: Path) -> None:
    write_whole(work / "report.json", json_format.render(report_of(job)))
