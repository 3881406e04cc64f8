"""The frozen types that travel between the rooms: Case -> Sample -> Comparison -> Verdict -> Report.

Times are seconds, ratios are contender / baseline, effects are natural logarithms of ratios.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]


TIME = "time"
"""The metric that is raced."""
QUALITIES = "qualities"
"""The fact that holds what a benchmark tells of its model."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A contract between two variants: this case and the one with these ``levels``."""

    name: str
    """``faster_than``, ``as_fast``, ``smaller_than`` or ``as_accurate``."""
    other: str
    """As the benchmark names it: what of its levels is not this case's."""
    levels: tuple[tuple[str, str], ...]
    bound: float = 0.0
    """So many times as fast or as small at least; so much less accurate at most."""
    metric: str = TIME
    """What is compared."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload in one variant; one pytest item. ``name`` is its node id.

    ``group`` names the cases that race each other: the same function with the same
    parameters other than the variant. ``variant`` is sorted by axis.
    """

    name: str
    workload: str
    group: str
    variant: tuple[tuple[str, str], ...] = ()
    reference: bool = True
    """Whether every axis is at its first level."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables that the variant needs from the start of its process."""
    cpus: str = ""
    """``""`` for one pinned core, ``"all"`` for every processor the run may use."""
    source: str = ""
    """Digest of the benchmark's own code, ``""`` where it is not known."""
    claims: tuple[Claim, ...] = ()
    shared: bool = False
    """Whether it asks for what is made once for all launches."""

    @property
    def levels(self) -> dict[str, str]:
        """Axis -> level, as written in reports."""
        return dict(self.variant)

    def claims_on(self, *metrics: str) -> list[Claim]:
        """What is claimed of one of these metrics."""
        return [claim for claim in self.claims if claim.metric in metrics]

    @property
    def label(self) -> str:
        """The variant as one short text; the empty variant is ``-``."""
        return ",".join(f"{axis}={level}" for axis, level in self.variant) or "-"


@dataclass(frozen=True, slots=True)
class Plan:
    """How the rounds of a launch are run, chosen by the pilot and kept for the whole race."""

    rounds: int
    iterations: tuple[int, ...]
    """Timed iterations of a block, for each entrant."""
    primes: tuple[int, ...]
    """Untimed iterations before each block, for each entrant; at least one."""
    extra: tuple[float, ...]
    """Injected extra work for each entrant, as a fraction of the block."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one entrant gave in one launch."""

    seconds: tuple[float, ...]
    """Time of one iteration for each round, in time order, primed and uncounted work left out."""
    iterations: int
    facts: JSON = field(default_factory=dict)
    """What came free: ``first_call`` in seconds, ``peak_host_memory`` in bytes, on a GPU ``dispatch_time`` in seconds and
    ``gpu_clock`` in MHz; what ``bench`` was told: ``flops``, ``bytes``, ``items`` of one step, ``contracts``."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One fresh process for each entrant, racing: the unit of replication."""

    pair: int
    """Which pair of zygotes the processes were forked from; launches of a pair share its bias."""
    runs: tuple[Run | None, ...]
    """In the order of the race's entrants; ``None`` for one that took no part."""
    wall_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Effect:
    """One launch's evidence about a pair of entrants: the median log-ratio of its rounds."""

    value: float
    pair: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times, contender / baseline, with its confidence interval."""

    center: float
    low: float
    high: float
    confidence: float

    def as_json(self) -> JSON:
        """The ``ratio`` object of the report; an unbounded end is ``null``, as JSON has no infinity."""

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "center": finite(self.center),
            "low": finite(self.low),
            "high": finite(self.high),
            "confidence": self.confidence,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the launches so far say about contender / baseline."""

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
class Reason:
    """Why: a code for programs and a sentence for people."""

    code: str
    message: str

    def as_json(self) -> JSON:
        return {"code": self.code, "message": self.message}


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
    """Of the metric, for baseline and contender, ``None`` where there is none; not of times, which are ratios."""
    unit: str = ""

    def as_json(self) -> JSON:
        """The row as ``tfbench-report/1`` has it."""
        before, now = self.values or (None, None)
        values = {"values": {"baseline": before, "contender": now, "unit": self.unit}} if self.values else {}
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
class Reading:
    """What a launch showed beside its time; a metric stands in one of the first three."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Metric -> what is counted -> how often; its value is the sum."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why it could not be read."""
    setting: Mapping[str, str] = field(default_factory=dict)
    """What decides over the metrics and stands in no recipe, as whether oneDNN rewrites graphs."""
    sketch: tuple[float, ...] = ()
    """Of the result, see `tfbench.analysis.parity`; empty if there is none."""

    def value(self, metric: str) -> float | None:
        """Of a metric, ``None`` if it could not be read."""
        if metric in self.counts:
            return sum(self.counts[metric].values())
        return self.numbers.get(metric)

    def as_json(self) -> JSON:
        return {
            "counts": {metric: dict(counts) for metric, counts in self.counts.items()},
            "numbers": dict(self.numbers),
            "absent": dict(self.absent),
            "setting": dict(self.setting),
            "sketch": list(self.sketch),
        }

    @staticmethod
    def of_json(content: JSON) -> Reading:
        """From `as_json`.

        Raises:
            TypeError, ValueError, AttributeError: It is none.
        """
        counts = {
            str(metric): {str(what): int(count) for what, count in counts.items()}
            for metric, counts in content["counts"].items()
        }
        numbers = {str(metric): float(number) for metric, number in content["numbers"].items()}
        absent, setting = ({str(k): str(v) for k, v in content[key].items()} for key in ("absent", "setting"))
        return Reading(counts, numbers, absent, setting, tuple(map(float, content["sketch"])))


@dataclass(frozen=True, slots=True)
class Sample:
    """All launches of one case on one side, raw, in time order."""

    case: Case
    runs: tuple[Run, ...]

    @property
    def seconds(self) -> tuple[float, ...]:
        """Every round of every launch, in time order."""
        return tuple(second for run in self.runs for second in run.seconds)

    @property
    def floors(self) -> tuple[float, ...]:
        """Seconds of an iteration in the fastest block of each launch, in time order."""
        return tuple(min(run.seconds) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a side was made of, so that it can be made again."""

    python: str
    """Version of the interpreter, as ``3.11.7``."""
    executable: str
    packages: Mapping[str, str]
    """Distribution -> version, of those that can change a time."""
    commit: str
    """Commit of the tree that holds the benchmarks, ``""`` outside version control."""
    dirty: bool
    """Whether that tree had changes that the commit does not hold."""
    settings: Mapping[str, str]
    """Environment variables that change what TensorFlow does, as they were set."""
    cpus: tuple[int, ...]
    threads: int
    machine: Mapping[str, str]
    """What the machine is: processor, its flags' digest, cores, devices."""

    def as_json(self) -> JSON:
        return {
            "python": self.python,
            "executable": self.executable,
            "packages": dict(self.packages),
            "commit": self.commit,
            "dirty": self.dirty,
            "settings": dict(self.settings),
            "cpus": list(self.cpus),
            "threads": self.threads,
            "machine": dict(self.machine),
        }

    @staticmethod
    def of_json(content: JSON) -> Recipe:
        """From `as_json`.

        Raises:
            TypeError, KeyError: It is none.
        """
        return Recipe(**{**content, "cpus": tuple(content["cpus"])})


@dataclass(frozen=True, slots=True)
class Setting:
    """How and from what a run measured: what two sessions must have in common for their times to be comparable."""

    session: str
    """Names the run: the time of its start, and letters that no other run has."""
    recipe: Recipe
    tree: str
    """git's hash of the source tree, ``""`` outside version control."""
    policy: str
    way: str
    """``variants`` or ``sides``: what raced each other, since blocks follow on the blocks of others."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a variant did against the reference variant of its workload, in one run."""

    case: Case
    reference: str
    """Name of the reference case; the case's own name if it is the reference."""
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
class Skip:
    """A case that cannot run here, and why."""

    case: Case
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that a run found out."""

    policy: JSON
    sides: Mapping[str, JSON]
    verdicts: tuple[Verdict, ...] = ()
    standings: tuple[Standing, ...] = ()
    skips: tuple[Skip, ...] = ()
    wall_seconds: float = 0.0
    seed: int = 0
    interrupted: bool = False
    shard: JSON | None = None
    """Which part of the suite it is, see `tfbench.shards`; ``None`` if it is the whole."""
    profiles: tuple[JSON, ...] = ()
    """What was read of the profiles of its cases, an entry for each side of each, see `tfbench.report.profiled`."""

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
