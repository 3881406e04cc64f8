"""Run a fleet: check a machine and do a job on it; run all jobs, here or by Ray; and merge their reports."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tfbench.errors import EngineError, JobError, NodeError, ReportError, SideError, UsageError
from tfbench.facts import interpreter_options, packages
from tfbench.fleet.jobs import FleetFolder, Job, read_report
from tfbench.fs import locked, read_text, write_whole
from tfbench.model import TIME, Report
from tfbench.model.formats import plain
from tfbench.model.words import span
from tfbench.policy import preset
from tfbench.race.workers import run_terminable
from tfbench.report import json_format
from tfbench.report.merge import Merger
from tfbench.sides.environments import minor
from tfbench.sides.source_tree import code_digest
from tfbench.storage.baselines import HISTORY_VARIABLE, JOURNAL
from tfbench.untrusted import brief, plural

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


PROGRAM = (sys.executable, *interpreter_options(), "-m", "tfbench", "fleet", "job")
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
    with open(log, "ab") as output:
        return run_terminable(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**own, **variables},
            start_new_session=True,
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


def run(
    folder: FleetFolder, engine: Engine, tell: Callable[[str], None], program: Sequence[str] = PROGRAM
) -> dict[int, str]:
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
        jobs = {index: ((*program, str(place), str(index)), str(folder.log(index).absolute())) for index in lost}
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
