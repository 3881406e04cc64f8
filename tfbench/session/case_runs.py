"""Take each case of a run from pending to finished, its errors included; and cases in lanes, ahead of their tests."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from tfbench.model import Case
from tfbench.race.lanes import Lanes, Processors
from tfbench.race.launch import Clock, Entrant
from tfbench.race.process_launcher import Environment, ProcessLauncher
from tfbench.race.timer import timer
from tfbench.session.races import RaceResults
from tfbench.session.request import CaseResult, ProgressReporter, RunRequest
from tfbench.session.results import broken, not_measured, with_failure
from tfbench.session.resume import Journal
from tfbench.session.strategies import Strategy
from tfbench.sides.spec import Side

# Take each case of a run from pending to finished, whatever fails on the way


Step = Callable[[CaseResult, Sequence[Case]], CaseResult]
"""Adds to the result of a raced case; the second argument holds the measured cases of its group."""


@dataclass
class _CaseRun:
    case: Case
    group: list[_CaseRun]
    result: CaseResult | None = None
    """There once its verdict on time is final."""
    finished: bool = False
    """Whether its other metrics and its profiles are final too, or it was skipped."""


class CaseRuns:
    """The cases of a run with their states and results.

    Args:
        cases: All cases of the run; results follow their order, except that groups stay together.
        skips: Name of a case -> why it cannot run here.
        steps: What completes a raced case, in order; the keys name the rows that report a failed step.
        journal: Keeps each finished result. Those of an interrupted run are used if the whole group has one.
        keep_only: Called with the environments of the unfinished cases whenever an environment has none left.
        clock: Counts the seconds that cases cost.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        skips: Mapping[str, str],
        strategy: Strategy,
        steps: Mapping[str, Step],
        report: ProgressReporter,
        journal: Journal,
        keep_only: Callable[[Collection[Environment]], None] = lambda environments: None,
        clock: Clock = lambda: 0.0,
    ) -> None:
        self._strategy = strategy
        self._steps = steps
        self._report = report
        self._keep_only = keep_only
        self._clock = clock
        self._journal = journal
        self.interrupted = False
        """Whether the user pressed Ctrl-C."""
        self.seconds: dict[str, float] = defaultdict(float)
        """Name of a measured case -> what it has cost in this run. Cases of a group share what they need together."""
        groups: dict[str, list[_CaseRun]] = {}
        for case in cases:
            group = groups.setdefault(case.name if case.name in skips else strategy.group_of(case), [])
            group.append(_CaseRun(case, group))
        self._runs = {run.case.name: run for group in groups.values() for run in group}
        self._lock = threading.Lock()
        for name, reason in skips.items():
            run = self._runs[name]
            run.result, run.finished = strategy.skipped(run.case, reason), True
        for group in groups.values():
            if all(run.case.name in journal.earlier for run in group):
                for run in group:
                    run.result, run.finished = journal.earlier[run.case.name], True
        report.done = len(self.final)
        self._unfinished = Counter(run.case.env for run in self._runs.values() if not run.finished)

    @property
    def groups(self) -> list[tuple[Case, ...]]:
        """The groups of cases that are measured together, and have not been measured."""
        firsts = [run for run in self._runs.values() if run is run.group[0]]
        return [tuple(member.case for member in run.group) for run in firsts if not run.finished]

    @property
    def final(self) -> list[CaseResult]:
        """The results of all cases whose verdict on time is final."""
        return [run.result for run in self._runs.values() if run.result is not None]

    @property
    def all(self) -> list[CaseResult]:
        """A result for each case of the run: a case without a final verdict on time is an error."""
        return [run.result or not_measured(run.case) for run in self._runs.values()]

    def skip(self, case: Case, reason: str) -> None:
        """Note that pytest skipped a case before it was measured; a final result stays."""
        if self._runs[case.name].result is not None:
            return
        try:
            result = self._strategy.skipped_by_mark(case, reason)
        except Exception as error:
            result = broken(case, error)
        self._advance(self._runs[case.name], result, finished=True)

    def fail(self, case: Case, why: str) -> None:
        """Note that pytest ended a case before it was measured; a final result stays."""
        if self._runs[case.name].result is None:
            self._advance(self._runs[case.name], not_measured(case, why), finished=True)

    def result(self, case: Case) -> CaseResult:
        """Return the result of this case; measures it if that has not happened yet.

        A failure becomes a verdict `error` and keeps everything known before it.
        Raises `KeyboardInterrupt` after Ctrl-C; partial results are kept.
        """
        run = self._runs[case.name]
        with self.noting_interrupts():
            if run.result is None:
                with self._paid_by(run.group):
                    self._race(run)
            if not run.finished:
                with self._paid_by(run.group):  # the first of them probes all
                    self._finish(run)
        assert run.result is not None
        return run.result

    @contextmanager
    def noting_interrupts(self) -> Iterator[None]:
        """Note that the user pressed Ctrl-C in this block, and pass it on."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    @contextmanager
    def _paid_by(self, runs: Sequence[_CaseRun]) -> Iterator[None]:
        """Divide the seconds until the block ends equally among these cases."""
        began = self._clock()
        try:
            yield
        finally:
            share = (self._clock() - began) / len(runs)
            for run in runs:
                self.seconds[run.case.name] += share

    def _race(self, run: _CaseRun) -> None:
        pending = [member.case for member in run.group if member.result is None]  # pytest may have skipped some
        try:
            raced = self._strategy.race(run.case, pending)
        except Exception as error:
            raced = RaceResults([broken(case, error) for case in pending])
        for result in raced.settled:
            known = result if result.verdict else self._strategy.skipped(result.case, result.skip)
            self._advance(self._runs[result.case.name], known)
        if raced.interrupt is not None:
            raise raced.interrupt

    def _finish(self, run: _CaseRun) -> None:
        measured = [member.case for member in run.group if member.result and member.result.sample is not None]
        for metric, step in self._steps.items():
            assert run.result is not None
            try:
                run.result = step(run.result, measured)
            except Exception as error:
                run.result = with_failure(run.result, metric, error)
                break
        assert run.result is not None
        with self._lock:
            self._journal.keep(run.result)
        self._advance(run, run.result, finished=True)

    def _advance(self, run: _CaseRun, result: CaseResult, finished: bool = False) -> None:
        """Set the result of a case. Counting all cases here would make long runs quadratic."""
        with self._lock:
            self._report.done += run.result is None
            run.result, run.finished = result, finished
            if finished:
                env = run.case.env
                self._unfinished[env] -= 1
                if not self._unfinished[env]:
                    del self._unfinished[env]
                    self._keep_only(self._unfinished.keys())


# Measure cases in lanes, ahead of the tests that ask for them


Group = tuple[Case, ...]


class CaseLanes:
    """The results of the cases of a run, which several lanes measure at the same time if the request has them."""

    def __init__(self, request: RunRequest, runs: CaseRuns, launcher: ProcessLauncher, contender: Side) -> None:
        self._request = request
        self._runs = runs
        self._launcher = launcher
        self._contender = contender
        self._opened: Lanes[Group] | None = None

    def result(self, case: Case) -> CaseResult:
        """Return the result of this case, see `CaseRuns.result`. The first call starts the lanes.

        Raises `KeyboardInterrupt` after Ctrl-C. The races of all lanes have ended, and partial results are kept.
        """
        try:
            with self._runs.noting_interrupts():
                if len(self._request.lane_processors) > 1 and (group := self._groups.get(case.name)):
                    self._open().wait_for(group)
            return self._runs.result(case)
        except KeyboardInterrupt:
            self.close()
            raise

    @cached_property
    def _groups(self) -> dict[str, Group]:
        """Name of a case -> its group."""
        return {case.name: group for group in self._runs.groups for case in group}

    def _open(self) -> Lanes[Group]:
        if self._opened is None:
            timer()  # watched once, while nothing runs
            groups, request = list(dict.fromkeys(self._groups.values())), self._request
            waiting = self._launcher.stopwatch.waiting
            self._opened = Lanes(
                groups, request.lane_processors, self._measure, self._apart, request.lanes_ahead, waiting
            )
        return self._opened

    def _measure(self, group: Group, lane: Processors) -> None:
        with self._launcher.on(lane):
            for case in group:
                self._runs.result(case)

    def _apart(self, group: Group) -> bool:
        """Whether a group needs the machine for itself, or may not be measured at all."""
        narrowest = min(len(lane.every) for lane in self._request.lane_processors)
        return any(
            case.cpus not in range(1, narrowest + 1)
            or case.alone
            or case.name in self._request.uncertain
            or self._launcher.on_gpu([Entrant(case, self._contender)])
            for case in group
        )

    def finish(self) -> None:
        """Have lanes finish their present races and begin no others, as after ``-x``."""
        if self._opened is not None:
            self._opened.close()

    def close(self) -> None:
        """End the races of all lanes at once. Finished cases keep their results."""
        if self._opened is not None:
            self._launcher.stop()
            self._opened.close()
