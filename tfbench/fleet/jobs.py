"""The jobs of a fleet: what each machine does and with what, and the folder of a plan with its jobs and reports."""

from __future__ import annotations

import hashlib
import platform
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Annotated, ClassVar, TypedDict, TypeVar

from msgspec import Meta

from tfbench.errors import JobError, ReportError, UsageError
from tfbench.facts import packages
from tfbench.fs import atomic_dir, read_text, remove_half_dirs
from tfbench.model import Case, Report, formats
from tfbench.model.report import PolicyContent
from tfbench.report import json_format
from tfbench.sides.source_tree import NoCheckout, code_digest, commit_of, tree_of
from tfbench.sides.spec import WORKING_TREE, of_version
from tfbench.storage.history import ignore_in_git
from tfbench.suite.shards import SuitePart, digest
from tfbench.untrusted import NO_CASE, brief, is_case

# Describe both sides of a plan such that each machine can check them, with revisions replaced by commits


def pinned(spec: str, root: Path) -> str:
    """Return a specification that means the same code on every machine: ``git:main`` becomes ``git:`` and a hash.

    Raises:
        UsageError: It is empty, or a part names an interpreter, which other machines do not have.
        SideError: A revision does not exist.
    """
    parts = [part.strip() for part in of_version(spec).split("+")]
    if not spec.strip():
        raise UsageError("a fleet races two sides: give --against SPEC, such as git:HEAD~1 or self")
    if local := next((part for part in parts if part.startswith("python:")), ""):
        raise UsageError(f"--against {local}: other machines have no such path; name packages or a revision")
    return "+".join(f"git:{commit_of(root, part[4:])}" if part.startswith("git:") else part for part in parts)


def sides_of(spec: str, root: Path) -> PlannedSides:
    """Return the recipes of both sides; ``spec`` is pinned. Raises `SideError` if git cannot read the checkout."""
    try:
        tree = code_digest(root)
    except NoCheckout:
        tree = ""  # the code of machines cannot be compared without git; docs/fleet.md says so
    revision = next((part[4:] for part in spec.split("+") if part.startswith("git:")), "")
    named = dict(part.split("==", 1) for part in spec.split("+") if "==" in part and ":" not in part)
    there = tree_of(root, revision) if revision else tree
    return {
        "baseline": _PlannedSide(spec=spec, tree=there, python="", packages=named),
        "contender": _PlannedSide(spec=WORKING_TREE, tree=tree, python=platform.python_version(), packages=packages()),
    }


# Define a job: the part of a suite that one machine races, as one JSON file that carries its own digest


SCHEMA, PLAN_SCHEMA = "tfbench-job/1", "tfbench-fleet/1"
Kind = TypeVar("Kind", bound="_Sealed")


class _Sealed:
    """Base of the types whose files carry the digest of their content."""

    schema: ClassVar[str]

    @cached_property
    def digest(self) -> str:
        """Digest of the whole content, which identifies a job in its report."""
        return hashlib.sha256(formats.line(self).encode()).hexdigest()

    def render(self) -> str:
        """Return the text of the file."""
        return f'{{"schema":"{self.schema}","digest":"{self.digest}",{formats.line(self)[1:]}\n'


def _parsed(kind: type[Kind], text: str, name: str, fix: str) -> Kind:
    found = formats.read_named(kind, text, name, kind.schema, fix, JobError)
    if found.render() != text:
        raise JobError(f"{brief(name)} was edited: its content does not match its digest; plan again")
    return found


class _PlannedSide(TypedDict):
    spec: formats.Name
    tree: Annotated[str, formats.exactly("[0-9a-f]{0,64}")]
    python: Annotated[str, Meta(max_length=40)]
    packages: formats.Texts


class PlannedSides(TypedDict):
    """What both sides of a plan are: specification, git tree, Python and packages."""

    baseline: _PlannedSide
    contender: _PlannedSide


@dataclass(frozen=True)
class Job(_Sealed):
    """What one machine has to race, and what the machine must have for the results to count."""

    index: formats.Number
    """Number of the job, from 1."""
    of: formats.Number
    suite: formats.Digest
    """Digest of the names of all cases of the suite, see `tfbench.suite.shards.digest`."""
    suite_cases: formats.Number
    """Number of cases of all jobs, which share the policy's alpha."""
    cases: Annotated[tuple[formats.Name, ...], Meta(min_length=1, max_length=100_000)]
    policy: PolicyContent
    """Every threshold, with lists as JSON has them. A machine whose tfbench has others refuses the job."""
    sides: PlannedSides
    device: Annotated[str, Meta(max_length=200)]
    scale: Annotated[str, formats.exactly("small|medium|large")]
    seed: Annotated[int, Meta(ge=0, lt=2**32)]
    session: Annotated[str, formats.exactly("[0-9TZ:+-]{10,40}-[0-9a-f]{8}")]
    """Identity of the run in a history. A repeated job has the same, so a history has it once."""
    seconds: formats.Seconds
    """Expected time on the machine, in seconds."""
    schema: ClassVar[str] = SCHEMA

    @property
    def against(self) -> str:
        """The specification of the baseline side."""
        return self.sides["baseline"]["spec"]

    @property
    def part(self) -> SuitePart:
        """The job as a part of its suite."""
        return SuitePart(self.index, self.of, self.suite, self.suite_cases, self.digest)


_REPLAN = "plan again with this tfbench, or install the tfbench that planned it"


def load(path: Path) -> Job:
    """Read the file of a job.

    Raises:
        JobError: The file has another schema, or was edited.
        ReportError: The file does not exist, or is too large.
    """
    return parse_job(read_text(path), str(path))


def parse_job(text: str, name: str, fix: str = _REPLAN) -> Job:
    """Build a job from the text of its file; ``name`` and ``fix`` are for errors. Raises `JobError`, see `load`."""
    job = _parsed(Job, text, name, fix)
    if strange := next((case for case in job.cases if not is_case(case)), ""):  # pytest reads them as arguments
        raise JobError(f"{brief(name)} has a case named {brief(repr(strange))}, {NO_CASE}")
    return job


def check_report(job: Job, report: Report, name: str) -> None:
    """Refuse a report that is not the complete report of this job.

    Raises `JobError` if it is incomplete, or of another job, policy or baseline side.
    """
    spec, missing = report.sides.get("baseline", {}).get("spec"), set(job.cases) - set(report.due)
    for is_wrong, what in (
        (report.gap, f"is not complete: {report.gap}"),
        (
            report.shard != job.part.of_cases(job.cases),
            f"is the report of another job; job {job.index} of {job.of} has none",
        ),
        (report.policy != job.policy, "has other thresholds than its job"),
        (report.interrupted, "is of a run that was interrupted"),
        (report.seed != job.seed, "has another seed than its job"),
        (report.sides and spec != job.against, f"raced {brief(spec)}, and its job names {brief(job.against)}"),
        (missing, f"has no row for {min(missing, default='')}, a case of its job"),
    ):
        if is_wrong:
            raise JobError(f"{brief(name)} {what}")


def read_report(job: Job, path: Path) -> Report | None:
    """Return the complete report of a job, ``None`` without one. Raises `JobError` with the fix if the file is another one."""
    if not path.exists():
        return None
    try:
        report = json_format.read(read_text(path), str(path))
        check_report(job, report, str(path))
    except (JobError, ReportError) as error:
        raise JobError(f"{error}; remove the file, and the job is measured again") from None
    return report


# Name the files of a fleet: its plan, and the job, report, log and attempts of each number


PLAN = "plan.json"
_EACH = 1000
"""Jobs per folder. File systems list folders of a hundred thousand files slowly."""


@dataclass(frozen=True)
class Plan(_Sealed):
    """What all jobs of a fleet have in common."""

    jobs: formats.Number
    cases: formats.Number
    suite: formats.Text
    session: formats.Text
    """Beginning of the identities that its jobs have in a history."""
    root: formats.Text
    """pytest's root, where each machine finds the benchmarks."""
    seconds: Annotated[float, Meta(ge=0)]
    """Expected machine time of all jobs, in seconds."""
    missing: tuple[formats.Name, ...] = ()
    """Names of the cases that the other side would run under the same options, and that are in no job."""

    schema: ClassVar[str] = PLAN_SCHEMA

    def session_of(self, index: int) -> str:
        """Return the identity of a job in a history. Two jobs differ in it, or a history would take them for one."""
        return f"{self.session}{index:05x}"


class FleetFolder:
    """A folder that all machines of a fleet share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan_file = path / PLAN
        self.merged = path / "report.json"
        self.lock = path / "fleet.lock"

    def plan(self) -> Plan:
        """Read the plan. Raises `JobError` if there is none, it has another schema, or was edited."""
        fix = "tfbench fleet plan writes one"
        try:
            return _parsed(Plan, read_text(self.plan_file), str(self.plan_file), fix)
        except ReportError as error:
            raise JobError(f"{brief(self.path)} is no folder of a fleet ({error}); {fix}") from None

    def job_file(self, index: int) -> Path:
        return self._numbered("jobs", index, ".json")

    def report(self, index: int) -> Path:
        return self._numbered("reports", index, ".json")

    def log(self, index: int) -> Path:
        return self._numbered("logs", index, ".txt")

    def work(self, index: int) -> Path:
        """Folder of a job that is not complete: its journal, and a report that is not checked yet."""
        return self._numbered("work", index, "")

    def _numbered(self, kind: str, index: int, suffix: str) -> Path:
        return self.path / kind / f"{index // _EACH:03}" / f"{index:06}{suffix}"

    def job(self, index: int, plan: Plan | None = None) -> Job:
        """Read a job of the plan. Raises as `load`, and `JobError` if the file is another job's, or one of another plan."""
        job, path = load(self.job_file(index)), brief(self.job_file(index))
        if job.index != index:
            raise JobError(f"{path} is job {job.index}, and its name says {index}; plan again")
        plan = plan or self.plan()
        if (job.of, job.suite, job.session) != (plan.jobs, plan.suite, plan.session_of(index)):
            raise JobError(f"{path} belongs to another plan than {self.plan_file}; plan again")
        return job


# Cut a suite into jobs of about equal cost, and write them


JOB_SECONDS = 900.0
"""Expected seconds of a job. The start of a job costs about 20 s, which is 2% of it, and a lost
machine loses at most a quarter of an hour, less what its journal kept."""
CASE_SECONDS = {"quick": 6.0, "standard": 15.0, "strict": 40.0, "finest": 60.0}
"""Cost of a case whose cost is unknown, by policy."""
MOST = 1_000_000
"""Largest number of jobs, as in the schema of reports."""


def costs(cases: Sequence[Case], known: Mapping[str, float], policy: str) -> dict[str, float]:
    """Estimate the seconds of each case: its own, else the median of all, else a constant.

    ``known`` are the seconds of cases in earlier reports.
    """
    usual = median(known.values()) if known else CASE_SECONDS.get(policy, max(CASE_SECONDS.values()))
    return {case.name: known.get(case.name, usual) for case in cases}


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


def write_plan(
    place: Path,
    parts: Sequence[tuple[tuple[str, ...], float]],
    make: Callable[..., Job],
    when: str,
    root: Path,
    missing: Sequence[str] = (),
) -> Plan:
    """Write the folder of a fleet, whole or not at all; return its plan.

    Raises `OSError` if the folder exists, or cannot be written, and `UsageError` if there are more jobs than a fleet may
    have, or one that no machine would take.

    Args:
        parts: The cases and the seconds of each job, from `cut`.
        make: Makes a job from the fields that differ between jobs.
        when: Time of the plan, which begins the identity of each job in a history.
    """
    if len(parts) > MOST:
        raise UsageError(f"{len(parts)} jobs are more than {MOST}: give --job-seconds more")
    names, total = [name for cases, _ in parts for name in cases], round(sum(seconds for _, seconds in parts), 3)
    session, generator = f"{when}-{secrets.token_hex(2)[1:]}", secrets.SystemRandom()
    plan = Plan(len(parts), len(names), digest(names), session, str(root), total, tuple(missing))
    remove_half_dirs(place.parent)
    with atomic_dir(place) as half:
        folder = FleetFolder(half)
        ignore_in_git(half)  # in a checkout, its files would be data of benchmarks, whose change ends a resumed job
        folder.plan_file.write_text(plan.render(), encoding="utf-8")
        for index, (cases, seconds) in enumerate(parts, 1):
            path, seed = folder.job_file(index), generator.randrange(2**32)
            text = make(
                index=index, of=plan.jobs, suite=plan.suite, suite_cases=plan.cases, cases=cases, seed=seed,
                session=plan.session_of(index), seconds=round(seconds, 3),
            ).render()  # fmt: skip
            try:
                parse_job(text, f"job {index} of this plan", "give another value")
            except JobError as error:
                raise UsageError(str(error)) from None
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")  # the folder is renamed when all files are whole
    return plan
