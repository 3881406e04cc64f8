"""Do a job on this machine: check the machine, lease the host, race the canary, measure, and write the report."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from tfbench.errors import JobError, NodeError, ReportError, TfbenchError
from tfbench.fleet import canary, node
from tfbench.fleet.folder import FleetFolder, node_name
from tfbench.fleet.job import Job, check_report, load
from tfbench.fleet.lease import lease
from tfbench.fs import locked, read_text, write_whole
from tfbench.model import TIME, Report
from tfbench.race.process_launcher import Processors
from tfbench.report import json_reader, json_writer
from tfbench.storage.layout import HISTORY_VARIABLE, JOURNAL

WAIT = 24 * 3600.0
"""Seconds to wait for the lease of the host by default: an engine counts the job as running meanwhile."""
_ENDING = 60.0
"""Seconds that an interrupted run gets to write its report and journal, before it is killed."""

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
            return Place(job, path, path.with_suffix(".work"))
        index = load(job).index
        return Place(job, fleet.report(index), fleet.work(index), fleet)


def finished(job: Job, place: Place) -> bool:
    """Whether the complete report of the job exists.

    Raises:
        JobError: A file is in its place that is not the job's complete report.
    """
    if not place.report.exists():
        return False
    check_report(job, json_reader.read(read_text(place.report), str(place.report)), str(place.report))
    return True


def run(
    place: Place,
    root: Path,
    processors: Processors,
    measure: Measure,
    *,
    wait: float = WAIT,
    race_canary: Callable[[Processors, random.Random, str], canary.Canary] = canary.race,
    check: Callable[[Job, Path], None] = node.check,
) -> bool:
    """Do a job once, whatever number of processes try: false if its report was complete already.

    Args:
        wait: Seconds to wait for the lease of the host.

    Raises:
        JobError: The job or its report is unusable, or the run did not come to its end.
        NodeError: This machine is not fit for the job.
    """
    job = load(place.job)
    host = node_name()
    if finished(job, place):
        return False
    check(job, root)
    with lease(wait) as held, locked(place.work.with_suffix(".lock")):
        if finished(job, place):  # another attempt was faster
            return False
        if place.fleet and (why := place.fleet.why_aside(host)):
            _note(place, job, "aside", host, reason=why)
            raise NodeError(f"{host} was set aside: {why}; fix it, and remove its file in {place.fleet.path}/aside")
        began = time.time()
        _note(place, job, "began", host, processors=list(processors.one))
        try:
            found = race_canary(processors, random.Random(job.seed), job.device)
            if found.failure:
                if place.fleet:
                    place.fleet.set_aside(host, f"its canary failed: {found.failure}")
                raise NodeError(f"{host} failed its canary, {found.failure}: run tfbench doctor there")
            measure(job, root, place.work, held)
            report = _read(job, place.work / "report.json")
            ended = time.time()
            machine = node.row(host, job, node.facts(processors), found.as_json(), began, ended)
            write_whole(place.report, json_writer.render(replace(report, machines=(machine,))))
        except TfbenchError as error:
            aside = bool(place.fleet and place.fleet.why_aside(host))
            _note(place, job, "aside" if aside else "failed", host, began=began, reason=str(error))
            raise
        outcomes = Counter(str(row.outcome) for row in report.verdicts if row.metric == TIME)
        _note(place, job, "done", host, began=began, processors=list(processors.one), outcomes=outcomes)
        shutil.rmtree(place.work, ignore_errors=True)
    with suppress(OSError):
        place.work.with_suffix(".lock").unlink()
    return True


def _note(place: Place, job: Job, event: str, host: str, **more: object) -> None:
    if place.fleet:
        place.fleet.note(job.index, event, host, **more)


def _read(job: Job, path: Path) -> Report:
    try:
        report = json_reader.read(read_text(path), str(path))
    except ReportError as error:
        raise JobError(f"job {job.index} has no report: {error}") from None
    check_report(job, report, str(path))
    return report


def options_of(job: Job, file: Path, work: Path, history: bool) -> list[str]:
    """Return the options of pytest that measure a job in pytest's root."""
    return [
        "-p", "no:cacheprovider", "-q", "--benchmark",
        f"--job={file}", f"--report-json={work / 'report.json'}", f"--policy={job.policy['name']}",
        f"--against={job.against}", f"--device={job.device}", f"--scale={job.scale}",
        *(["--resume"] if (work / JOURNAL).exists() else []), *(["--history"] if history else []), f"@{work / 'cases.txt'}",
    ]  # fmt: skip


def measured(pytest: Sequence[str], job: Job, root: Path, work: Path, held: IO[str]) -> None:
    """Measure a job in a child process, which holds the lease even if this process is killed.

    Args:
        pytest: The command of pytest with the plugin of tfbench.

    Raises:
        JobError: pytest did not come to its end.
    """
    write_whole(work / "cases.txt", "".join(f"{case}\n" for case in job.cases))
    write_whole(work / "job.json", job.render())
    options = options_of(job, work.absolute() / "job.json", work.absolute(), bool(os.environ.get(HISTORY_VARIABLE)))
    code = _wait([*pytest, *options], root, held)
    if code not in (0, 1):  # with 1, a case failed, and the report says which
        raise JobError(f"job {job.index}: pytest ended with exit code {code}; its output says why")


def _wait(words: Sequence[str], root: Path, held: IO[str]) -> int:
    with subprocess.Popen(words, cwd=root, pass_fds=(held.fileno(),), stdin=subprocess.DEVNULL) as child, _terminable():
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(_ENDING)
            except subprocess.TimeoutExpired:
                child.kill()
            raise


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM, which engines send, like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
