"""Merge the reports of a fleet's jobs, one after another, into the report of the suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfbench.errors import JobError, ReportError
from tfbench.fleet.folder import FleetFolder
from tfbench.fleet.job import check_report
from tfbench.fs import read_text
from tfbench.gate.merge import Merger
from tfbench.model import Report
from tfbench.report import json_reader

ROUNDS = 10_000
"""Cases up to which the merged report keeps the rounds, which are 2,500 bytes per case."""


def merge(folder: FleetFolder, lost: Mapping[int, str], progress: Callable[[int], None] = lambda done: None) -> Report:
    """Merge the reports of all jobs. Each case of the plan gets the rows of its one job.

    Args:
        lost: Number of a job without a report -> why. Its cases become errors.
        progress: Called with the number of merged jobs.

    Raises:
        JobError: A report is missing, is not the complete one of its job, or every job is lost.
        ReportError: The reports differ in their sides or kinds of machines, or a case is missing or occurs twice.
    """
    plan = folder.plan()
    merger = Merger(rounds=plan.cases <= ROUNDS)
    done = 0
    # The first report tells what all others must have, so the lost ones come last.
    for index in (one for one in range(1, plan.jobs + 1) if one not in lost):
        job, path = folder.job(index), folder.report(index)
        if job.suite != plan.suite or job.of != plan.jobs:
            raise JobError(f"{folder.job_file(index)} belongs to another plan than {folder.plan_file}")
        try:
            report = json_reader.read(read_text(path), str(path))
        except ReportError as error:
            fix = f"tfbench fleet run --resume {folder.path} measures what is missing"
            raise JobError(f"job {index} of {plan.jobs} has no report: {error}; {fix}") from None
        check_report(job, report, str(path))
        merger.add(str(path), report)
        done += 1
        progress(done)
    for index in sorted(lost):
        job = folder.job(index)
        merger.add_lost(f"job {index}", job.part.of_cases(job.cases), lost[index])
        done += 1
        progress(done)
    merger.add_missing(plan.missing)
    for host, why in folder.aside():
        merger.set_aside(host, why)
    if len(lost) == plan.jobs:
        why = next(iter(lost.values()))
        raise JobError(f"none of the {plan.jobs} jobs has a report: {why}")
    return merger.finish()
