"""Bisect a row of versions or commits for one case: its points, its races and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tfbench.model import Case, Outcome, Ratio


class Point(NamedTuple):
    """A version or a commit."""

    label: str
    spec: str
    about: str = ""
    """The subject of a commit."""


class Search:
    """A binary search in points 0 to ``count`` - 1, where the first is good and the last is bad.

    It asks for each point at most once, and for at most ceil(log2(n - 1)) of n points if all can be judged.
    """

    def __init__(self, count: int) -> None:
        self.good = 0
        """The last point known to be good."""
        self.bad = count - 1
        """The first point known to be bad."""
        self._unknown: set[int] = set()

    @property
    def next(self) -> int | None:
        """The point to race next, or ``None`` at the end of the search."""
        left = [point for point in range(self.good + 1, self.bad) if point not in self._unknown]
        return left[len(left) // 2] if left else None

    def tell(self, point: int, bad: bool | None) -> None:
        """Narrow the search by the result of a point, ``None`` if it could not be judged."""
        if bad is None:
            self._unknown.add(point)
        elif bad:
            self.bad = min(self.bad, point)
        else:
            self.good = max(self.good, point)

    @property
    def suspects(self) -> range:
        """The points that can be the first bad one: exactly one if the point before it could be judged."""
        return range(self.good + 1, self.bad + 1)


def max_steps(count: int) -> int:
    """Return the most points that a search of ``count`` points asks for, if all can be judged."""
    return max(0, count - 2).bit_length()


@dataclass(frozen=True)
class BisectStep:
    """The result of racing a case at one point against the good end."""

    point: int
    outcome: Outcome | None
    """``None`` if the case cannot run there."""
    reason: str
    ratio: Ratio | None = None
    launches: int = 0
    seconds: float = 0.0
    again: bool = False
    """Whether this is the second race, with more launches, after an inconclusive first one."""

    @property
    def bad(self) -> bool | None:
        """Whether the point is slower than the good end; ``None`` if the race does not show it."""
        shown = {Outcome.REGRESSED: True, Outcome.UNCHANGED: False, Outcome.IMPROVED: False}
        return shown.get(self.outcome) if self.outcome else None


@dataclass
class BisectResult:
    """The races of a case in time order, and the state of its search."""

    case: Case
    search: Search
    steps: list[BisectStep] = field(default_factory=list)
    """The first step races the bad end."""
    word: str = "slower"
    """What a bad point is called."""
    failure: str = ""
    """Why the good end cannot run the case, which ends the search."""

    def add(self, step: BisectStep) -> None:
        """Record a race and narrow the search by it."""
        if self.steps:
            self.search.tell(step.point, step.bad)
        self.steps.append(step)

    @property
    def bad_end(self) -> BisectStep | None:
        """The race of the bad end."""
        return self.steps[0] if self.steps else None

    @property
    def is_slower(self) -> bool | None:
        """Whether the bad end is slower; ``None`` if its race does not show it."""
        return self.bad_end.bad if self.bad_end else None

    @property
    def next(self) -> int | None:
        """The point to race next, or ``None`` if the search is over or pointless."""
        return self.search.next if self.is_slower and not self.failure else None

    @property
    def first_bad(self) -> int | None:
        """The first bad point, ``None`` unless exactly one suspect is left."""
        suspects = self.search.suspects
        return suspects[0] if self.is_slower and self.search.next is None and len(suspects) == 1 else None

    @property
    def found(self) -> BisectStep | None:
        """The race of the first bad point."""
        return next((step for step in self.steps if step.point == self.first_bad), None)

    @property
    def is_answered(self) -> bool:
        """Whether the case is not slower, or its first bad point is known."""
        return self.is_slower is False or self.first_bad is not None
