"""What finished result files know of times, and of a case in two of them; frozen like the types of `model`."""

from __future__ import annotations

from dataclasses import dataclass

from tfbench.model import JSON, Ratio, Reason


@dataclass(frozen=True, slots=True)
class Timing:
    """What a result file knows of how long a case takes; seconds of one iteration."""

    case: str
    median: float
    rounds: int
    launches: tuple[tuple[float, ...], ...] = ()
    """Round by round, for each process; empty where the file has no raw times."""


@dataclass(frozen=True, slots=True)
class FileComparison:
    """One case in two result files; ``interval`` is ``None`` where there can be none, and the reason says why."""

    case: str
    first: Timing | None
    second: Timing | None
    reason: Reason
    ratio: float | None = None
    interval: Ratio | None = None

    def as_json(self) -> JSON:
        return {
            "case": self.case,
            "first_median_seconds": None if self.first is None else self.first.median,
            "second_median_seconds": None if self.second is None else self.second.median,
            "ratio": self.ratio,
            "interval": None if self.interval is None else self.interval.as_json(),
            "reason": self.reason.as_json(),
        }
