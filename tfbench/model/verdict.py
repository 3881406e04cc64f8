"""Verdicts and their reasons."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tfbench.model.case import JSON, TIME, Case

# Why a verdict has its outcome: a code for programs and a sentence for people


class ReasonCode(str, enum.Enum):
    """The reason codes of reports. A member equals its string, so code read from a file compares with it."""

    # The live race

    SLOWER = "slower"
    """The whole interval of the ratio lies above the minimum effect."""
    FASTER = "faster"
    """The whole interval of the ratio lies below the inverse of the minimum effect."""
    SLOW_CALLS = "slow-calls"
    """The median is not slower, but calls of the contender are slow, and raise the geometric mean by more than `tail_effect`."""
    FEWER_SLOW_CALLS = "fewer-slow-calls"
    """The median is not faster, but the contender has fewer slow calls, which lowers the geometric mean as much."""
    TAIL_NOT_DECIDED = "tail-not-decided"
    """The median is proved to be unchanged or faster, and slow calls could still cost more than `tail_tolerance`."""
    WITHIN_TOLERANCE = "within-tolerance"
    """The change lies within the policy's tolerance."""
    NOT_DECIDED = "not-decided"
    """The policy's budget of launches is spent and the evidence proves no outcome."""
    RACING = "racing"
    """The race needs more launches. No report has this code."""
    NOT_CONFIRMED = "not-confirmed"
    """The first race, or the first job, found a regression and the second did not."""
    INTERRUPTED = "interrupted"
    """The run was interrupted before the regression was confirmed."""
    FEW_CASES = "few-cases"
    """Too few cases were raced against the baseline for a mean."""
    DISTURBED = "disturbed"
    """The race was aborted because other processes disturbed too many launches."""
    WITHIN_ABS_TOLERANCE = "within-slack"
    """The change of a first call is below the policy's absolute tolerance in seconds."""

    # The saved times of a baseline

    SAVED_TIMES = "saved-times"
    """Decided from saved times, without a live race."""
    FEW_SESSIONS = "few-sessions"
    """Too few saved sessions to predict how much the times of unchanged code move."""
    OTHER_MACHINE = "other-machine"
    """The baseline was measured on another machine or in another environment."""
    OTHER_CLOCK = "other-clock"
    """The GPU ran at another clock rate than in the baseline."""
    OTHER_METHOD = "other-way"
    """The baseline was measured under another policy, or in races between other entrants."""
    BENCHMARK_CHANGED = "benchmark-changed"
    """The benchmark's own code has changed since the baseline was saved."""

    # Cases and sides without a comparison

    NO_BASELINE = "no-baseline"
    """The run had no baseline, so the case raced the other variants only."""
    NOT_IN_BASELINE = "not-in-baseline"
    """The baseline lacks this case or metric."""
    ADDED = "added"
    """The other side's code does not have this case, as in the change that adds it."""
    NOT_COLLECTED = "not-collected"
    """The baseline has the case and the suite no longer collects it."""
    DESELECTED_HERE = "deselected-here"
    """The baseline would run the case under the same options, and this run's own marks, hooks or settings deselect it."""
    SKIPPED_ON_ONE_SIDE = "skipped-on-one-side"
    """One of the two sides cannot run the case, or skips it."""
    NO_SOURCE = "no-source"
    """The source tree of the baseline cannot be recreated."""
    NO_ENVIRONMENT = "no-environment"
    """The packages of the baseline cannot be installed again."""
    SAME_CODE = "same-code"
    """Not raced, because both sides run the same code, graphs and packages (``--changed-only``)."""
    OTHER_NATIVE_CODE = "other-native-code"
    """A side has not run the native code of its own source tree, or only one of the sides has run any."""
    OTHER_ENVIRONMENT = "other-environment"
    """The recreated side differs from the environment that the baseline was saved in."""

    # Failures

    BROKEN = "broken"
    """The benchmark raised an error."""
    DIED = "died"
    """The worker process ended unexpectedly."""
    HUNG = "hung"
    """The worker process did not answer in time."""
    SIDE = "side"
    """A side could not be created or started."""
    NOT_MEASURED = "not-measured"
    """The run ended before this case was measured."""
    NOT_COLLECTED_HERE = "not-collected-here"
    """pytest could not collect the file, so its cases are unknown."""
    INTERNAL = "internal"
    """tfbench itself failed while it measured the case."""

    # Metrics other than time

    SAME = "same"
    """The value is the same on both sides."""
    MORE = "more"
    """The value of the contender is larger."""
    FEWER = "fewer"
    """The value of the contender is smaller."""
    OTHER = "other"
    """The values differ and the metric has no better direction."""
    NOT_EXACT = "not-exact"
    """The value changes between launches of the same code on this machine."""
    NOT_READ = "not-read"
    """The baseline has a value and this run could not read one."""
    NOT_PROBED = "not-probed"
    """The probing launch failed although the timed launches succeeded."""

    # Contracts

    CONTRACT_HELD = "contract-held"
    """The contract holds."""
    CONTRACT_BROKEN = "contract-broken"
    """The contract does not hold."""
    CONTRACT_OPEN = "contract-open"
    """The evidence does not show whether the contract holds."""
    CONTRACT_UNREADABLE = "contract-unreadable"
    """The contract cannot be checked because its evidence is missing."""

    # Two result files (`tfbench compare`)

    ONE_FILE = "one-file"
    """Only one of the two files has the case."""
    NO_INTERVAL = "no-interval"
    """A file has too little data for a confidence interval."""
    WITHIN_SCATTER = "within-scatter"
    """The difference is within the scatter inside the two runs."""
    STANDS_OUT = "stands-out"
    """The difference exceeds the scatter inside the two runs."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a code for programs and a sentence for people."""

    code: ReasonCode | str
    """A plain string only in a report from a file, which another version of tfbench may have written."""
    message: str

    def as_json(self) -> JSON:
        """Return the ``reason`` object of the report."""
        return {"code": str(self.code), "message": self.message}


# Results of comparisons: ratios of contender to baseline, outcomes and their reasons


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times, contender / baseline, with its confidence interval."""

    center: float
    low: float
    high: float
    confidence: float

    def as_json(self) -> JSON:
        """Return the ``ratio`` object of the report. An unbounded end is ``null``, as JSON has no infinity."""

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "center": finite(self.center),
            "low": finite(self.low),
            "high": finite(self.high),
            "confidence": self.confidence,
        }


@dataclass(frozen=True, slots=True)
class Calls:
    """The times of the calls of one side in a race, in seconds."""

    mean: float
    p50: float
    p90: float | None
    """``None`` if there are too few rounds, or rounds of several calls, whose means hide it."""
    slow: float
    """Share of the calls that take more than 1.3 medians of their launch."""
    rounds: int

    def as_json(self) -> JSON:
        """Return the object of the report."""
        return asdict(self)


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
