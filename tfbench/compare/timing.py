"""Immutable types: the times of a case in a result file, and their comparison between two files."""

from __future__ import annotations

from dataclasses import dataclass

from tfbench.model import JSON, Ratio, Reason


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a case in a result file, in seconds per iteration."""

    case: str
    median: float
    rounds: int
    launches: tuple[tuple[float, ...], ...] = ()
    """The rounds of each process; empty if the file has no raw times."""


@dataclass(frozen=True, slots=True)
class FileComparison:
    """One case in two result files; if there is no ``interval``, the reason says why."""

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
