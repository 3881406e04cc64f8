"""Since when a case is slower: it races between the good end and points in between until two neighbours are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfbench.errors import SideError, TfbenchError
from tfbench.model import TIME, Case, Outcome
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace
from tfbench.sides.side import Side
from tfbench.stats.verdict import Decision
from tfbench.versions.search import BisectResult, BisectStep, Point, Search

SideRacer = Callable[[Case, Side, Side, Policy], ConfirmedRace]
"""Races a case on two sides, to its end."""


class Bisection:
    """Races cases between points, wave by wave: all cases that want a point next race while its side is there.

    Args:
        points: In order, the good end first, the bad one last.
        make: A point's side; raises `SideError` where it cannot be made.
        race_sides: Races a case on two sides.
        release: Called with a side that is no longer needed.
        metric: What is bisected, `TIME` or ``first_call``.
        progress: Told what is being done.
    """

    def __init__(
        self,
        points: Sequence[Point],
        make: Callable[[Point], Side],
        race_sides: SideRacer,
        release: Callable[[Side], None],
        policy: Policy,
        metric: str = TIME,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.points = points
        self._make = make
        self._race_sides = race_sides
        self._release = release
        self._policy = policy
        self._metric = metric
        self._progress = progress

    def run(self, cases: Iterable[Case]) -> list[BisectResult]:
        """The result of each case; those that are not slower at the bad end have one step.

        Raises:
            SideError: One of the two ends cannot be made.
        """
        good = self._make(self.points[0])
        results = [BisectResult(case, Search(len(self.points))) for case in cases]
        last = len(self.points) - 1
        self._wave(results, last, good, self._make(self.points[last]))
        while wanted := self._wanted(results):
            for point in sorted(wanted):
                try:
                    side = self._make(self.points[point])
                except SideError as error:
                    for result in wanted[point]:
                        self._note(result, BisectStep(point, None, _headline(error)))
                    continue
                self._wave(wanted[point], point, good, side)
        self._release(good)
        return results

    def _wanted(self, results: Sequence[BisectResult]) -> dict[int, list[BisectResult]]:
        """By point, the cases that want it next."""
        found: dict[int, list[BisectResult]] = {}
        for result in results:
            if result.is_slower and not result.failure and (point := result.search.next) is not None:
                found.setdefault(point, []).append(result)
        return found

    def _wave(self, results: Sequence[BisectResult], point: int, good: Side, side: Side) -> None:
        for number, result in enumerate(results):
            self._progress(
                f"{self.points[point].label}: {result.case.name.rpartition('::')[2]} ({number}/{len(results)})"
            )
            self._note(result, self._step(result, point, good, side))
        self._release(side)

    @staticmethod
    def _note(result: BisectResult, step: BisectStep) -> None:
        result.steps.append(step)
        if step.point < result.search.bad:  # the bad end is where the search starts from
            result.search.tell(step.point, step.bad)

    def _step(self, result: BisectResult, point: int, good: Side, side: Side) -> BisectStep:
        step = self._raced(result, point, good, side, self._policy)
        if step.outcome is Outcome.INCONCLUSIVE:
            self._progress(f"{self.points[point].label}: once more, with more launches")
            step = self._raced(result, point, good, side, self._policy.patient())
        return step

    def _raced(self, result: BisectResult, point: int, good: Side, side: Side, policy: Policy) -> BisectStep:
        again = policy != self._policy
        try:
            confirmed_race = self._race_sides(result.case, good, side, policy)
        except SideError as error:
            return BisectStep(point, None, _headline(error), again=again)
        if failure := confirmed_race.failures.get(1):
            return BisectStep(point, None, _headline(failure), again=again)
        if failure := confirmed_race.failures.get(0):
            result.failure = f"the good end cannot run it: {_headline(failure)}"
            return BisectStep(point, None, result.failure, again=again)
        if confirmed_race.abort_reason:
            return BisectStep(point, None, f"disturbed: {confirmed_race.abort_reason}", again=again)
        decision = self._decision(confirmed_race)
        if decision is None or decision.outcome is None:
            return BisectStep(point, None, f"no {self._metric} was measured", again=again)
        return BisectStep(
            point, decision.outcome, decision.reason.message, decision.comparison.ratio,
            confirmed_race.launches, confirmed_race.wall_seconds, again,
        )  # fmt: skip

    def _decision(self, confirmed_race: ConfirmedRace) -> Decision | None:
        return confirmed_race.decision if self._metric == TIME else confirmed_race.first_call


def _headline(error: TfbenchError) -> str:
    return str(error).partition("\n")[0]
