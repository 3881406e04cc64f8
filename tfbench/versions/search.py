"""A case's way to the first bad one of a row of versions or commits: halving what lies between good and bad."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfbench.model import Case, Outcome, Ratio


@dataclass(frozen=True)
class Point:
    """A version or a commit."""

    label: str
    spec: str
    about: str = ""
    """What else is to be told of it: the subject of a commit."""


class Search:
    """Points 0 to ``count`` - 1, the first good and the last bad; every other one is asked about at most once.

    Of n points, at most ceil(log2(n - 1)) are asked about, if each can be judged.
    """

    def __init__(self, count: int) -> None:
        self.good = 0
        """The last that is known to be good."""
        self.bad = count - 1
        """The first that is known to be bad."""
        self._unknown: set[int] = set()

    @property
    def next(self) -> int | None:
        """The point to ask about, ``None`` if there is none left."""
        left = [point for point in range(self.good + 1, self.bad) if point not in self._unknown]
        return left[len(left) // 2] if left else None

    def tell(self, point: int, bad: bool | None) -> None:
        """What a point turned out to be; ``None`` if it could not be judged."""
        if bad is None:
            self._unknown.add(point)
        elif bad:
            self.bad = min(self.bad, point)
        else:
            self.good = max(self.good, point)

    @property
    def suspects(self) -> range:
        """The points of which one is the first bad one: a single one, if those before it could be judged."""
        return range(self.good + 1, self.bad + 1)


def max_steps(count: int) -> int:
    """How many points are asked about at most, if each can be judged."""
    return max(0, count - 2).bit_length()


@dataclass(frozen=True)
class BisectStep:
    """What one race of a case said of one point."""

    point: int
    outcome: Outcome | None
    """``None`` where the case cannot be run."""
    reason: str
    ratio: Ratio | None = None
    launches: int = 0
    seconds: float = 0.0
    again: bool = False
    """Whether it was raced once more, with more launches, as it was inconclusive."""

    @property
    def bad(self) -> bool | None:
        """Whether the point is slower; ``None`` if that is open."""
        if self.outcome in (Outcome.UNCHANGED, Outcome.IMPROVED):
            return False
        return True if self.outcome is Outcome.REGRESSED else None


@dataclass
class BisectResult:
    """A case's way to its answer."""

    case: Case
    search: Search
    steps: list[BisectStep] = field(default_factory=list)
    failure: str = ""
    """Why there is no answer, where the good end cannot run the case."""

    @property
    def last(self) -> BisectStep | None:
        """The race of the bad end."""
        return self.steps[0] if self.steps else None

    @property
    def is_slower(self) -> bool | None:
        """Whether the bad end is slower at all; ``None`` if that is open."""
        return self.last.bad if self.last else None

    @property
    def first_bad(self) -> int | None:
        """The first bad point, if it is known which it is."""
        suspects = self.search.suspects
        return suspects[0] if self.is_slower and self.search.next is None and len(suspects) == 1 else None

    @property
    def is_answered(self) -> bool:
        """Whether nothing is left open."""
        return self.is_slower is False or self.first_bad is not None

    def step_of(self, point: int) -> BisectStep | None:
        """What was said of a point."""
        return next((step for step in self.steps if step.point == point), None)
