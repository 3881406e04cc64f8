"""Since when a case is slower: it races between the good end and points in between until two neighbours are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tfbench.errors import SideError, TfbenchError
from tfbench.model import TIME, Case, Outcome
from tfbench.policy import Policy
from tfbench.race.confirmed import Contest
from tfbench.sides.side import Side
from tfbench.stats.verdict import Decision
from tfbench.versions.search import Point, Search, Step, Trail

Contender = Callable[[Case, Side, Side, Policy], Contest]
"""A contest of a case between two sides, run to its end."""


class Bisection:
    """Races cases between points, wave by wave: all cases that want a point next race while its side is there.

    Args:
        points: In order, the good end first, the bad one last.
        make: A point's side; raises `SideError` where it cannot be made.
        contest: Races a case on two sides.
        release: Called with a side that is no longer needed.
        metric: What is bisected, `TIME` or ``first_call``.
        progress: Told what is being done.
    """

    def __init__(
        self,
        points: Sequence[Point],
        make: Callable[[Point], Side],
        contest: Contender,
        release: Callable[[Side], None],
        policy: Policy,
        metric: str = TIME,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.points = points
        self._make = make
        self._contest = contest
        self._release = release
        self._policy = policy
        self._metric = metric
        self._progress = progress

    def run(self, cases: Iterable[Case]) -> list[Trail]:
        """The trail of each case; those that are not slower at the bad end have one step.

        Raises:
            SideError: One of the two ends cannot be made.
        """
        good = self._make(self.points[0])
        trails = [Trail(case, Search(len(self.points))) for case in cases]
        last = len(self.points) - 1
        self._wave(trails, last, good, self._make(self.points[last]))
        while wanted := self._wanted(trails):
            for point in sorted(wanted):
                try:
                    side = self._make(self.points[point])
                except SideError as error:
                    for trail in wanted[point]:
                        self._note(trail, Step(point, None, _headline(error)))
                    continue
                self._wave(wanted[point], point, good, side)
        self._release(good)
        return trails

    def _wanted(self, trails: Sequence[Trail]) -> dict[int, list[Trail]]:
        """By point, the cases that want it next."""
        found: dict[int, list[Trail]] = {}
        for trail in trails:
            if trail.is_slower and not trail.failure and (point := trail.search.next) is not None:
                found.setdefault(point, []).append(trail)
        return found

    def _wave(self, trails: Sequence[Trail], point: int, good: Side, side: Side) -> None:
        for number, trail in enumerate(trails):
            self._progress(
                f"{self.points[point].label}: {trail.case.name.rpartition('::')[2]} ({number}/{len(trails)})"
            )
            self._note(trail, self._step(trail, point, good, side))
        self._release(side)

    @staticmethod
    def _note(trail: Trail, step: Step) -> None:
        trail.steps.append(step)
        if step.point < trail.search.bad:  # the bad end is where the search starts from
            trail.search.tell(step.point, step.bad)

    def _step(self, trail: Trail, point: int, good: Side, side: Side) -> Step:
        step = self._raced(trail, point, good, side, self._policy)
        if step.outcome is Outcome.INCONCLUSIVE:
            self._progress(f"{self.points[point].label}: once more, with more launches")
            step = self._raced(trail, point, good, side, self._policy.patient())
        return step

    def _raced(self, trail: Trail, point: int, good: Side, side: Side, policy: Policy) -> Step:
        again = policy != self._policy
        try:
            contest = self._contest(trail.case, good, side, policy)
        except SideError as error:
            return Step(point, None, _headline(error), again=again)
        if failure := contest.failures.get(1):
            return Step(point, None, _headline(failure), again=again)
        if failure := contest.failures.get(0):
            trail.failure = f"the good end cannot run it: {_headline(failure)}"
            return Step(point, None, trail.failure, again=again)
        if contest.spoiled:
            return Step(point, None, f"disturbed: {contest.spoiled}", again=again)
        decision = self._decision(contest)
        if decision is None or decision.outcome is None:
            return Step(point, None, f"no {self._metric} was measured", again=again)
        return Step(
            point, decision.outcome, decision.reason.message, decision.comparison.ratio,
            contest.launches, contest.wall_seconds, again,
        )  # fmt: skip

    def _decision(self, contest: Contest) -> Decision | None:
        return contest.decision if self._metric == TIME else contest.first_call


def _headline(error: TfbenchError) -> str:
    return str(error).partition("\n")[0]
