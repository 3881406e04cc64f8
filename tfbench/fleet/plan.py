"""Cut a suite into jobs of about equal cost, and write them."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tfbench.errors import UsageError
from tfbench.fleet.folder import FleetFolder, Plan
from tfbench.fleet.job import Job
from tfbench.fs import atomic_dir
from tfbench.model import JSON, Case
from tfbench.suite.shards import digest

JOB_SECONDS = 900.0
"""Expected seconds of a job. The start of a job costs about 20 s (canary, zygotes), which is 2% of it, and a lost
machine loses at most a quarter of an hour, less what its journal kept."""
CASE_SECONDS = {"quick": 6.0, "standard": 15.0, "strict": 40.0}
"""Cost of a case whose cost is unknown, by policy."""
MOST = 1_000_000
"""Largest number of jobs, as in the schema of reports."""


@dataclass(frozen=True)
class Recipe:
    """What all jobs of a plan have in common."""

    policy: JSON
    sides: Mapping[str, JSON]
    machine_class: str
    driver: str
    device: str
    scale: str
    time: str
    """Time of the plan, which begins the identity of each job in a history."""


def costs(cases: Sequence[Case], known: Mapping[str, float], policy: str) -> dict[str, float]:
    """Estimate the seconds of each case: its own, else the median of its function, else of the suite, else a constant.

    Args:
        known: Seconds of cases in earlier reports.
        policy: Name of the policy.
    """
    of_group: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        if case.name in known:
            of_group[case.group].append(known[case.name])
    middle = {group: median(values) for group, values in of_group.items()}
    usual = median(known.values()) if known else CASE_SECONDS.get(policy, max(CASE_SECONDS.values()))
    return {case.name: known.get(case.name, middle.get(case.group, usual)) for case in cases}


def cut(
    cases: Sequence[Case], seconds: Mapping[str, float], target: float = JOB_SECONDS
) -> list[tuple[tuple[str, ...], float]]:
    """Cut cases into jobs of at most ``target`` seconds; return the cases and the seconds of each job.

    Cases that race each other for a contract stay together, as in a shard, whatever they cost. Cases of one start-up
    environment stay together as far as possible, because each environment needs zygotes of its own.
    """
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.group].append(case)
    ordered = sorted(groups.values(), key=lambda group: group[0].env)  # stable: otherwise the order of the suite
    jobs: list[tuple[tuple[str, ...], float]] = []
    names: list[str] = []
    cost = 0.0
    for group in ordered:
        more = sum(seconds[case.name] for case in group)
        if names and cost + more > target:
            jobs.append((tuple(names), cost))
            names, cost = [], 0.0
        names += [case.name for case in group]
        cost += more
    if names:
        jobs.append((tuple(names), cost))
    return jobs


def jobs_of(parts: Sequence[tuple[tuple[str, ...], float]], recipe: Recipe) -> Iterable[Job]:
    """Yield the job of each part of a suite.

    Raises:
        UsageError: There are more jobs than a fleet may have.
    """
    if len(parts) > MOST:
        raise UsageError(f"{len(parts)} jobs are more than {MOST}: give --job-seconds more")
    names = [name for part, _ in parts for name in part]
    suite, token, generator = digest(names), secrets.randbelow(1 << 12), secrets.SystemRandom()
    first = Job(
        1, len(parts), suite, len(names), (), json.loads(json.dumps(recipe.policy)), recipe.sides, recipe.machine_class, recipe.driver,
        recipe.device, recipe.scale, 0, "", 0.0,
    )  # fmt: skip
    for index, (part, seconds) in enumerate(parts, 1):
        session = f"{recipe.time}-{token:03x}{index:05x}"  # unique, or a history would take two jobs for one
        yield replace(
            first,
            index=index,
            cases=part,
            seed=generator.randrange(2**32),
            session=session,
            seconds=round(seconds, 3),
        )


def write(place: Path, jobs: Iterable[Job], root: Path, missing: Sequence[str] = ()) -> Plan:
    """Write the folder of a fleet, whole or not at all; return its plan.

    Args:
        missing: See `Plan`.

    Raises:
        OSError: The folder exists, or cannot be written.
        UsageError: There is no job.
    """
    with atomic_dir(place) as half:
        folder, made, seconds, last = FleetFolder(half), 0, 0.0, None
        for job in jobs:
            path = folder.job_file(job.index)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(job.render(), encoding="utf-8")  # the folder is renamed when all files are whole
            made, seconds, last = made + 1, seconds + job.seconds, job
        if last is None:
            raise UsageError("no benchmark is selected; `pytest --benchmark --collect-only -q` lists all")
        plan = Plan(
            made, last.suite_cases, last.suite, last.machine_class, str(root), round(seconds, 3), tuple(missing)
        )
        folder.plan_file.write_text(plan.render(), encoding="utf-8")
    return plan
