"""What the rounds of launches tell besides a median: interrupts, two speeds, throughput, the best number of them.

docs/decisions/03-turns.md explains interrupts and the number of rounds, and 06-slow-calls-and-modes.md two speeds.

The timer has a fixed period, so which blocks contain an interrupt is known without measuring it, and has nothing to do
with their side. Its cost of 40 to 70 µs on a virtual machine is a covariate (Cochran 1957, Biometrics 13).

Two speeds are the two groups of times with the least scatter inside (Fisher 1958, On Grouping for Maximum Homogeneity,
JASA 53), if they lie far enough apart for it (Ashman, Bird and Zepf 1994, Detecting Bimodality in Astronomical Datasets,
AJ 108).

The number of rounds with the least variance for a given time is sqrt(cost of a launch / cost of a round) * deviation of
a round / deviation of a launch (sampling of two stages, Cochran 1977, Sampling Techniques, section 10.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfbench.model import Effect, Ratio, Run
from tfbench.stats.interval import Floats, quantile_error

SPEED_DISTANCE = 5.0
"""Two groups of calls are two speeds if their medians lie so many standard deviations of a group apart. Halves of a
normal distribution lie 2.6 apart, and halves of a uniform one 3.5."""
SPEED_GAP = 0.2
"""And if the slow ones take so much longer: less is no other way of working, but a colder cache."""
SPEED_SHARE = 0.1
"""And if each group has this share of the calls: fewer are disturbances."""
SPEED_CALLS = 5
"""And this many: three that agree by chance are a group of their own."""

# Take the programs that shared the processor out of the times of blocks


def without_neighbours(
    most: Sequence[float], least: Mapping[int, float], waiting: float | None, share: float
) -> tuple[list[float], float]:
    """Return the least times of blocks, and by how much they may be too short, as a mean log-ratio.

    Most steps work all of the time, and those take the least.

    Args:
        most: The most that each block takes without neighbours.
        least: Number of a block -> the least, where that differs.
        waiting: What the step waits by itself at most, as a fraction of its processor time; ``None`` where that is unknown.
        share: Of the time of all blocks, how much neighbours ran.
    """
    times, doubts = list(most), 0.0
    for number, low in least.items() if share > 0 else ():
        low = max(low, most[number] * (1 - min(share, _MOST_SHARE)))
        high = max(low, most[number] if waiting is None else min(most[number], low * (1 + waiting)))
        times[number] = low
        doubts += math.log(high / low)
    return times, doubts / max(1, len(times))


# Take the interrupts of the system's timer out of the times of blocks


_MOST_SHARE = 0.99
"""Neighbours have left a hundredth to the blocks at least, which have run."""


Counts = NDArray[np.int64]

_FEWEST = 5
"""Blocks of each kind, with an interrupt and without one, that a side needs to tell what an interrupt costs."""
_CERTAIN = 2.0
"""Standard errors by which the cost must exceed zero. A cost that is only noise would add noise."""


def without_interrupts(times: Sequence[Floats], counts: Sequence[Counts]) -> list[Floats]:
    """Return the times of blocks without the interrupts that happened in them.

    All sides have the same cost of an interrupt, so that a difference between their estimates is no difference between
    the sides. Times stay as they are where the blocks do not tell a cost.

    Args:
        times: For each side the times of its blocks, shape (rounds,), in any unit.
        counts: For each side the number of interrupts in each block, shape (rounds,).
    """
    cost = interrupt_cost(times, counts)
    return [np.maximum(time - cost * count, time / 2) for time, count in zip(times, counts, strict=True)]


def interrupt_cost(times: Sequence[Floats], counts: Sequence[Counts]) -> float:
    """Estimate what an interrupt adds to a block, in the unit of the times; 0 where it cannot be told from noise.

    Blocks have no interrupt or one, otherwise they are so long that an interrupt is a small part of their noise.
    Args are those of `without_interrupts`.
    """
    costs, variances = [], []
    for time, count in zip(times, counts, strict=True):
        groups = [time[count == number] for number in (0, 1)]
        if min(map(len, groups)) < _FEWEST or np.any(count > 1):
            return 0.0
        without, having = groups
        costs.append(float(np.median(having) - np.median(without)))
        variances.append(sum(quantile_error(group) ** 2 for group in groups))
    weights = 1 / np.maximum(variances, np.finfo(float).tiny)
    cost, error = float(np.average(costs, weights=weights)), float(weights.sum() ** -0.5)
    return cost if cost > _CERTAIN * error else 0.0


# Recognise a step that has two speeds: calls that take 62 ms or 142 ms, and nothing in between


class TwoSpeeds(NamedTuple):
    """The median time of either group in seconds, and the share of the slow calls on each side."""

    fast: float
    slow: float
    shares: tuple[float, ...]


def two_speeds(sides: Sequence[Sequence[Sequence[float]]]) -> TwoSpeeds | None:
    """Return the two speeds of a step, ``None`` if its calls have one.

    ``sides`` has for each side the times of its rounds in seconds, launch by launch.
    """
    logs = [[np.log(np.asarray(launch, float)) for launch in side if len(launch)] for side in sides]
    launches = [launch for side in logs for launch in side]
    times = np.sort(np.concatenate(launches or [np.empty(0)]))
    least = max(SPEED_CALLS, SPEED_SHARE * len(times))
    if len(times) < 2 * least or not least <= (split := _split(times)) <= len(times) - least:
        return None
    fast, slow = times[:split], times[split:]
    apart = float(np.median(slow) - np.median(fast))
    scatter = math.sqrt((float(np.var(fast)) + float(np.var(slow))) / 2)
    if apart < math.log1p(SPEED_GAP) or apart < SPEED_DISTANCE * scatter:
        return None
    border = (fast[-1] + slow[0]) / 2
    if not any(launch.min() < border < launch.max() for launch in launches):
        return None  # each launch has one speed: a matter of the processes, not of the calls
    shares = tuple(float(np.mean(np.concatenate(side) > border)) if side else 0.0 for side in logs)
    return TwoSpeeds(math.exp(float(np.median(fast))), math.exp(float(np.median(slow))), shares)


def _split(times: Floats) -> int:
    """Return how many of these sorted times, two or more, belong to the lower group."""
    below = np.arange(1, len(times))
    means = [np.cumsum(times)[:-1] / below, np.cumsum(times[::-1])[-2::-1] / below[::-1]]
    # The scatter inside is least where that between the groups is greatest.
    return int(below[np.argmax(below * below[::-1] * (means[1] - means[0]) ** 2)])


# Throughput: the work of a call (items, bytes, floating-point operations) per time


UNITS = {"items": "items/s", "flops": "FLOP/s", "bytes": "B/s"}
"""Fact with the work of a call -> unit of its rate."""
Rates = dict[str, tuple[float | None, float | None]]
"""Unit -> rate of baseline and contender, ``None`` where a side does not state its work."""


def log_items_ratio(before: Run, now: Run) -> float:
    """Return log(items per call now / before); 0 unless both sides state their items.

    Times of calls with other numbers of items, such as another batch size, compare per item.
    """
    was, is_now = before.facts.get("items"), now.facts.get("items")
    return math.log(is_now / was) if was and is_now else 0.0


def rates(before: Sequence[Run], now: Sequence[Run], ratio: Ratio | None) -> Rates:
    """Return the throughput of both sides for each kind of work that one of them states.

    The baseline's is its work by its median time. The contender's follows from it by the ratio of the race, which compares
    turns of the same moment: two medians do not. It therefore says the same as the verdict.

    Args:
        ratio: Of the times of an item if both sides state items, otherwise of the times of a call.
    """
    seconds = [second for run in before for second in run.seconds]
    if not seconds or not now or ratio is None or not 0 < ratio.center < math.inf:
        return {}
    call = median(seconds)
    later = call * ratio.center * math.exp(log_items_ratio(before[0], now[0]))
    by_length: Rates = {}
    for fact, unit in UNITS.items():
        was, is_now = before[0].facts.get(fact), now[0].facts.get(fact)
        if was or is_now:
            by_length[unit] = (was / call if was else None, is_now / later if is_now else None)
    return by_length


# Choose the number of rounds of a launch, from what the launches so far show


_PRIOR_LAUNCHES = 3.0
"""Launches that the usual deviation counts for: as many as the first look of `standard` has, so both weigh the same there."""
_LEAST = 0.25
"""Deviation of launches apart from their rounds, at least, as a fraction of the usual one. A few launches that agree
are no proof of none."""


def best_rounds(
    launches: Sequence[Effect], rounds: Sequence[int], usual: float, launch_seconds: float, round_seconds: float
) -> float:
    """Return the number of rounds per launch that lowers the error of a race most per second.

    Args:
        launches, rounds: Effect and number of rounds of each launch.
        usual: Deviation between launches of the same code, as a log-ratio.
        launch_seconds: What a launch takes besides its rounds.
        round_seconds: What a round takes.
    """
    errors = np.array([launch.error for launch in launches])
    effects = np.array([launch.value for launch in launches])
    counts = np.array(rounds)
    of_round = math.sqrt(float(np.mean(errors**2 * counts)))
    scatter = float(np.sum((effects - effects.mean()) ** 2))
    whole = (_PRIOR_LAUNCHES * usual**2 + scatter) / (_PRIOR_LAUNCHES + len(launches) - 1)
    apart = max(whole - float(np.mean(errors**2)), (_LEAST * usual) ** 2)
    return math.sqrt(launch_seconds / round_seconds / apart) * of_round


def scatter(launches: Sequence[Effect], usual: float) -> float:
    """Return the deviation between launches, relative to that of unchanged code whose rounds have the same errors.

    There are at least two launches. ``usual`` is the deviation between launches of the same code besides that error,
    as a log-ratio.
    """
    values = np.array([effect.value for effect in launches])
    errors = np.array([effect.error for effect in launches])
    return float(values.std(ddof=1) / math.sqrt(usual**2 + np.mean(errors**2)))


_SURE = 3.0
"""Standard errors."""
_FEW = 4
"""Fewest rounds in a third of a launch, so that their mean has a known error."""


def shifts(launches: Sequence[Floats], least: float) -> bool:
    """Return whether the ratio of a race changes as its launches go on, by more than ``least`` on average.

    The mean of the last third of each launch is compared with that of the rest. A cache that overflows after some hundred
    calls is an example, which the median of a launch does not show.
    ``launches`` have the log-ratio of each round, in order.
    """
    parts = [np.split(ratios, [2 * len(ratios) // 3]) for ratios in launches if len(ratios) >= 3 * _FEW]
    if not parts:
        return False
    differences = [late.mean() - early.mean() for early, late in parts]
    variances = [part.var(ddof=1) / len(part) for both in parts for part in both]
    error = math.sqrt(sum(variances)) / len(parts)
    return abs(float(np.mean(differences))) > max(least, _SURE * error)
