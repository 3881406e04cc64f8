"""From the rounds of launches to a ratio with an interval that knows both levels, launch and pair of zygotes.

The model: a launch of pair j shows the true log-ratio, plus what its two zygotes have in common
over all their launches (deviation tau), plus what is its own (deviation sigma). Four pairs alone
say next to nothing about tau, and an interval from three degrees of freedom is hopelessly wide. So
both variances are *moderated*: the case's own estimate and the policy's prior are averaged,
weighted by their degrees of freedom (Smyth 2004, "Linear models and empirical Bayes methods",
Stat. Appl. Genet. Mol. Biol. 3, eq. 4), and the t interval has the degrees of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tfbench.model import Effect, Ratio
from tfbench.policy import Policy

Floats = NDArray[np.float64]
_NORMAL_MAD = 1.482602218505602
"""From the median absolute deviation to the deviation of a normal distribution."""


def launch_effect(baseline: Sequence[float], contender: Sequence[float]) -> float:
    """The statistic of a launch: the median over its rounds of log(contender / baseline).

    Args:
        baseline: Seconds of an iteration, a value a round.
        contender: The same of the other entrant, in the same rounds.

    Raises:
        ValueError: There is no round, the rounds do not match, or a time is not a positive number.
    """
    first, second = np.asarray(baseline, dtype=float), np.asarray(contender, dtype=float)
    if first.size == 0 or first.shape != second.shape:
        raise ValueError("both sides need the same number of rounds, at least one")
    if not (np.isfinite(first).all() and np.isfinite(second).all() and (first > 0).all() and (second > 0).all()):
        raise ValueError("a time is not a positive number")
    return float(np.median(np.log(second / first)))


@dataclass(frozen=True)
class Estimate:
    """Estimates of many races at once; every field has one value for each race.

    ``error`` is the standard error of ``center``, both log-ratios; ``dof`` its degrees of freedom.
    """

    center: Floats
    error: Floats
    dof: float

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        """Both ends of the two-sided t interval that misses with probability ``alpha``."""
        width = stats.t.isf(alpha / 2, self.dof) * self.error
        return self.center - width, self.center + width


def estimate(effects: Floats, pairs: NDArray[np.intp], policy: Policy, *, shared_zygote: bool) -> Estimate:
    """Centre and standard error of races that have the same pairs of zygotes in the same launches.

    The centre is the mean of the means of the pairs, after launches far out have been clipped.

    Args:
        effects: Log-ratios, shape (races, launches).
        pairs: Which pair each launch belongs to, shape (launches,).
        shared_zygote: Whether the entrants of a launch come from one zygote.
    """
    values = _clipped(effects, policy)
    launches = values.shape[1]
    members = pairs[None, :] == np.unique(pairs)[:, None]
    counts = members.sum(axis=1)
    means = values @ members.T / counts
    number = len(counts)

    within = ((values - means @ members) ** 2).sum(axis=1)
    prior = policy.prior_dof
    launch = (prior * policy.launch_deviation**2 + within) / (prior + launches - number)

    between_prior = policy.shared_zygote_deviation if shared_zygote else policy.zygote_deviation
    of_a_mean = between_prior**2 + launch * float(np.mean(1 / counts))
    center = means.mean(axis=1)
    observed = ((means - center[:, None]) ** 2).sum(axis=1)
    dof = prior + number - 1
    variance = (prior * of_a_mean + observed) / dof
    return Estimate(center, np.sqrt(variance / number), dof)


def _clipped(effects: Floats, policy: Policy) -> Floats:
    """Effects no further from their median than ``policy.clip`` moderated deviations (Huber's winsorising)."""
    middle = np.median(effects, axis=1, keepdims=True)
    spread = _NORMAL_MAD * np.median(np.abs(effects - middle), axis=1, keepdims=True)
    prior, own = policy.prior_dof, effects.shape[1] - 1
    expected = policy.launch_deviation**2 + policy.zygote_deviation**2
    limit = policy.clip * np.sqrt((prior * expected + own * spread**2) / (prior + own))
    clipped: Floats = np.clip(effects, middle - limit, middle + limit)
    return clipped


def interval(effects: Sequence[Effect], alpha: float, policy: Policy, *, shared_zygote: bool) -> Ratio:
    """The ratio contender / baseline with the interval that misses it with probability ``alpha``.

    Raises:
        ValueError: There is no launch.
    """
    if not effects:
        raise ValueError("no launch, no interval")
    values = np.array([[effect.value for effect in effects]])
    pairs = np.array([effect.pair for effect in effects])
    found = estimate(values, pairs, policy, shared_zygote=shared_zygote)
    low, high = found.bounds(alpha)
    return Ratio(math.exp(found.center[0]), math.exp(low[0]), math.exp(high[0]), 1 - alpha)
