"""Run a fleet: start its jobs, repeat lost ones, and merge their reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

from tfbench.errors import JobError, ReportError
from tfbench.fleet.engines import PROGRAM, Engine, Submission
from tfbench.fleet.jobs import FleetFolder, kept_report, read_report
from tfbench.fs import read_text
from tfbench.model import TIME, Report
from tfbench.model.words import span
from tfbench.report.merge import Merger
from tfbench.untrusted import brief, plural

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
        if report := kept_report(job, folder.report(index)):
            outcomes.update(_outcomes(report))
        else:
            seconds[index] = job.seconds
    began, planned, lost = time.monotonic(), sum(seconds.values()), dict.fromkeys(seconds, "")
    for _ in range(ATTEMPTS):
        jobs = [Submission(index, (*program, str(place), str(index)), folder.log(index).absolute()) for index in lost]
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
        if (report := kept_report(folder.job(index, plan), path)) is None:
            fix = f"tfbench fleet run {folder.path} measures what is missing"
            raise JobError(f"job {index} of {plan.jobs} has no report: there is no {path}; {fix}")
        merger.add(str(path), report)
    for index in sorted(lost):
        job = folder.job(index, plan)
        merger.add_lost(f"job {index}", job.part.of_cases(job.cases), lost[index])
    merger.add_missing(plan.missing)
    return merger.finish()
