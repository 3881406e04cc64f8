"""Take the interrupts of the system's timer out of the times of blocks.

An interrupt makes the block longer in which it happens, by 40 to 70 µs on a virtual machine. Between them the timer has a
fixed period, so which blocks contain one is known without measuring it, and has nothing to do with the side that a block
belongs to. What an interrupt costs follows from the blocks with and without one. It is a covariate that explains a part
of the noise (Cochran 1957, Biometrics 13: analysis of covariance).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tfbench.stats.interval import Floats, median_error

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
        if min(map(len, groups)) < _FEWEST or count.max() > 1:
            return 0.0
        without, having = groups
        costs.append(float(np.median(having) - np.median(without)))
        variances.append(sum(median_error(group) ** 2 for group in groups))
    weights = 1 / np.maximum(variances, np.finfo(float).tiny)
    cost, error = float(np.average(costs, weights=weights)), float(weights.sum() ** -0.5)
    return cost if cost > _CERTAIN * error else 0.0
