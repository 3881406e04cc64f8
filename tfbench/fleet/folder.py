"""The folder of a fleet: its plan, its jobs and their state."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Meta

from tfbench.errors import JobError, ReportError, UsageError
from tfbench.fleet.job import Job, load
from tfbench.fs import atomic_dir, read_text, write_whole
from tfbench.model import JSON, Case
from tfbench.model.formats import Name, Number, Text, check_schema, convert, line, plain, read
from tfbench.suite.shards import digest
from tfbench.untrusted import brief, parse_json, render_json

# Name the files of a fleet: its plan, and the job, report, log and attempts of each number


SCHEMA = "tfbench-fleet/1"
PLAN = "plan.json"
_EACH = 1000
"""Jobs per folder. File systems list folders of a hundred thousand files slowly."""
_HOST = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Plan:
    """What all jobs of a fleet have in common."""

    jobs: Number
    cases: Number
    suite: Text
    machine_class: Text
    root: Text
    """pytest's root, where each machine finds the benchmarks."""
    seconds: Annotated[float, Meta(ge=0)]
    """Expected machine time of all jobs, in seconds."""
    missing: tuple[Name, ...] = ()
    """Names of the cases that the other side would run under the same options, and that are in no job."""

    def render(self) -> str:
        return render_json({"schema": SCHEMA, **plain(self)}, 1) + "\n"


@dataclass(frozen=True)
class _Aside:
    """A machine that was set aside."""

    host: Name
    reason: Text
    time: float


@dataclass(frozen=True)
class _Event:
    """What each line about an attempt has. Events have more of their own."""

    event: Name
    host: Name
    time: float


class FleetFolder:
    """A folder that all machines of a fleet share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan_file = path / PLAN
        self.merged = path / "report.json"
        self.lock = path / "fleet.lock"

    @staticmethod
    def of_job(job: Path) -> FleetFolder | None:
        """Return the fleet that the file of a job belongs to, ``None`` if it belongs to none."""
        folder = job.resolve().parents[2] if len(job.resolve().parents) > 2 else None
        return FleetFolder(folder) if folder is not None and (folder / PLAN).is_file() else None

    def plan(self) -> Plan:
        """Read the plan.

        Raises:
            JobError: There is none, or it has another schema.
        """
        try:
            content = parse_json(read_text(self.plan_file))
            check_schema(content, SCHEMA)
            return convert(Plan, content)
        except (ValueError, ReportError) as error:
            fix = "tfbench fleet plan writes one"
            raise JobError(f"{brief(self.path)} is no folder of a fleet ({brief(error)}); {fix}") from None

    def job_file(self, index: int) -> Path:
        return self._numbered("jobs", index, ".json")

    def report(self, index: int) -> Path:
        return self._numbered("reports", index, ".json")

    def log(self, index: int) -> Path:
        return self._numbered("logs", index, ".txt")

    def work(self, index: int) -> Path:
        """Folder of a job that is not complete: its journal, and a report that is not checked yet."""
        return self._numbered("work", index, "")

    def _attempts(self, index: int) -> Path:
        return self._numbered("attempts", index, ".jsonl")

    def _numbered(self, kind: str, index: int, suffix: str) -> Path:
        return self.path / kind / f"{index // _EACH:03}" / f"{index:06}{suffix}"

    def job(self, index: int) -> Job:
        """Read a job. Raises as `tfbench.fleet.job.load`, and `JobError` if the file has another job's number."""
        found = load(self.job_file(index))
        if found.index != index:
            raise JobError(f"{brief(self.job_file(index))} is job {found.index}, and its name says {index}")
        return found

    # Attempts

    def note(self, index: int, event: str, host: str, **more: object) -> None:
        """Append an event of an attempt: ``began``, ``done``, ``failed`` or ``aside``. Several machines may append.

        Raises:
            OSError: The disk is full.
        """
        path = self._attempts(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        row = {"event": event, "host": host, "time": time.time(), **more}
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{render_json(row)}\n")

    def attempts(self, index: int) -> list[JSON]:
        """Return the events of a job's attempts in time order, without a line that was cut off."""
        try:
            lines = read_text(self._attempts(index)).splitlines()
        except ReportError:
            return []
        return [row for line in lines if (row := _event(line))]

    # Machines that were set aside

    def set_aside(self, host: str, reason: str) -> None:
        """Note that a machine failed its canary, so that it gets no further job.

        Raises:
            OSError: The disk is full.
        """
        write_whole(self._aside(host), f"{line(_Aside(host, reason, time.time()))}\n")

    def why_aside(self, host: str) -> str:
        """Return why a machine was set aside, ``""`` if it was not."""
        return dict(self.aside()).get(host, "") if self._aside(host).exists() else ""

    def aside(self) -> Iterator[tuple[str, str]]:
        """Yield each machine that was set aside, and the reason."""
        for path in sorted((self.path / "aside").glob("*.json")):
            try:
                row = read(_Aside, read_text(path).rstrip())
                yield row.host, row.reason
            except (ReportError, ValueError) as error:
                yield path.stem, f"its file cannot be read: {brief(error)}"

    def _aside(self, host: str) -> Path:
        return self.path / "aside" / f"{_HOST.sub('_', host)[:100]}.json"


def node_name() -> str:
    """Return the name of this machine as its engine knows it: Slurm may have several nodes on one host."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _event(text: str) -> JSON | None:
    try:
        row: JSON = parse_json(text)
        convert(_Event, row)
    except ValueError:
        return None
    return row


# Cut a suite into jobs of about equal cost, and write them


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
