"""Measure the cases of a run in lanes, ahead of the tests that ask for them."""

from __future__ import annotations

from functools import cached_property

from tfbench.gpus.selection import has_driver
from tfbench.model import Case
from tfbench.race.lanes import Lanes
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.race.timer import timer
from tfbench.session.case_runs import CaseRuns
from tfbench.session.request import CaseResult, RunRequest

Group = tuple[Case, ...]


class CaseLanes:
    """The results of the cases of a run, which several lanes measure at the same time if the request has them."""

    def __init__(self, request: RunRequest, runs: CaseRuns, launcher: ProcessLauncher) -> None:
        self._request = request
        self._runs = runs
        self._launcher = launcher
        self._opened: Lanes[Group] | None = None

    def result(self, case: Case) -> CaseResult:
        """Return the result of this case, see `CaseRuns.result`. The first call starts the lanes.

        Raises:
            KeyboardInterrupt: The user pressed Ctrl-C. The races of all lanes have ended, and partial results are kept.
        """
        try:
            with self._runs.noting_interrupts():
                if len(self._request.lanes) > 1 and (group := self._groups.get(case.name)):
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
            self._opened = Lanes(groups, request.lanes, self._measure, self._apart, request.lanes_ahead, waiting)
        return self._opened

    def _measure(self, group: Group, lane: Processors) -> None:
        with self._launcher.on(lane):
            for case in group:
                self._runs.result(case)

    def _apart(self, group: Group) -> bool:
        """Whether a group needs the machine for itself, or may not be measured at all."""
        return any(
            case.cpus == "all"
            or case.alone
            or case.name in self._request.uncertain
            or (has_driver() and case.levels.get("device") != "cpu")
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
