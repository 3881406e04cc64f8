"""The jobs of a fleet: their plan in a folder that all machines share; doing and running them; and merging their reports."""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import secrets
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar, TypedDict, TypeVar

from msgspec import Meta

from tfbench.errors import EngineError, JobError, NodeError, ReportError, SideError, UsageError
from tfbench.facts import interpreter_options, packages
from tfbench.fs import atomic_dir, locked, read_text, remove_half_dirs, write_whole
from tfbench.model import TIME, Case, Report, formats
from tfbench.model.report import PolicyContent
from tfbench.model.words import span
from tfbench.policy import preset
from tfbench.race.workers import run_terminable
from tfbench.report import json_format
from tfbench.report.merge import Merger
from tfbench.sides.environments import minor
from tfbench.sides.source_tree import NoCheckout, code_digest, code_of, commit_of
from tfbench.sides.spec import WORKING_TREE, of_version
from tfbench.storage.baselines import HISTORY_VARIABLE, JOURNAL
from tfbench.storage.history import ignore_in_git
from tfbench.suite.axes import SCALES
from tfbench.suite.shards import SuitePart, digest
from tfbench.untrusted import NO_CASE, brief, is_case, plural

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
    tree = ""  # the code of machines cannot be compared without git; docs/fleet.md says so
    with suppress(NoCheckout):
        tree = code_digest(root)
    revision = next((part[4:] for part in spec.split("+") if part.startswith("git:")), "")
    named = dict(part.split("==", 1) for part in spec.split("+") if "==" in part and ":" not in part)
    there = code_of(root, revision).tree if revision else tree
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
    scale: Annotated[str, formats.exactly("|".join(SCALES))]
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


# Check that this machine may do a job


_OF_OPTIONS = ("statistic", "device_effect", "device_gated")
"""Thresholds that an option of the project's settings of pytest may change. The report of the job has to have the same."""


def check(job: Job, root: Path) -> None:
    """Refuse a job that another machine has to do.

    Raises `NodeError` if the code, the thresholds or a version is not the planned one.
    """
    if not root.is_dir():
        raise NodeError(f"{root} does not exist on {platform.node()}: share it with this machine, or give --root")
    name = str(job.policy.get("name"))
    try:
        ours = formats.plain(preset(name)) | {key: job.policy[key] for key in _OF_OPTIONS if key in job.policy}
    except UsageError as error:
        raise NodeError(f"{platform.node()}: {error}") from None
    if changed := sorted(key for key in ours.keys() | job.policy.keys() if ours.get(key) != job.policy.get(key)):
        text = f"its policy {name} has other thresholds than the job ({', '.join(changed[:3])})"
        raise NodeError(f"{platform.node()}: {text}; install the tfbench that planned it")
    recipe, installed = job.sides["contender"], packages()
    for what, planned, present in (
        ("Python", minor(recipe["python"]), minor(platform.python_version())),
        *((package, version, installed.get(package, "none")) for package, version in recipe["packages"].items()),
    ):
        if planned != present:
            text = f"it has {what} {present}, and the job was planned for {planned}"
            raise NodeError(f"{platform.node()}: {text}; install {planned}, or plan there")
    tree = ""
    with suppress(SideError):
        tree = code_digest(root)
    if recipe["tree"] not in ("", tree):
        text = f"the code in {root} is not the planned code (git tree {tree[:10] or 'unknown'}"
        raise NodeError(f"{platform.node()}: {text}, planned {recipe['tree'][:10]}): check it out, or plan again")


# Do a job on this machine


Measure = Callable[[Job, Path, Path], None]
"""Measures a job in a root, and writes its report into a folder."""


def do(
    folder: FleetFolder, index: int, root: Path, measure: Measure, check: Callable[[Job, Path], None] = check
) -> bool:
    """Do a job once, whatever number of processes try: false if its report was complete already.

    Raises:
        JobError: The job or its report is unusable, or the run did not come to its end.
        NodeError: This machine is not fit for the job.
    """
    job, place, work = folder.job(index), folder.report(index), folder.work(index)
    with locked(work.with_name(f"{work.name}.lock")):
        if read_report(job, place):
            return False
        check(job, root)
        measure(job, root, work)
        if (report := read_report(job, work / "report.json")) is None:
            raise JobError(f"job {job.index} has no report: pytest wrote no {work / 'report.json'}")
        write_whole(place, json_format.lines(report))
        shutil.rmtree(work, ignore_errors=True)
    return True


def measured(pytest: Sequence[str], cpus: str, job: Job, root: Path, work: Path) -> None:
    """Measure a job in a child process.

    ``pytest`` is its command with the plugin of tfbench, and ``cpus`` lists the processors, ``""`` for the usual ones.
    Raises `JobError` if pytest did not come to its end.
    """
    (work / "report.json").unlink(missing_ok=True)  # of an earlier attempt
    write_whole(work / "cases.txt", "".join(f"{case}\n" for case in job.cases))
    write_whole(work / "job.json", job.render())
    there = work.absolute()
    options = [
        "-o", f"cache_dir={there / 'cache'}", "-q", "--benchmark",
        f"--tfbench-job={there / 'job.json'}", f"--tfbench-report-json={there / 'report.json'}", f"--tfbench-policy={job.policy['name']}",
        f"--tfbench-against={job.against}", f"--tfbench-device={job.device}", f"--tfbench-scale={job.scale}",
        *(["--tfbench-resume"] if (there / JOURNAL).exists() else []), *(["--tfbench-history"] if os.environ.get(HISTORY_VARIABLE) else []),
        *([f"--tfbench-cpus={cpus}"] if cpus else []), f"@{there / 'cases.txt'}",
    ]  # fmt: skip
    code = run_terminable([*pytest, *options], cwd=root, stdin=subprocess.DEVNULL)
    if code not in (0, 1):  # with 1, a case failed, and the report says which
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise JobError(f"job {job.index}: pytest {how}; its output says why")


# Run jobs: on this machine, one after another, or as tasks of Ray


_PROGRAM = (sys.executable, *interpreter_options(), "-m", "tfbench", "fleet", "job")
"""The command that does a job. The fleet's folder and the job's number follow."""


Jobs = Mapping[int, tuple[Sequence[str], str]]
"""Number of a job -> the command that does it, and the file for its output."""
Engine = Callable[[Jobs], Generator[int, None, None]]
"""Starts jobs as machines become free, and yields the number of each job that has ended, whatever its result.

If the generator is closed or interrupted, the jobs that have not ended are cancelled. Raises `EngineError`.
"""


def run_job(words: Sequence[str], log: str, variables: Mapping[str, str]) -> int:
    """Do a job in a child process, and return its exit code. It runs in a process of Ray on a node, or in this one."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    # Ray sets the number of OpenMP threads and hides GPUs; the job's processes decide both themselves.
    own = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
    with open(log, "ab") as out:
        return run_terminable(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**own, **variables}, start_new_session=True
        )


def here(jobs: Jobs) -> Generator[int, None, None]:
    """Run jobs on this machine, one after another."""
    for index, (words, log) in jobs.items():
        run_job(words, log, os.environ)
        yield index


RESOURCE = "tfbench"
"""Custom resource of the nodes that measure. A node has 1 of it, so one job runs there at a time."""
_START = f"ray start --address=HEAD:6379 --resources='{{\"{RESOURCE}\": 1}}'"
_RETRIES = 3
"""Repetitions by Ray of a task whose node went."""


def on_ray(jobs: Jobs) -> Generator[int, None, None]:
    """Run jobs as tasks of the Ray cluster that is running here, one at a time on each node with `RESOURCE`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = importlib.import_module("ray")  # parts of it have no types
    except ImportError:
        raise EngineError("Ray is not installed here: pip install ray") from None
    waiting: dict[Any, int] = {}
    try:
        if not ray.is_initialized():
            ray.init(address="auto", log_to_driver=False, logging_level="error", include_dashboard=None)
        if not ray.cluster_resources().get(RESOURCE):
            raise EngineError(f"no node of Ray has the resource {RESOURCE}: start nodes with {_START}")
        task = ray.remote(run_job).options(num_cpus=0, resources={RESOURCE: 1}, max_retries=_RETRIES)
        given = {HISTORY_VARIABLE: os.environ[HISTORY_VARIABLE]} if HISTORY_VARIABLE in os.environ else {}
        waiting.update({task.remote(words, log, given): index for index, (words, log) in jobs.items()})
        while waiting:
            (ended,), _ = ray.wait(list(waiting))
            yield waiting.pop(ended)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        text = brief(error).partition(". ")[0]
        raise EngineError(f"Ray does not answer ({text}): is a cluster running? {_START}") from None
    finally:
        for reference in waiting:
            with suppress(ray.exceptions.RayError, ValueError, TypeError):
                ray.cancel(reference, force=False)


ENGINES: Mapping[str, Engine] = {"local": here, "ray": on_ray}

# Run a fleet: start its jobs, repeat lost ones, and merge their reports


ATTEMPTS = 3
"""Attempts of a job. A machine is lost now and then, and a job that fails three times fails by itself."""
ROUNDS = 10_000
"""Cases up to which the merged report keeps the rounds, which are 2,500 bytes per case."""


def run(folder: FleetFolder, engine: Engine, tell: Callable[[str], None]) -> dict[int, str]:
    """Run the jobs that have no report yet; return why each lost job has none after `ATTEMPTS` attempts.

    ``tell`` gets a line for each job that is done.

    Raises:
        EngineError: The engine is not there, or does not answer.
        JobError: A job was edited, or its report is damaged or another job's, before anything was started.
        KeyboardInterrupt: The user pressed Ctrl-C. The jobs were cancelled.
    """
    plan, place = folder.plan(), folder.path.absolute()
    seconds, outcomes = dict[int, float](), Counter[str]()
    for index in range(1, plan.jobs + 1):
        job = folder.job(index, plan)
        if report := read_report(job, folder.report(index)):
            outcomes.update(_outcomes(report))
        else:
            seconds[index] = job.seconds
    began, planned, lost = time.monotonic(), sum(seconds.values()), dict.fromkeys(seconds, "")
    for _ in range(ATTEMPTS):
        if not lost:  # no machine is needed any more
            break
        jobs = {index: ((*_PROGRAM, str(place), str(index)), str(folder.log(index).absolute())) for index in lost}
        with closing(engine(jobs)) as ended:
            for index in ended:
                try:
                    report = read_report(folder.job(index, plan), folder.report(index))
                    lost[index] = "" if report else _last_words(folder, index)
                except (JobError, ReportError) as error:
                    report, lost[index] = None, str(error)
                if report is None:
                    continue
                del lost[index]
                outcomes.update(_outcomes(report))
                counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
                left = sum(seconds[one] for one in lost)
                until = (time.monotonic() - began) * left / max(planned - left, 1e-9)
                more = f", about {span(until)} left" if left else ""
                tell(f"{plan.jobs - len(lost)} of {plural(plan.jobs, 'job')}, {counts}{more}")
    return {index: f"job {index} was lost: {why}; its output is in {folder.log(index)}" for index, why in lost.items()}


def _outcomes(report: Report) -> Iterator[str]:
    return (str(row.outcome) for row in report.verdicts if row.metric == TIME)


def _last_words(folder: FleetFolder, index: int) -> str:
    try:
        lines = read_text(folder.log(index)).strip().splitlines()
    except ReportError:
        lines = []
    return brief(lines[-1]) if lines else f"no process of it came to its end in {ATTEMPTS} attempts"


def merge(folder: FleetFolder, lost: Mapping[int, str]) -> Report:
    """Merge the reports of all jobs, one after another. Each case of the plan gets the rows of its one job.

    Args:
        lost: Number of a job without a report -> why. Its cases become errors.

    Raises:
        JobError: A report is missing, is not the complete one of its job, or every job is lost.
        ReportError: The reports differ in their sides or kinds of machines, or a case is missing or occurs twice.
    """
    plan = folder.plan()
    if len(lost) == plan.jobs:
        raise JobError(f"none of the {plan.jobs} jobs has a report: {next(iter(lost.values()))}")
    merger = Merger(rounds=plan.cases <= ROUNDS)
    # The first report tells what all others must have, so the lost ones come last.
    for index in (number for number in range(1, plan.jobs + 1) if number not in lost):
        path = folder.report(index)
        if (report := read_report(folder.job(index, plan), path)) is None:
            fix = f"tfbench fleet run {folder.path} measures what is missing"
            raise JobError(f"job {index} of {plan.jobs} has no report: there is no {path}; {fix}")
        merger.add(str(path), report)
    for index in sorted(lost):
        job = folder.job(index, plan)
        merger.add_lost(f"job {index}", job.part.of_cases(job.cases), lost[index])
    merger.add_missing(plan.missing)
    return merger.finish()
