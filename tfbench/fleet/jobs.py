"""The jobs of a fleet: what each machine does and with what, and the folder of a plan with its jobs and reports."""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, TypedDict

from msgspec import Meta

from tfbench.errors import JobError, ReportError, UsageError
from tfbench.facts import packages
from tfbench.fs import atomic_dir, read_text, remove_half_dirs
from tfbench.model import JSON, Case, Report, formats
from tfbench.model.report import PolicyContent
from tfbench.report import json_format
from tfbench.sides.source_tree import NoCheckout, code_digest, commit_of, tree_of
from tfbench.sides.spec import WORKING_TREE, of_version
from tfbench.storage.history import ignore_in_git, json_digest
from tfbench.suite.shards import SuitePart, digest
from tfbench.untrusted import NO_CASE, brief, is_case, parse_json, plural, render_json

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


def sides_of(spec: str, root: Path) -> dict[str, JSON]:
    """Return the recipes of both sides; ``spec`` is pinned. Raises `SideError` if git cannot read the checkout."""
    try:
        tree = code_digest(root)
    except NoCheckout:
        tree = ""  # the code of machines cannot be compared without git; docs/fleet.md says so
    revision = next((part[4:] for part in spec.split("+") if part.startswith("git:")), "")
    named = dict(part.split("==", 1) for part in spec.split("+") if "==" in part and ":" not in part)
    baseline = {"spec": spec, "tree": tree_of(root, revision) if revision else tree, "python": "", "packages": named}
    contender = {"spec": WORKING_TREE, "tree": tree, "python": platform.python_version(), "packages": packages()}
    return {"baseline": baseline, "contender": contender}


# Define a job: the part of a suite that one machine races, as one JSON file that carries its own digest


SCHEMA = "tfbench-job/1"

if TYPE_CHECKING:
    PlannedSides = Mapping[str, JSON]
else:

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
class Job:
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

    @property
    def against(self) -> str:
        """The specification of the baseline side."""
        return str(self.sides["baseline"]["spec"])

    @cached_property
    def _content(self) -> str:
        """The content as JSON in one canonical form."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> str:
        """Digest of the whole content, which identifies the job in its report."""
        return hashlib.sha256(self._content.encode()).hexdigest()

    @property
    def part(self) -> SuitePart:
        """The job as a part of its suite."""
        return SuitePart(self.index, self.of, self.suite, self.suite_cases, self.digest)

    def render(self) -> str:
        """Return the text of the job's file."""
        return f'{{"schema":"{SCHEMA}","digest":"{self.digest}",{self._content[1:]}\n'


def load(path: Path) -> Job:
    """Read the file of a job.

    Raises:
        JobError: The file cannot be read, has another schema, or was edited.
        ReportError: The file does not exist, or is too large.
    """
    return parse_job(read_text(path), str(path))


_REPLAN = "plan again with this tfbench, or install the tfbench that planned it"


def parse_job(text: str, name: str, fix: str = _REPLAN) -> Job:
    """Build a job from the text of its file; ``name`` and ``fix`` are for errors. Raises `JobError`, see `load`."""
    try:
        content = parse_json(text)
        formats.check_schema(content, SCHEMA)
        job = formats.convert(Job, content)
        if unknown := sorted(set(content) - {"schema", "digest", *(field.name for field in fields(Job))}):
            raise ValueError(f"at the top, the key {unknown[0]!r} is unknown")
        if not isinstance(job.policy.get("name"), str):
            raise ValueError("at policy, the name is missing")
    except ValueError as error:
        raise JobError(f"{brief(name)} is not a job of the schema {SCHEMA}: {brief(error)}; {fix}") from None
    if job.digest != content.get("digest"):
        raise JobError(f"{brief(name)} was edited: its content does not match its digest; plan again")
    if not job.index <= job.of or len(job.cases) > job.suite_cases:
        raise JobError(
            f"{brief(name)} contradicts itself: job {job.index} of {job.of}, {plural(len(job.cases), 'case')}"
        )
    if strange := next((case for case in job.cases if not is_case(case)), ""):  # pytest reads them as arguments
        raise JobError(f"{brief(name)} has a case named {brief(repr(strange))}, {NO_CASE}")
    return job


def check_report(job: Job, report: Report, name: str) -> None:
    """Refuse a report that is not the complete report of this job.

    Raises `JobError` if it is incomplete, or of another job, policy or baseline side.
    """
    if report.gap:
        raise JobError(f"{brief(name)} is not complete: {report.gap}")
    shard = report.shard or {}
    if shard.get("job") != job.digest or shard != job.part.of_cases(job.cases):
        raise JobError(f"{brief(name)} is the report of another job; job {job.index} of {job.of} has none")
    if report.policy != job.policy:
        raise JobError(f"{brief(name)} has other thresholds than its job")
    if report.seed != job.seed or report.interrupted:
        what = "is of a run that was interrupted" if report.interrupted else "has another seed than its job"
        raise JobError(f"{brief(name)} {what}")
    spec = report.sides.get("baseline", {}).get("spec")
    if report.sides and spec != job.against:
        raise JobError(f"{brief(name)} raced {brief(spec)}, and its job names {brief(job.against)}")
    missing = set(job.cases) - set(report.due)
    if missing:
        raise JobError(f"{brief(name)} has no row for {min(missing)}, a case of its job")


def read_report(job: Job, path: Path) -> Report | None:
    """Return the complete report of a job, ``None`` without one. Raises `JobError` if the file is another one."""
    if not path.exists():
        return None
    try:
        report = json_format.read(read_text(path), str(path))
    except ReportError as error:
        raise JobError(str(error)) from None
    check_report(job, report, str(path))
    return report


def kept_report(job: Job, path: Path) -> Report | None:
    """Return the same, for a report that no job writes now. The message of the error names the fix."""
    try:
        return read_report(job, path)
    except JobError as error:
        raise JobError(f"{error}; remove the file, and the job is measured again") from None


# Name the files of a fleet: its plan, and the job, report, log and attempts of each number


PLAN_SCHEMA = "tfbench-fleet/1"
PLAN = "plan.json"
_EACH = 1000
"""Jobs per folder. File systems list folders of a hundred thousand files slowly."""


@dataclass(frozen=True)
class Plan:
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

    def render(self) -> str:
        content = formats.plain(self)
        return render_json({"schema": PLAN_SCHEMA, "digest": json_digest(content), **content}, 1) + "\n"

    def has(self, job: Job) -> bool:
        """Whether a job is one of this plan."""
        return (job.of, job.suite, job.session) == (self.jobs, self.suite, f"{self.session}{job.index:05x}")


class FleetFolder:
    """A folder that all machines of a fleet share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan_file = path / PLAN
        self.merged = path / "report.json"
        self.lock = path / "fleet.lock"

    def plan(self) -> Plan:
        """Read the plan. Raises `JobError` if there is none, it has another schema, or was edited."""
        try:
            content = parse_json(read_text(self.plan_file))
            formats.check_schema(content, PLAN_SCHEMA)
            plan = formats.convert(Plan, content)
        except (ValueError, ReportError) as error:
            fix = "tfbench fleet plan writes one"
            raise JobError(f"{brief(self.path)} is no folder of a fleet ({brief(error)}); {fix}") from None
        if content.pop("digest", "") != json_digest({key: content[key] for key in content if key != "schema"}):
            text = "its content does not match its digest; plan again"
            raise JobError(f"{brief(self.plan_file)} was edited: {text}")
        return plan

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
        if not (plan or self.plan()).has(job):
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
    """Estimate the seconds of each case: its own, else the median of its function, else of the suite, else a constant.

    ``known`` are the seconds of cases in earlier reports.
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


def jobs_of(parts: Sequence[tuple[tuple[str, ...], float]], make: Callable[..., Job], when: str) -> Iterable[Job]:
    """Yield the job of each part of a suite. Raises `UsageError` if there are more jobs than a fleet may have.

    Args:
        make: Makes a job from the fields that differ between jobs.
        when: Time of the plan, which begins the identity of each job in a history.
    """
    if len(parts) > MOST:
        raise UsageError(f"{len(parts)} jobs are more than {MOST}: give --job-seconds more")
    names = [name for part, _ in parts for name in part]
    suite, token, generator = digest(names), secrets.randbelow(1 << 12), secrets.SystemRandom()
    same = {"of": len(parts), "suite": suite, "suite_cases": len(names)}
    for index, (part, seconds) in enumerate(parts, 1):
        session = f"{when}-{token:03x}{index:05x}"  # unique, or a history would take two jobs for one
        seed = generator.randrange(2**32)
        yield make(index=index, cases=part, seed=seed, session=session, seconds=round(seconds, 3), **same)


def write_plan(place: Path, jobs: Iterable[Job], root: Path, missing: Sequence[str] = ()) -> Plan:
    """Write the folder of a fleet, whole or not at all; return its plan.

    Raises `OSError` if the folder exists, or cannot be written, and `UsageError` if there is no job, or one that no
    machine would take.
    """
    remove_half_dirs(place.parent)
    with atomic_dir(place) as half:
        folder, made, seconds, last = FleetFolder(half), 0, 0.0, None
        ignore_in_git(half)  # in a checkout, its files would be data of benchmarks, whose change ends a resumed job
        for job in jobs:
            path, text = folder.job_file(job.index), job.render()
            try:
                parse_job(text, f"job {job.index} of this plan", "give another value")
            except JobError as error:
                raise UsageError(str(error)) from None
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")  # the folder is renamed when all files are whole
            made, seconds, last = made + 1, seconds + job.seconds, job
        if last is None:
            raise UsageError("no benchmark is selected; `pytest --benchmark --collect-only -q` lists all")
        plan = Plan(made, last.suite_cases, last.suite, last.session[:-5], str(root), round(seconds, 3), tuple(missing))
        folder.plan_file.write_text(plan.render(), encoding="utf-8")
    return plan
