"""Bisect cases: race the good end against points in between until two neighbours differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tfbench.errors import SideError, TfbenchError
from tfbench.model import Case, Outcome
from tfbench.policy import Policy
from tfbench.sides.side import Side
from tfbench.versions.difference import Difference
from tfbench.versions.search import BisectResult, BisectStep, Point, Search

Compare = Callable[[Case, Side, Side, Policy], Difference]
"""Compares a case on two sides, the good one first. Raises `SideError` if a process does not start."""


@dataclass(frozen=True)
class Bisection:
    """Race cases at points, in waves: all cases whose next point is the same race while its side exists."""

    points: Sequence[Point]
    """In order, the good end first and the bad end last."""
    make: Callable[[Point], Side]
    """Creates a point's side. Raises `SideError` if it cannot."""
    compare: Compare
    release: Callable[[Side], None]
    """Called with a side that is no longer needed."""
    policy: Policy
    word: str = "slower"
    """What a bad point is called, ``worse`` for metrics that are no durations."""
    progress: Callable[[str], None] = lambda text: None
    """Called with the current activity."""

    def run(self, cases: Iterable[Case]) -> list[BisectResult]:
        """Return the result of each case. A case that is not slower at the bad end has one step.

        Raises `SideError` if the good or the bad end cannot be created.
        """
        good = self.make(self.points[0])
        results = [BisectResult(case, Search(len(self.points)), word=self.word) for case in cases]
        self._wave(results, len(self.points) - 1, good, self.make(self.points[-1]))
        while wave := sorted({point for result in results if (point := result.next) is not None}):
            for point in wave:
                wanting = [result for result in results if result.next == point]
                try:
                    side = self.make(self.points[point])
                except SideError as error:
                    for result in wanting:
                        result.add(BisectStep(point, None, _headline(error)))
                else:
                    self._wave(wanting, point, good, side)
        self.release(good)
        return results

    def _wave(self, results: Sequence[BisectResult], point: int, good: Side, side: Side) -> None:
        label = self.points[point].label
        for number, result in enumerate(results):
            self.progress(f"{label}: {result.case.short_name} ({number}/{len(results)})")
            step = self._race(result, point, good, side, self.policy)
            if step.outcome is Outcome.INCONCLUSIVE:
                self.progress(f"{label}: once more, with more launches")
                step = replace(self._race(result, point, good, side, self.policy.patient()), again=True)
            result.add(step)
        self.release(side)

    def _race(self, result: BisectResult, point: int, good: Side, side: Side, policy: Policy) -> BisectStep:
        try:
            found = self.compare(result.case, good, side, policy)
        except SideError as error:
            return BisectStep(point, None, _headline(error))
        if failure := found.failures.get(1):
            return BisectStep(point, None, _headline(failure))
        if failure := found.failures.get(0):
            result.failure = f"the good end cannot run it: {_headline(failure)}"
            return BisectStep(point, None, result.failure)
        return BisectStep(point, found.outcome, found.reason, found.ratio, found.launches, found.seconds)


def _headline(error: TfbenchError) -> str:
    return str(error).partition("\n")[0]
