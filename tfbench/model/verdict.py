"""Verdicts: results of comparisons, with their outcomes and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypedDict

from msgspec import Meta

from tfbench.model.case import JSON, TIME, Case, Word
from tfbench.model.formats import Amount, Cost, Count, Free, Name, Seconds, Text, Time, exactly
from tfbench.model.measurement import Calls, Ratio
from tfbench.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ratio of contender to baseline after the launches so far."""

    ratio: Ratio
    launches: int
    pairs: int
    rounds: int


class Outcome(Word):
    """The eight verdicts."""

    UNCHANGED = "unchanged"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NEW = "new"
    MISSING = "missing"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the report."""

    case: Case
    outcome: Outcome
    reason: Reason
    metric: Name = TIME
    ratio: Ratio | None = None
    launches: Count = 0
    rounds: Count = 0
    wall_seconds: Cost = 0.0
    values: tuple[float | None, float | None] | None = None
    """The metric's values of baseline and contender. Times have none, because they are ratios."""
    unit: Annotated[str, Meta(max_length=20)] = ""
    rates: Mapping[Annotated[str, exactly("items/s|B/s|FLOP/s")], tuple[float | None, float | None]] = field(
        default_factory=dict
    )
    """Of a verdict on time: unit of a throughput -> that of baseline and contender, see `tfbench.stats.rounds`."""
    calls: tuple[Calls, Calls] | None = None
    """Of a verdict on time after a live race: the calls of baseline and contender."""
    tail: Ratio | None = None
    """Of the same: the ratio of the geometric means of the calls; ``None`` where the tail is not judged."""


if TYPE_CHECKING:
    VariantFacts = JSON
else:

    class VariantFacts(Free):
        """What a variant's launches tell besides times. Readers compute with these numbers."""

        fields = TypedDict(
            "VariantFacts",
            {
                **dict.fromkeys(("first_call", "p90", "dispatch_time"), Seconds),
                **dict.fromkeys(("peak_host_memory", "artifact_bytes", "artifact_gzipped_bytes"), Amount),
                **dict.fromkeys(("flops", "bytes", "items", "share", "device_share"), Amount),
                "accuracy": float,
            },
            total=False,
        )


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The time of a variant compared with the reference variant of its workload, in one run."""

    case: Case
    reference: Name
    """Name of the reference case, which can be this case."""
    median_seconds: Time
    ratio: Ratio | None
    """Variant / reference; ``None`` for the reference itself."""
    outcome: Outcome | None
    launches: Count
    rounds: Count
    facts: VariantFacts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SuiteVerdict:
    """The verdict on the mean time of all cases that were compared with the baseline."""

    limit: Annotated[float, Meta(gt=0, le=1)]
    """The slowdown of the mean that the run was asked to find, as a fraction."""
    outcome: Outcome
    reason: Reason
    cases: Count
    """Cases in the mean."""
    ratio: Ratio | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """A case that cannot run on this machine or side, with the reason."""

    case: Case
    reason: Text
