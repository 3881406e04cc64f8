"""Choose the number of rounds of a launch, from what the launches so far show.

A launch has an error of its own, and its median has another one that falls with the number of its rounds. Both cost
time: the start of a launch, and each of its rounds. In sampling of two stages, the number of rounds with the least
variance for a given time is sqrt(cost of a launch / cost of a round) * deviation of a round / deviation of a launch
(Cochran 1977, Sampling Techniques, section 10.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tfbench.model import Effect

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
        launches: Effect of each launch.
        rounds: Number of rounds of each launch.
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
