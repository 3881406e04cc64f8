"""The report of a run, and the error rates that a calibration measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfbench.model.case import JSON
from tfbench.model.verdict import Skip, VariantResult, Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """All that a run found out."""

    policy: JSON
    sides: Mapping[str, JSON]
    verdicts: tuple[Verdict, ...] = ()
    variant_results: tuple[VariantResult, ...] = ()
    skips: tuple[Skip, ...] = ()
    wall_seconds: float = 0.0
    seed: int = 0
    interrupted: bool = False
    shard: JSON | None = None
    """Which part of the suite it is, see `tfbench.suite.shards`; ``None`` if it is the whole."""
    profiles: tuple[JSON, ...] = ()
    """What was read of the profiles of its cases, an entry for each side of each, see `tfbench.report.profile`."""

    def why(self, case: str) -> list[str]:
        """What the profiles of a case that regressed say of it, the last that were taken."""
        return next((profile["why"] for profile in reversed(self.profiles) if profile["case"] == case), [])


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many, with a 95% interval of the rate behind it."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The rate observed; 0 without a trial."""
        return self.hits / self.trials if self.trials else 0.0

    def as_json(self) -> JSON:
        return {"hits": self.hits, "trials": self.trials, "interval": [self.low, self.high]}


@dataclass(frozen=True, slots=True)
class RateRow:
    """What a calibration knows of one workload, or of all of them, by one method of deciding."""

    name: str
    method: str
    false_alarms: Rate
    inconclusive: Rate
    detected: Mapping[float, Rate]
    """Slowdown -> how many of its trials were called regressed."""
    smallest_found: float | None
    """The smallest slowdown that it and every larger one were nearly always found."""
    seconds: float | None
    """Median cost of a verdict on unchanged code, zygotes apart."""
    seconds_detected: Mapping[float, float]
    """Slowdown -> the same of its trials."""
    launches: float | None

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
        }
