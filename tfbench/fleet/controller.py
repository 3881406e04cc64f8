"""Run a fleet: start nodes, follow their jobs, and merge their reports."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tfbench.errors import EngineAway, EngineError, JobError, ReportError
from tfbench.fleet.engines import Engine, State, Submission
from tfbench.fleet.jobs import FleetFolder, Job, kept_report, read_report
from tfbench.model import TIME, Report
from tfbench.model.words import span
from tfbench.race.workers import tail
from tfbench.report.merge import Merger
from tfbench.untrusted import brief, plural

# Show how far a fleet is: a line that is redrawn in a terminal, and a line now and then elsewhere


_EVERY = 30.0
"""Seconds between two lines where the output is no terminal, such as the log of a CI job."""


def line(status: Status, left: float | None) -> str:
    """Describe a status in one line."""
    parts = [f"{status.done} of {status.jobs} jobs", f"{status.running} running"]
    parts.append(f"{status.cases_done} of {status.cases} cases")
    parts += [f"{count} {outcome}" for outcome, count in sorted(status.outcomes.items()) if count]
    parts += [f"{plural(len(status.lost), 'job')} lost"] if status.lost else []
    parts += [f"{plural(len(status.aside), 'machine')} set aside"] if status.aside else []
    if left is not None and status.done + len(status.lost) < status.jobs:
        parts.append(f"about {span(left)} left")
    return ", ".join(parts) + (f" ({status.note})" if status.note else "")


class FleetProgress:
    """A callable for `Fleet`. Use it as a context manager."""

    def __init__(self, console: Console, slots: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._slots, self._clock = console, slots, clock
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        self._began: float | None = None
        self._before = 0.0
        self._last = -_EVERY
        self._said: set[str] = set()

    def __enter__(self) -> FleetProgress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, status: Status) -> None:
        now = self._clock()
        if self._began is None:
            self._began, self._before = now, status.seconds_done
        for host, why in status.aside.items():
            if host not in self._said:
                self._said.add(host)
                self._console.print(Text(f"{host} was set aside: {why}", "yellow"))
        text = line(status, seconds_left(status, self._slots(), now - self._began, self._before))
        if self._live:
            self._live.update(Text(text), refresh=True)
        elif now - self._last >= _EVERY or status.done + len(status.lost) == status.jobs:
            self._last = now
            self._console.print(Text(text))


# Merge the reports of a fleet's jobs, one after another, into the report of the suite


ROUNDS = 10_000
"""Cases up to which the merged report keeps the rounds, which are 2,500 bytes per case."""


def merge(folder: FleetFolder, lost: Mapping[int, str]) -> Report:
    """Merge the reports of all jobs. Each case of the plan gets the rows of its one job.

    Args:
        lost: Number of a job without a report -> why. Its cases become errors.

    Raises:
        JobError: A report is missing, is not the complete one of its job, or every job is lost.
        ReportError: The reports differ in their sides or kinds of machines, or a case is missing or occurs twice.
    """
    plan = folder.plan()
    merger = Merger(rounds=plan.cases <= ROUNDS)
    # The first report tells what all others must have, so the lost ones come last.
    for index in (number for number in range(1, plan.jobs + 1) if number not in lost):
        path = folder.report(index)
        if (report := kept_report(folder.job(index, plan), path)) is None:
            fix = f"tfbench fleet run --resume {folder.path} measures what is missing"
            raise JobError(f"job {index} of {plan.jobs} has no report: there is no {path}; {fix}")
        merger.add(str(path), report)
    for index in sorted(lost):
        job = folder.job(index, plan)
        merger.add_lost(f"job {index}", job.part.of_cases(job.cases), lost[index])
    merger.add_missing(plan.missing)
    for host, why in folder.aside():
        merger.set_aside(host, why)
    if len(lost) == plan.jobs:
        why = next(iter(lost.values()))
        raise JobError(f"none of the {plan.jobs} jobs has a report: {why}")
    return merger.finish()


# Run a fleet: submit its jobs, follow them, repeat lost ones, and merge their reports


ATTEMPTS = 3
"""Attempts of a job. A machine is lost now and then, and a job that fails three times fails by itself."""
WINDOW = 2000
"""Jobs in the engine's queue at once. Slurm's default limit is 10,000 for all users."""
AWAY = 1800.0
"""Seconds that an engine may not answer, such as during a restart of its controller."""
POLL = 2.0
"""Seconds between two polls. A job takes minutes, and a controller of Slurm serves other users too."""
_SOON = 5
"""Refusals by machines that were set aside which count as an attempt. With no other machine, the fleet then ends."""


@dataclass
class Status:
    """How far a fleet is."""

    jobs: int
    cases: int
    done: int = 0
    """Jobs with a complete report."""
    running: int = 0
    lost: dict[int, str] = field(default_factory=dict)
    """Jobs without a report after all attempts -> why."""
    aside: dict[str, str] = field(default_factory=dict)
    """Machines that were set aside -> why."""
    cases_done: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds_done: float = 0.0
    """Expected machine time of the done jobs, in seconds."""
    seconds: float = 0.0
    """The same of all jobs."""
    note: str = ""
    """What is wrong now, ``""`` if nothing is."""


class Fleet:
    """Runs the jobs of a folder that have no report yet. ``tell`` is called with the status after each poll."""

    def __init__(
        self,
        folder: FleetFolder,
        engine: Engine,
        tell: Callable[[Status], None] = lambda status: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        plan = self._plan = folder.plan()
        self._folder, self._engine, self._tell, self._sleep, self._clock = folder, engine, tell, sleep, clock
        self.status = Status(plan.jobs, plan.cases, seconds=plan.seconds)
        self._waiting: deque[int] = deque()
        self._submitted: set[int] = set()
        self._before: dict[int, int] = {}
        """Job -> number of the events of its attempts when it was submitted."""
        self._tried: Counter[int] = Counter()
        """Job -> attempts, in parts of `_SOON`."""

    def run(self) -> Status:
        """Run until each job has a report or is lost.

        Raises:
            EngineError: The engine refuses the jobs, or has not answered for `AWAY` seconds.
            JobError: A job was edited, or its report is damaged or another job's. Nothing was submitted.
            KeyboardInterrupt: The user pressed Ctrl-C. The jobs were cancelled.
        """
        for index in range(1, self.status.jobs + 1):
            job = self._folder.job(index, self._plan)  # an edited one is refused before anything is measured
            if report := kept_report(job, self._folder.report(index)):
                self._count(job, report)
            else:
                self._waiting.append(index)
        away = self._clock()
        try:
            while self._waiting or self._submitted:
                try:
                    self._step()
                    away, self.status.note = self._clock(), ""
                except EngineAway as error:
                    self.status.note = f"{error}; trying again"
                    if self._clock() - away > AWAY:
                        fix = f"tfbench fleet run --resume {self._folder.path} goes on"
                        raise EngineError(f"{error}, for {AWAY / 60:.0f} minutes; {fix}") from None
                self._tell(self.status)
                if self._waiting or self._submitted:
                    self._sleep(POLL)
        except BaseException:  # also a wrong plan: no job may go on unnoticed
            with suppress(EngineError):
                self._engine.cancel()
            raise
        return self.status

    def _step(self) -> None:
        self._avoid()
        if room := WINDOW - len(self._submitted):
            chosen = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            if chosen:
                try:
                    self._engine.submit([self._submission(index) for index in chosen], list(self.status.aside))
                except EngineError:
                    self._waiting.extendleft(reversed(chosen))
                    raise
                self._submitted.update(chosen)
        states = self._engine.poll()
        self.status.running = sum(1 for state in states.values() if state is State.RUNNING)
        ended = [index for index in sorted(self._submitted) if states.get(index, State.ENDED) is State.ENDED]
        for index in ended:
            self._submitted.discard(index)
            self._end(index)
        self._avoid()

    def _avoid(self) -> None:
        """Tell the engine which machines were set aside."""
        if new := {host: why for host, why in self._folder.aside() if host not in self.status.aside}:
            self.status.aside.update(new)
            self._tell(self.status)  # the engine may have no other
            self._engine.avoid(list(self.status.aside))

    def _submission(self, index: int) -> Submission:
        self._before[index] = len(self._folder.attempts(index))
        return Submission(index, self._folder.job_file(index).absolute(), self._folder.log(index).absolute())

    def _end(self, index: int) -> None:
        """Take the report of a job that its engine has ended, or give it to the engine again."""
        why = ""
        try:
            job = self._folder.job(index, self._plan)
            if report := self._report(job):
                self._count(job, report)
                return
        except (JobError, ReportError) as error:
            why = str(error)
        new = self._folder.attempts(index)[self._before[index] :]  # an earlier fleet may have left others
        last = new[-1] if new else {}
        # A job whose machine was not fit has not been tried.
        self._tried[index] += 1 if last.get("event") == "aside" else _SOON
        if self._tried[index] < ATTEMPTS * _SOON:
            self._waiting.append(index)
            return
        reason = why or brief(last.get("reason") or f"no process of it came to its end in {ATTEMPTS} attempts")
        self.status.lost[index] = f"job {index} was lost: {reason}; its output is in {self._folder.log(index)}"

    def _report(self, job: Job) -> Report | None:
        """Return the report of a job, ``None`` without one. Another file in its place gets another name."""
        path = self._folder.report(job.index)
        try:
            return read_report(job, path)
        except JobError as error:
            kept = path.with_suffix(".refused")
            path.replace(kept)
            raise JobError(f"{error}; it is {kept} now") from None

    def _count(self, job: Job, report: Report) -> None:
        self.status.done += 1
        self.status.cases_done += len(job.cases)
        self.status.seconds_done += job.seconds
        self.status.outcomes.update(str(row.outcome) for row in report.verdicts if row.metric == TIME)


def seconds_left(status: Status, slots: int, elapsed: float, done_before: float) -> float | None:
    """Estimate the seconds left, from the speed since the fleet started; ``None`` until a job is done.

    ``done_before`` is the expected machine time of the jobs that were done when it started.
    """
    done = status.seconds_done - done_before
    left = status.seconds - status.seconds_done
    return elapsed * left / done if done > 0 else left / slots if slots else None


def failed_logs(folder: FleetFolder, status: Status) -> list[str]:
    """Return the last five lines of the logs of lost jobs, at most of three jobs."""
    output = []
    for index in sorted(status.lost)[:3]:
        with suppress(OSError), folder.log(index).open("rb") as log:
            output += [f"job {index}: {line}" for line in tail(log).splitlines()[-5:]]
    return output
