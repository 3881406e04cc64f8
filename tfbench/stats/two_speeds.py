"""Recognise a step that has two speeds: calls that take 62 ms or 142 ms, and nothing in between.

The times are split into the two groups with the least scatter inside (Fisher 1958, On Grouping for Maximum Homogeneity,
JASA 53). They are two speeds if the groups lie far enough apart for their scatter (Ashman, Bird and Zepf 1994, Detecting
Bimodality in Astronomical Datasets, AJ 108).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfbench.policy import Policy
from tfbench.stats.interval import Floats


class TwoSpeeds(NamedTuple):
    """The median time of either group in seconds, and the share of the slow calls on each side."""

    fast: float
    slow: float
    shares: tuple[float, ...]


def two_speeds(sides: Sequence[Sequence[Sequence[float]]], policy: Policy) -> TwoSpeeds | None:
    """Return the two speeds of a step, ``None`` if its calls have one.

    Args:
        sides: For each side the times of its rounds in seconds, launch by launch.
    """
    logs = [[np.log(np.asarray(launch, float)) for launch in side if len(launch)] for side in sides]
    launches = [launch for side in logs for launch in side]
    times = np.sort(np.concatenate(launches or [np.empty(0)]))
    least = max(policy.speed_calls, policy.speed_share * len(times))
    if len(times) < 2 * least or not least <= (split := _split(times)) <= len(times) - least:
        return None
    fast, slow = times[:split], times[split:]
    apart = float(np.median(slow) - np.median(fast))
    scatter = math.sqrt((float(np.var(fast)) + float(np.var(slow))) / 2)
    if apart < math.log1p(policy.speed_gap) or apart < policy.speed_distance * scatter:
        return None
    border = (fast[-1] + slow[0]) / 2
    if not any(launch.min() < border < launch.max() for launch in launches):
        return None  # each launch has one speed: a matter of the processes, not of the calls
    shares = tuple(float(np.mean(np.concatenate(side) > border)) if side else 0.0 for side in logs)
    return TwoSpeeds(math.exp(float(np.median(fast))), math.exp(float(np.median(slow))), shares)


def _split(times: Floats) -> int:
    """Return how many of these sorted times, two or more, belong to the lower group."""
    below = np.arange(1, len(times))
    above = len(times) - below
    sums = np.cumsum(times)
    means = sums[:-1] / below, (sums[-1] - sums[:-1]) / above
    # The scatter inside is least where that between the groups is greatest.
    between = below * above * (means[1] - means[0]) ** 2
    return int(below[np.argmax(between)])
