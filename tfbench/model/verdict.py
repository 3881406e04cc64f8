"""Verdicts: results of comparisons, with their outcomes and reasons."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfbench.model.case import JSON, TIME, Case
from tfbench.model.measurement import Calls, Ratio
from tfbench.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ratio of contender to baseline after the launches so far."""

    ratio: Ratio
    launches: int
    pairs: int
    rounds: int


class Outcome(str, enum.Enum):
    """The eight verdicts."""

    UNCHANGED = "unchanged"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NEW = "new"
    MISSING = "missing"
    ERROR = "error"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the report."""

    case: Case
    outcome: Outcome
    reason: Reason
    metric: str = TIME
    ratio: Ratio | None = None
    launches: int = 0
    rounds: int = 0
    wall_seconds: float = 0.0
    values: tuple[float | None, float | None] | None = None
    """The metric's values of baseline and contender. Times have none, because they are ratios."""
    unit: str = ""
    rates: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Of a verdict on time: unit of a throughput -> that of baseline and contender, see `tfbench.stats.rounds`."""
    calls: tuple[Calls, Calls] | None = None
    """Of a verdict on time after a live race: the calls of baseline and contender."""
    tail: Ratio | None = None
    """Of the same: the ratio of the geometric means of the calls; ``None`` where the tail is not judged."""

    def as_json(self) -> JSON:
        """Return the row of ``tfbench-report/1``."""
        before, now = self.values or (None, None)
        values: JSON = {"values": {"baseline": before, "contender": now, "unit": self.unit}} if self.values else {}
        if self.metric == TIME and self.case.thresholds:
            values["thresholds"] = dict(self.case.thresholds)
        if self.calls:
            before_calls, now_calls = self.calls
            values["calls"] = {
                "baseline": before_calls.as_json(),
                "contender": now_calls.as_json(),
                "geometric_mean": None if self.tail is None else self.tail.as_json(),
            }
        if self.rates:
            values["throughput"] = {
                unit: {"baseline": then, "contender": later} for unit, (then, later) in self.rates.items()
            }
        return {
            "case": self.case.name,
            "workload": self.case.workload,
            "variant": self.case.levels,
            "metric": self.metric,
            "outcome": self.outcome.value,
            "reason": self.reason.as_json(),
            "ratio": None if self.ratio is None else self.ratio.as_json(),
            "launches": self.launches,
            "rounds": self.rounds,
            "wall_seconds": round(self.wall_seconds, 3),
            **values,
        }


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The time of a variant compared with the reference variant of its workload, in one run."""

    case: Case
    reference: str
    """Name of the reference case, which can be this case."""
    median_seconds: float
    ratio: Ratio | None
    """Variant / reference; ``None`` for the reference itself."""
    outcome: Outcome | None
    launches: int
    rounds: int
    facts: JSON = field(default_factory=dict)

    def as_json(self) -> JSON:
        return {
            "case": self.case.name,
            "reference": self.reference,
            "median_seconds": self.median_seconds,
            "ratio": None if self.ratio is None else self.ratio.as_json(),
            "outcome": None if self.outcome is None else self.outcome.value,
            "launches": self.launches,
            "rounds": self.rounds,
            "facts": self.facts,
        }


@dataclass(frozen=True, slots=True)
class SuiteVerdict:
    """The verdict on the mean time of all cases that were compared with the baseline."""

    limit: float
    """The slowdown of the mean that the run was asked to find, as a fraction."""
    outcome: Outcome
    reason: Reason
    cases: int
    """Cases in the mean."""
    ratio: Ratio | None = None

    def as_json(self) -> JSON:
        """Return the ``suite`` object of the report."""
        return {
            "limit": self.limit,
            "outcome": self.outcome.value,
            "reason": self.reason.as_json(),
            "cases": self.cases,
            "ratio": None if self.ratio is None else self.ratio.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Skip:
    """A case that cannot run on this machine or side, with the reason."""

    case: Case
    reason: str
