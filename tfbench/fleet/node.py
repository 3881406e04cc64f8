"""Carry out jobs on a node: its canary, its races, its report."""

from __future__ import annotations

import os
import platform
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

from tfbench.doctor import machine
from tfbench.errors import JobError, NodeError, SideError, TfbenchError, UsageError
from tfbench.facts import machine as machine_facts
from tfbench.facts import packages
from tfbench.fleet.jobs import FleetFolder, Job, kept_report, load, node_name, read_report
from tfbench.fs import hold, locked, write_whole
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.selection import lock_folder, opened, parse_device, shared_folder, sign
from tfbench.model import JSON, TIME, Case, Outcome, Report
from tfbench.model.formats import plain
from tfbench.policy import preset
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import Suite, run_terminable
from tfbench.report import json_format
from tfbench.sides.environments import minor
from tfbench.sides.source_tree import code_digest
from tfbench.sides.spec import Side
from tfbench.storage.baselines import HISTORY_VARIABLE, JOURNAL
from tfbench.untrusted import brief

# Race a canary: unchanged code, and a slowdown that a fit machine detects


SLOWDOWN = 0.10
"""Injected fraction of extra iterations. The policy quick detects 5% on a fit machine, so this has room for a noisy one
that still decides."""
ATTEMPTS = 2
"""A canary that fails is raced once more. A fit machine fails one by chance in a hundred, and two in ten thousand."""
_WORKLOADS = Path(__file__).parents[1] / "worker" / "workloads"
_ON_CPU = _WORKLOADS / "test_canary.py", "test_canary"
_ON_GPU = _WORKLOADS / "test_product.py", "test_product"
"""File and benchmark. The first needs no TensorFlow, so its processes start within a second."""
_CASES = 2
"""Verdicts of a canary, which share alpha."""


@dataclass(frozen=True)
class Canary:
    """The result of a canary."""

    unchanged: str
    """Outcome of unchanged code against itself."""
    slowed: str
    """Outcome of code with the injected slowdown."""
    seconds: float
    failure: str = ""
    """Why the machine is not fit, ``""`` if it is."""

    def as_json(self) -> JSON:
        return {**asdict(self), "slowdown": SLOWDOWN, "seconds": round(self.seconds, 3)}


def judge(unchanged: Outcome, slowed: Outcome, seconds: float) -> Canary:
    """Decide from both outcomes whether a machine is fit."""
    why = ""
    if unchanged in (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.ERROR):
        why = f"unchanged code is {unchanged}"
    elif slowed is not Outcome.REGRESSED:
        why = f"code slowed by {SLOWDOWN:.0%} is {slowed} instead of regressed"
    return Canary(unchanged.value, slowed.value, seconds, why)


def race(processors: Processors, rng: random.Random, device: str = "cpu") -> Canary:
    """Race the canary, again after a failure. It never raises: a machine that cannot race it is not fit.

    ``device`` is what the job measures on, as ``--device`` names it. If that includes a GPU, the canary is raced there.
    """
    began = time.perf_counter()
    canary = _raced(processors, rng, device, began)
    for _ in range(ATTEMPTS - 1):
        canary = _raced(processors, rng, device, began) if canary.failure else canary
    return canary


def _raced(processors: Processors, rng: random.Random, device: str, began: float) -> Canary:
    try:
        with closing(GpuSession(*parse_device(device), preset("quick"))) as gpu_session:
            outcomes = _outcomes(processors, rng, gpu_session)
        return judge(*outcomes, time.perf_counter() - began)
    except TfbenchError as error:
        lines = str(error).strip().splitlines()
        why = f"it could not run: {lines[-1] if lines else type(error).__name__}"
        return Canary("error", "error", time.perf_counter() - began, why)


def _outcomes(processors: Processors, rng: random.Random, gpu_session: GpuSession) -> tuple[Outcome, Outcome]:
    policy, on_gpu = preset("quick"), bool(gpu_session.gpus)
    file, function = _ON_GPU if on_gpu else _ON_CPU
    suite = Suite((file.name,), "", "importlib", made="", cpus=processors.every, imports_tensorflow=on_gpu)
    sides = [Side(name, sys.executable, file.parent, env=gpu_session.environment) for name in ("baseline", "contender")]
    name = f"{file.name}::{function}"
    case = Case(name, function, name)
    with closing(ProcessLauncher(suite, policy, processors, gpu_session.gpu_monitor)) as launcher:
        of_sides = launcher.policy_of(policy, [Entrant(case, side) for side in sides])

        def outcome(slowdown: float) -> Outcome:
            entrants = [Entrant(case, sides[0]), Entrant(case, replace(sides[1], slowdown=slowdown))]
            raced = ConfirmedRace(entrants, launcher, of_sides, _CASES, time.perf_counter, rng, False, (TIME,))
            raced.run()
            for failure in raced.failures.values():
                raise failure
            decided = raced.decision.outcome if raced.decision else None
            return decided or Outcome.INCONCLUSIVE

        return outcome(0.0), outcome(SLOWDOWN)


# Check that this machine may do a job, and state the facts of the machine for the report


_OF_OPTIONS = ("statistic", "device_effect", "device_gated")
"""Thresholds that an option of the project's settings of pytest may change. The report of the job has to have the same."""


def check(job: Job, root: Path) -> None:
    """Refuse a job that another machine has to do.

    Raises `NodeError` if the code, the thresholds, a version or the driver is not the planned one.
    """
    if not root.is_dir():
        raise NodeError(f"{root} does not exist on {platform.node()}: share it with this machine, or give --root")
    name = job.policy["name"]
    try:
        ours = plain(preset(name)) | {key: job.policy[key] for key in _OF_OPTIONS if key in job.policy}
    except UsageError as error:
        raise NodeError(f"{platform.node()}: {error}") from None
    if changed := sorted(key for key in ours.keys() | job.policy.keys() if ours.get(key) != job.policy.get(key)):
        text = f"its policy {name} has other thresholds than the job ({', '.join(changed[:3])})"
        raise NodeError(f"{platform.node()}: {text}; install the tfbench that planned it")
    recipe, installed = job.sides["contender"], packages()
    for what, planned, present in (
        ("Python", minor(recipe["python"]), minor(platform.python_version())),
        *((package, version, installed.get(package, "none")) for package, version in recipe["packages"].items()),
        ("GPU driver", job.driver, machine_facts().get("driver", "none") if job.driver else ""),
    ):
        if planned != present:
            text = f"it has {what} {present}, and the job was planned for {planned}"
            raise NodeError(f"{platform.node()}: {text}; give such machines a class of their own, or install {planned}")
    if recipe["tree"] and (tree := _digest(root)) != recipe["tree"]:
        text = f"the code in {root} is not the planned code (git tree {tree[:10] or 'unknown'}"
        raise NodeError(f"{platform.node()}: {text}, planned {recipe['tree'][:10]}): check it out, or plan again")


def _digest(root: Path) -> str:
    try:
        return code_digest(root)
    except SideError:
        return ""


def facts(processors: Processors) -> dict[str, str]:
    """Return what a reader of the report has to know of this machine; an unreadable property is ``unknown``."""
    state = machine.read(processors.every, processors.one[0], seconds=0.0)
    siblings = len(state.siblings or ())
    settings = {
        "governor": state.governor,
        "turbo": None if state.turbo is None else "on" if state.turbo else "off",
        "SMT": f"{siblings} threads per core" if siblings > 1 else "off" if siblings else None,
        "hypervisor": "none" if state.hypervisor == "" else state.hypervisor,
        "kernel": platform.release(),
    }
    return {key: value for key, value in machine_facts().items() if value} | {
        key: value or "unknown" for key, value in settings.items()
    }


# Lease the host for one measurement at a time, across all engines, services and users of the host


_LEASE_EACH = 0.02
"""Seconds between two attempts. A hand-over costs a fiftieth of a second of a job of minutes."""
_LEASE = "host.lock"


@contextmanager
def lease(wait: float, folder: Path | None = None) -> Iterator[IO[str]]:
    """Hold the host until the block ends. Children that inherit the yielded file hold it as long as they live.

    Another service may take ``wait`` seconds to finish.
    Raises `NodeError` if it still measures then, or the folder is not usable.
    """
    place = folder or lock_folder()
    try:
        with shared_folder(place) as descriptor:
            file = opened(_LEASE, descriptor)
    except OSError as error:
        raise NodeError(f"{place} cannot hold the lease of this host: {error.strerror}") from None
    with file:
        _take(file, wait)
        sign(file)
        yield file


def _take(file: IO[str], wait: float) -> None:
    until = time.monotonic() + wait
    while True:
        try:
            return hold(file, wait=False)
        except BlockingIOError:
            if time.monotonic() >= until:
                file.seek(0)
                who = file.read(100).strip()
                text = f"another service measures on this host{f', process {who}' if who.isdigit() else ''}"
                raise NodeError(f"{text}: give one service the host, or give --wait more seconds") from None
        time.sleep(_LEASE_EACH)


# Do a job on this machine: check the machine, lease the host, race the canary, measure, and write the report


WAIT = 24 * 3600.0
"""Seconds to wait for the lease of the host by default: an engine counts the job as running meanwhile."""

Measure = Callable[[Job, Path, Path, IO[str]], None]
"""Measures a job in a root, writes its report into a folder, and lets its process hold the lease of the host."""


@dataclass(frozen=True)
class Place:
    """The files of one job."""

    job: Path
    report: Path
    work: Path
    """Folder of the journal and of the report that is not checked yet."""
    fleet: FleetFolder | None = None
    events: list[str] = field(default_factory=list)

    @staticmethod
    def of(job: Path, report: Path | None = None) -> Place:
        """Return the files of a job: those of its fleet, or files beside it."""
        fleet = FleetFolder.of_job(job)
        if fleet is None or report is not None:
            path = report or job.with_suffix(".report.json")
            return Place(job, path, path.with_name(f"{path.name}.work"))  # a folder that is removed: no likely name
        index = load(job).index
        if job.resolve() != fleet.job_file(index).resolve():
            raise JobError(
                f"{brief(job)} is a copy of job {index}; name {brief(fleet.job_file(index))}, or --report-json"
            )
        fleet.job(index)  # one of another plan is refused before it is measured
        return Place(job, fleet.report(index), fleet.work(index), fleet)

    @property
    def lock(self) -> Path:
        """File that an attempt locks."""
        return self.work.with_name(f"{self.work.name}.lock")


def run(
    place: Place,
    root: Path,
    processors: Processors,
    measure: Measure,
    *,
    wait: float = WAIT,
    race_canary: Callable[[Processors, random.Random, str], Canary] = race,
    check: Callable[[Job, Path], None] = check,
) -> bool:
    """Do a job once, whatever number of processes try: false if its report was complete already.

    ``wait`` is the number of seconds to wait for the lease of the host.

    Raises:
        JobError: The job or its report is unusable, or the run did not come to its end.
        NodeError: This machine is not fit for the job.
    """
    job, host = load(place.job), node_name()

    def note(event: str, **more: object) -> None:
        if place.fleet:
            with suppress(OSError):  # a full disk may lose the note, and not the job
                place.fleet.note(job.index, event, host, **more)

    try:
        if kept_report(job, place.report):
            return False
        check(job, root)
        with lease(wait) as held, locked(place.lock):
            if kept_report(job, place.report):  # another attempt was faster
                return False
            if place.fleet and (why := place.fleet.why_aside(host)):
                raise NodeError(f"{host} was set aside: {why}; fix it, and remove its file in {place.fleet.path}/aside")
            began, clock = time.time(), time.monotonic()  # a clock that is set during the job changes no duration
            note("began", processors=list(processors.one))
            canary = race_canary(processors, random.Random(job.seed), job.device)
            if canary.failure:
                if place.fleet:
                    place.fleet.set_aside(host, f"its canary failed: {canary.failure}")
                raise NodeError(f"{host} failed its canary, {canary.failure}: run tfbench doctor there")
            measure(job, root, place.work, held)
            machine: JSON = {
                "host": host, "class": job.machine_class, "jobs": 1, "seconds": round(time.monotonic() - clock, 3),
                "facts": facts(processors), "canary": canary.as_json(),
            }  # fmt: skip
            report = replace(_read(job, place.work / "report.json"), machines=(machine,))
            write_whole(place.report, json_format.render(report))
            note("done", began=began, processors=list(processors.one))
            shutil.rmtree(place.work, ignore_errors=True)
    except (TfbenchError, OSError) as error:
        note("aside" if place.fleet and place.fleet.why_aside(host) else "failed", reason=str(error))
        raise
    finally:
        if place.report.exists():  # no attempt needs its lock any more
            with suppress(OSError):
                place.lock.unlink()
    return True


def _read(job: Job, path: Path) -> Report:
    if (report := read_report(job, path)) is None:
        raise JobError(f"job {job.index} has no report: pytest wrote no {path}")
    return report


def options_of(job: Job, file: Path, work: Path, history: bool) -> list[str]:
    """Return the options of pytest that measure a job in pytest's root."""
    return [
        "-o", f"cache_dir={work / 'cache'}", "-q", "--benchmark",
        f"--tfbench-job={file}", f"--tfbench-report-json={work / 'report.json'}", f"--tfbench-policy={job.policy['name']}",
        f"--tfbench-against={job.against}", f"--tfbench-device={job.device}", f"--tfbench-scale={job.scale}",
        *(["--tfbench-resume"] if (work / JOURNAL).exists() else []), *(["--tfbench-history"] if history else []), f"@{work / 'cases.txt'}",
    ]  # fmt: skip


def measured(pytest: Sequence[str], job: Job, root: Path, work: Path, held: IO[str]) -> None:
    """Measure a job in a child process, which holds the lease even if this process is killed.

    ``pytest`` is its command with the plugin of tfbench. Raises `JobError` if pytest did not come to its end.
    """
    (work / "report.json").unlink(missing_ok=True)  # of an earlier attempt
    write_whole(work / "cases.txt", "".join(f"{case}\n" for case in job.cases))
    write_whole(work / "job.json", job.render())
    options = options_of(job, work.absolute() / "job.json", work.absolute(), bool(os.environ.get(HISTORY_VARIABLE)))
    code = run_terminable([*pytest, *options], cwd=root, pass_fds=(held.fileno(),), stdin=subprocess.DEVNULL)
    if code not in (0, 1):  # with 1, a case failed, and the report says which
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise JobError(f"job {job.index}: pytest {how}; its output says why")
