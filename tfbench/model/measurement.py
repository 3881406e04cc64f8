"""What is measured: plans, rounds, runs, launches, samples, and series of a history."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, NamedTuple

from msgspec import Meta

from tfbench.model.case import JSON, Case, Word
from tfbench.model.formats import Count, Name, Number, Share, Text, Time, Unbounded, Unknown, exactly

# Records of launches: times in seconds, effects as natural logarithms of ratios, other metrics


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of times, contender / baseline, with its confidence interval."""

    center: Unknown
    low: Annotated[float, Meta(ge=0)]
    high: Unbounded
    confidence: Share


@dataclass(frozen=True, slots=True)
class Calls:
    """The times of the calls of one side in a race, in seconds."""

    mean: Time
    p50: Time
    p90: Time | None
    """``None`` if there are too few rounds, or rounds of several calls, whose means hide it."""
    slow: Share
    """Share of the calls that take more than 1.3 medians of their launch."""
    rounds: Count


@dataclass(frozen=True, slots=True)
class SlowCalls:
    """Injected slow calls: a share of the calls takes ``factor`` times as long, by real extra calls or by waiting."""

    share: float
    factor: float
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a launch, chosen from its first warm-up and kept for the whole race."""

    rounds: int
    iterations: tuple[int, ...]
    """Timed iterations per block, for each entrant."""
    primes: tuple[int, ...]
    """Untimed iterations before the blocks of a turn, for each entrant. Long steps have none."""
    extra: tuple[float, ...]
    """Injected extra work, as a fraction of the block, for each entrant."""
    sliced: bool = False
    """Whether the scheduler alternates the processes and rounds have processor times. Otherwise they take turns."""
    slow: tuple[SlowCalls | None, ...] = ()
    """Injected slow calls of each entrant; empty without any."""
    blocks: int = 1
    """Blocks of each entrant in a turn, each of which is a round. Only the first of them is primed."""
    drain: tuple[float, ...] = ()
    """For each entrant, seconds of a call that shows that what its threads have made ahead is used up; empty where no threads
    work on after a turn."""

    @property
    def turns(self) -> int:
        """Turns of each entrant. With whole turns, they have exactly the rounds."""
        return -(-self.rounds // self.blocks)

    @property
    def works_on(self) -> bool:
        """Whether threads of an entrant work on after its turn, so that it is stopped while another one has the turn."""
        return bool(self.drain)


@dataclass(frozen=True, slots=True)
class Run:
    """The measurements of one entrant in one launch."""

    seconds: tuple[float, ...]
    """Time of one iteration in each round, in time order, without priming and injected work."""
    iterations: int
    facts: JSON = field(default_factory=dict)
    """Measured beside the times: ``first_call`` in seconds, ``peak_host_memory`` in bytes, on a GPU
    ``dispatch_time`` in seconds and ``gpu_clock`` in MHz. Arguments of ``bench``: ``flops``, ``bytes`` and
    ``items`` of one step, ``contracts``."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One fresh process per entrant, racing each other. The launch is the unit of replication."""

    pair: int
    """The pair of zygotes that forked the processes. Launches of a pair share its bias."""
    runs: tuple[Run | None, ...]
    """In the order of the race's entrants, ``None`` for an entrant that took no part."""
    wall_seconds: float = 0.0


class Statistic(Word):
    """What a launch tells about two entrants. `tfbench.stats.verdict.effect_of` computes it."""

    MEDIAN = "median"
    """The median log-ratio of its rounds."""
    TAIL = "tail"
    """The mean log-ratio of its rounds, which slow calls of one side move."""
    MEAN = "mean"
    """The ratio of the mean times."""
    WHOLE = "whole"
    """The ratio of the mean times, with the work that calls leave to threads, child processes and the garbage collector."""


STATISTICS = {"median and tail": (Statistic.MEDIAN, Statistic.TAIL), "mean": (Statistic.MEAN,)}
"""Value of `Policy.statistic` -> what is judged."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The evidence of one launch about two entrants: a log-ratio, such as the median one of its rounds."""

    value: float
    pair: int
    error: float = 0.0
    """Its standard error, as the scatter of the rounds shows it; 0 where that is unknown."""
    doubt: tuple[float, float] = (0.0, 0.0)
    """By how much the times of the baseline and of the contender may be too short because neighbours took the processor, as
    log-ratios. That is no error, since it need not average out."""


@dataclass(frozen=True, slots=True)
class OutputSketch:
    """What is kept of an output of a step, see `tfbench.metrics.parity`."""

    name: Text
    """Its place in the result, such as ``['loss']`` or ``[1]``; empty if it is the result."""
    dtype: Text
    shape: tuple[Count, ...]
    finite: Count
    """How many of its numbers are finite. A complex number counts twice."""
    norm: Annotated[float, Meta(ge=0)]
    """Of the finite numbers."""
    sums: tuple[float, ...]
    """Sums of the finite numbers with random signs, one for each bucket."""
    inside: Text = ""
    """Types of the containers that it is in, such as ``dict list``; empty if it is in none, or if that is not known."""
    call: Count = 1
    """The call that returned it, counted from 1."""


@dataclass(frozen=True, slots=True)
class MetricValues:
    """Metrics other than time of one launch. Each metric is in ``counts``, ``numbers`` or ``absent``."""

    counts: Mapping[str, Mapping[str, Count]] = field(default_factory=dict)
    """Metric -> counted thing, such as an op -> count. The metric's value is the sum."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why it could not be read."""
    setting: Mapping[str, str] = field(default_factory=dict)
    """Settings that change metrics and are not in the environment info, such as oneDNN's graph rewrites."""
    sketch: tuple[OutputSketch, ...] = ()
    """Sketches of the outputs of the step. Empty without a result."""
    unstable: Mapping[str, str] = field(default_factory=dict)
    """Metric -> how launches of this side differ. Empty where one launch was read."""

    def value(self, metric: str) -> float | None:
        """Return the value of a metric, ``None`` if it could not be read."""
        if metric in self.counts:
            return sum(self.counts[metric].values())
        return self.numbers.get(metric)


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
        """Seconds per iteration in the fastest block of each launch, in time order."""
        return tuple(min(run.seconds) for run in self.runs)


# The rounds of a case on one side, small enough to stay in a report: rounded to 0.1% and thinned


MOST = 400
"""Stored rounds of a case and side, at most. A picture shows no more, and a report of ten thousand cases stays below
40 MB."""
LARGEST = 100_000
"""Stored rounds that a report of any origin may state."""
STEP = 1e-3
"""Size of a step, as a natural logarithm: times are rounded to 0.1% of the median, far below their noise."""
_REACH = (1 << 15) - 1
"""Steps that a stored number can be away from the median, a factor of e to the 32nd."""


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """The rounds of one case on one side, in time order."""

    case: Name
    side: Annotated[str, exactly("baseline|contender")]
    median_seconds: Time
    """Median of all rounds, before they were thinned."""
    launches: Annotated[tuple[Annotated[int, Meta(ge=0, le=LARGEST)], ...], Meta(max_length=1000)]
    """Stored rounds of each launch."""
    every: Number
    """One of so many rounds is stored. It is the same on both sides, so stored rounds of both sides were paired."""
    steps: Annotated[str, Meta(max_length=300_000)]
    """The distances to the median in steps, as 16-bit integers, lowest byte first, in base64. Pages and archives compress
    them."""

    def __post_init__(self) -> None:
        try:
            size = len(base64.b64decode(self.steps, validate=True))
        except binascii.Error as error:
            raise ValueError(f"its rounds are damaged: {error}") from None
        if size != 2 * sum(self.launches):
            raise ValueError(f"it has not the {sum(self.launches)} rounds that it states")

    @staticmethod
    def of_sample(sample: Sample, side: str) -> StoredRounds:
        """Round and thin a sample that has at least one launch."""
        middle = median(sample.seconds)
        every = -(-len(sample.seconds) // MOST)
        kept = [run.seconds[::every] for run in sample.runs]
        steps = [round(math.log(second / middle) / STEP) for run in kept for second in run]
        steps = [max(-_REACH, min(_REACH, step)) for step in steps]
        text = base64.b64encode(struct.pack(f"<{len(steps)}h", *steps)).decode()
        return StoredRounds(sample.case.name, side, middle, tuple(map(len, kept)), every, text)


def by_side(rounds: Sequence[StoredRounds]) -> dict[str, dict[str, StoredRounds]]:
    """Map the name of a case to its rounds by side."""
    by_case: dict[str, dict[str, StoredRounds]] = {}
    for row in rounds:
        by_case.setdefault(row.case, {})[row.side] = row
    return by_case


# Series of a history: one case followed over runs


RATIO, FLOOR = "ratio", "floor"
"""Metrics of a series: time relative to the anchor's in the same race, and seconds of the fastest block."""


@dataclass(frozen=True, slots=True)
class Series:
    """A case followed in one way: relative to one anchor on any machine, or in seconds on one machine."""

    case: str
    metric: str
    """`RATIO` or `FLOOR`."""
    anchor: str
    """Specification of the anchor, ``""`` for floors."""
    machine: str
    """Label of the machine, ``""`` for ratios."""
    points: tuple[SeriesPoint, ...] = field(default=(), repr=False)
    """In time order."""


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """A run of a history, as far as its series tell."""

    session: str
    commit: str
    dirty: bool
    releases: tuple[str, ...]
    side: str
    """Version of TensorFlow."""
    machine: str


class SeriesPoint(NamedTuple):
    """A run of a series: a ratio, or seconds."""

    run: SeriesRun
    value: float
    low: float
    """Lower end of the interval, 0 if unbounded or unknown."""
    high: float


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """An accepted change of level; the history of the case restarts there."""

    case: Name
    reason: Text
    when: Text
    session: Name
    """The first run that counts again."""
