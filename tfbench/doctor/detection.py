"""Estimate the noise of launches, and the smallest slowdown that a policy detects in it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfbench.model import JSON, Effect, Outcome, Ratio
from tfbench.policy import Policy
from tfbench.stats.alpha_spending import case_alpha
from tfbench.stats.interval import interval
from tfbench.stats.simulate import NoiseModel, simulate

CASES = 30
"""Size of the suite whose alpha is shared, the same as in `tfbench calibrate`."""
LEAST = 6
"""Launches that a workload needs. The deviation between fewer pairs of zygotes is a guess."""
SLOWDOWNS = (0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.15, 0.20, 0.30, 0.50, 1.00)
"""Candidates for the smallest detectable slowdown."""
SIMULATED = 400
"""Simulated races per slowdown: the standard error of a rate near 95% is then 1%."""
_FAR = 3.0
_NORMAL_MAD = 1.4826


@dataclass(frozen=True)
class DetectionLimit:
    """What a policy can detect in this noise."""

    noise: NoiseModel
    itself: Ratio
    """The code against itself. The interval usually contains 1."""
    smallest: float | None
    """The smallest detectable slowdown, or ``None`` if even the largest candidate is not detectable."""
    launches: float
    """Median number of launches until the smallest slowdown is detected."""
    unchanged_launches: float
    """Median number of launches until a verdict on unchanged code."""

    def as_json(self) -> JSON:
        return {
            "launch_deviation": self.noise.launch_deviation,
            "zygote_deviation": self.noise.zygote_deviation,
            "itself": self.itself.as_json(),
            "smallest_found": self.smallest,
            "launches": self.launches,
            "unchanged_launches": self.unchanged_launches,
        }


def detection_limit(effects: Sequence[Effect], policy: Policy, rate: float) -> DetectionLimit:
    """Compute the smallest slowdown that the policy detects in this share of races, from launches of the same code.

    The effects give the noise. Simulated races with this noise, decided like real ones, give the detection
    rates and the launches that they take.
    """
    noise = noise_of(effects, policy)
    itself = interval(effects, case_alpha(policy, CASES), policy, shared_zygote=False)

    def races(slowdown: float) -> tuple[float, float]:
        found = simulate(policy, replace(noise, effect=slowdown), SIMULATED, seed=1, cases=CASES)
        return found.rate(Outcome.REGRESSED), found.median_launches

    # The rate grows with the slowdown. A search by halving therefore needs 4 simulations and not 14.
    first = bisect_left(SLOWDOWNS, True, key=lambda slowdown: races(slowdown)[0] >= rate)
    smallest = SLOWDOWNS[first] if first < len(SLOWDOWNS) else None
    launches = math.nan if smallest is None else races(smallest)[1]
    return DetectionLimit(noise, itself, smallest, launches, races(0.0)[1])


def noise_of(effects: Sequence[Effect], policy: Policy) -> NoiseModel:
    """Estimate both deviations by an analysis of variance, shrunk slightly towards the policy's usual values.

    An outlying launch first moves to three deviations from the median, as in the policy's own interval.
    The usual values count as 1 / (2 spread^2) degrees of freedom: the logarithm of a deviation that was
    estimated from so many has this spread. This is 2 for launches and 0.8 for pairs.
    """
    away = np.array([effect.value for effect in effects])
    away -= np.median(away)
    spread = _NORMAL_MAD * float(np.median(np.abs(away)))
    far = _FAR * max(math.hypot(policy.launch_deviation, policy.zygote_deviation), spread)
    away = np.clip(away, -far, far)
    _, pair_of, counts = np.unique([effect.pair for effect in effects], return_inverse=True, return_counts=True)
    means = np.bincount(pair_of, away) / counts
    within = float(np.sum((away - means[pair_of]) ** 2))
    launch = _shrunk(within, len(away) - len(means), policy.launch_deviation, policy.launch_spread)
    # The variance of a pair's mean includes a share of the launches' own variance, which is subtracted.
    own = float(np.mean(1 / counts)) * launch
    freedom = len(means) - 1
    between = float(np.sum((means - means.mean()) ** 2)) - freedom * own
    zygote = _shrunk(max(0.0, between), freedom, policy.zygote_deviation, policy.zygote_spread)
    error = math.sqrt(np.mean([effect.error**2 for effect in effects]))
    return NoiseModel(0.0, math.sqrt(launch), math.sqrt(zygote), rounds_error=error)


def _shrunk(squares: float, freedom: int, usual: float, spread: float) -> float:
    """Return a variance from its sum of squares and the usual deviation."""
    weight = 1 / (2 * spread**2)
    return (squares + weight * usual**2) / (freedom + weight)
