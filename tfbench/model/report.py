"""The report of a run, and the error rates that a calibration measures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfbench.model.case import JSON, TIME
from tfbench.model.rounds import StoredRounds
from tfbench.model.verdict import Skip, SuiteVerdict, VariantResult, Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """The complete results of a run."""

    policy: JSON
    sides: Mapping[str, JSON]
    verdicts: tuple[Verdict, ...] = ()
    variant_results: tuple[VariantResult, ...] = ()
    skips: tuple[Skip, ...] = ()
    wall_seconds: float = 0.0
    seconds_by_phase: Mapping[str, float] = field(default_factory=dict)
    """What the wall time was spent on, see `tfbench.race.stopwatch`; summed over the shards of a merged report.

    Empty in a report of a version that did not tell.
    """
    seconds_by_case: Mapping[str, float] = field(default_factory=dict)
    """Name of a case -> wall time that it cost, from its race to its profiles and without the start of zygotes.

    Variants that race each other share their cost equally. A case that was taken from an interrupted run is absent.
    """
    seed: int = 0
    interrupted: bool = False
    due: tuple[str, ...] = ()
    """Names of the cases that the run had to measure, fixed before it measured anything, and of missing ones."""
    complete: bool | None = None
    """Whether the run wrote this report at its end. ``None`` in a report of a version that did not tell."""
    shard: JSON | None = None
    """The part of the suite, see `tfbench.suite.shards`. ``None`` for the whole suite."""
    suite: SuiteVerdict | None = None
    """The verdict on the mean of all cases; ``None`` if the run was not asked for it."""
    profiles: tuple[JSON, ...] = ()
    """Contents of the profiles, one entry per case and side, see `tfbench.report.profile`."""
    rounds: tuple[StoredRounds, ...] = ()
    """The rounds of each case and side that was raced live. Empty in a report of a version that did not keep them."""
    machines: tuple[JSON, ...] = ()
    """The machines of a fleet: facts, canary, number of jobs. Empty in a report of a run without a job."""

    @property
    def gap(self) -> str:
        """Why this report is incomplete; ``""`` if each case that was due has one row on time or a skip."""
        if self.complete is None:
            return "it does not tell which cases were due; measure again with this version of tfbench"
        if not self.complete:
            return "the run did not come to its end"
        rows = [row.case.name for row in self.verdicts if row.metric == TIME]
        answers = Counter([*rows, *(skip.case.name for skip in self.skips)])
        due = set(self.due)
        if stranger := next((name for name in answers if name not in due), ""):
            return f"it has a result of {stranger}, which was not due"
        if name := next((name for name in self.due if answers[name] != 1), ""):
            return f"{name} was due and has {answers[name] or 'no'} results"
        return ""

    def why(self, case: str) -> list[str]:
        """Return the explanation of a regressed case by its latest profiles, as lines."""
        return next((profile["why"] for profile in reversed(self.profiles) if profile["case"] == case), [])


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of hits among trials, with a 95% interval of the rate."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The observed rate, 0 without trials."""
        return self.hits / self.trials if self.trials else 0.0

    def as_json(self) -> JSON:
        return {"hits": self.hits, "trials": self.trials, "interval": [self.low, self.high]}


@dataclass(frozen=True, slots=True)
class RateRow:
    """The error rates of one workload, or of all workloads, under one method of deciding."""

    name: str
    method: str
    false_alarms: Rate
    inconclusive: Rate
    detected: Mapping[float, Rate]
    """Slowdown -> share of its trials with the verdict regressed."""
    smallest_found: float | None
    """The smallest slowdown from which on nearly all trials are detected."""
    seconds: float | None
    """Median cost of a verdict on unchanged code, without the start of zygotes."""
    seconds_detected: Mapping[float, float]
    """Slowdown -> median cost of its verdicts."""
    launches: float | None
    coverage: Rate | None = None
    """Share of verdicts on unchanged code whose intervals hold the true ratio; ``None`` if no trial has intervals."""
    nominal: float | None = None
    """The coverage that these intervals claim: the mean of their confidences."""
    tails: Mapping[str, Rate] = field(default_factory=dict)
    """Kind of injected slow calls -> share of its trials with the verdict regressed."""
    seconds_tails: Mapping[str, float] = field(default_factory=dict)
    """The same kind -> median cost of its verdicts."""

    def as_json(self) -> JSON:
        return {
            "name": self.name,
            "method": self.method,
            "false_alarms": self.false_alarms.as_json(),
            "inconclusive": self.inconclusive.as_json(),
            "detected": {str(slowdown): rate.as_json() for slowdown, rate in self.detected.items()},
            "smallest_found": self.smallest_found,
            "seconds": self.seconds,
            "seconds_detected": {str(slowdown): seconds for slowdown, seconds in self.seconds_detected.items()},
            "launches": self.launches,
            "coverage": self.coverage and self.coverage.as_json(),
            "nominal_coverage": self.nominal,
            "tails": {kind: rate.as_json() for kind, rate in self.tails.items()},
            "seconds_tails": dict(self.seconds_tails),
        }
