"""What launches record: times in seconds, effects in natural logarithms of ratios, other metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfbench.model.case import JSON, Case


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
class MetricValues:
    """What a launch showed beside its time; a metric stands in one of the first three."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Metric -> what is counted -> how often; its value is the sum."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why it could not be read."""
    setting: Mapping[str, str] = field(default_factory=dict)
    """What decides over the metrics and stands in no recipe, as whether oneDNN rewrites graphs."""
    sketch: tuple[float, ...] = ()
    """Of the result, see `tfbench.metrics.parity`; empty if there is none."""

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
    def of_json(content: JSON) -> MetricValues:
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
        return MetricValues(counts, numbers, absent, setting, tuple(map(float, content["sketch"])))


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
