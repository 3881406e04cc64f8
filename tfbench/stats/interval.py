"""Compute a ratio and its interval from the rounds of launches, with noise of launches and of pairs of zygotes.

A launch of pair j shows the true log-ratio, plus a bias that all launches of its two zygotes share (deviation tau), plus
noise of its own (deviation sigma). docs/method.md and docs/decisions/02-interval-and-looks.md explain the interval.

The posterior is a mixture of normal distributions over a grid: the random-effects model with an informative prior of
Higgins, Thompson & Spiegelhalter (2009, J. R. Stat. Soc. A 172), computed as in Roever (2020, J. Stat. Softw. 93(6)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tfbench.model import Effect, Ratio
from tfbench.policy import Policy, Thresholds

Floats = NDArray[np.float64]
Array = Any
"""An array inside a formula, where the stubs of numpy 2.2 to 2.5 disagree about its type."""

_NORMAL_MAD = 1.482602218505602
"""Factor from the median absolute deviation to the standard deviation of a normal distribution."""
_BRACKET = 1.96
"""Quantile of the order statistics that bracket a median with 95% confidence."""
_TAIL_DOF = 2.0
"""Degrees of freedom of the t prior of a deviation's logarithm: so few that launches with a hundred times
the usual noise outweigh the prior at once."""
_LAUNCH_STEPS: Array = np.concatenate([np.arange(-1.75, 3.0, 0.25), np.arange(3.0, 6.01, 0.5)])
_ZYGOTE_STEPS: Array = np.arange(-2.0, 6.01, 0.5)
"""Grids of the deviations, as the logarithm of their ratio to the policy's value: from a seventh to 400 times.
The finer one resolves the likelihood of 30 launches, the coarser one that of a few pairs. A hundred launches tell more, but
half the steps would not change the error rates."""
_UNLIKELY = 8.0
"""Nodes are dropped if their prior is less than the largest one by e to this power: both deviations far off."""
_BISECTIONS = 50
FEW = 5
"""Launches from which on single outliers can be told from noise, see `huber_pseudovalues`."""


def launch_effect(baseline: Sequence[float], contender: Sequence[float], pair: int) -> Effect:
    """Compute the evidence of a launch: the median of `log_ratios` and its error. Raises as that.

    ``pair`` is the pair of zygotes that the launch comes from.
    """
    ratios = log_ratios(baseline, contender)
    return Effect(float(np.median(ratios)), pair, quantile_error(ratios))


def log_ratios(baseline: Sequence[float], contender: Sequence[float]) -> Floats:
    """Compute log(contender / baseline) of each round, from the seconds per iteration of both; shape (rounds,).

    Raises `ValueError` if there is no round, the rounds do not match, or a time is not a positive number.
    """
    if len(baseline) == 0 or len(baseline) != len(contender):
        raise ValueError("both sides need the same number of rounds, at least one")
    times = np.array([baseline, contender], dtype=float)
    if not (np.isfinite(times) & (times > 0)).all():
        raise ValueError("a time is not a positive number")
    effects: Floats = np.diff(np.log(times), axis=0)[0]
    return effects


def quantile_error(values: Floats) -> float:
    """Estimate the standard error of the median from the order statistics around it (McKean & Schrader 1984).

    ``values`` have the shape (rounds,), at least one; the error of one is 0.
    """
    ordered, count = np.sort(values), len(values)
    low = max(1, round((count + 1 - _BRACKET * math.sqrt(count)) / 2))
    return float(ordered[-low] - ordered[low - 1]) / (2 * _BRACKET)


@dataclass(frozen=True)
class Posterior:
    """The posterior of the true log-ratio of many races: for each race a mixture of normal distributions.

    ``weights`` and ``centers`` have the shape (races, nodes), and ``deviations`` has (nodes,). A node is
    one pair of values of both noise deviations.
    """

    weights: Floats
    centers: Floats
    deviations: Floats

    def below(self, value: float | Floats) -> Floats:
        """Probability that the true log-ratio is less than ``value``, one for all races or one each; shape (races,)."""
        return self._sum(special.ndtr(-(self.centers - np.reshape(value, (-1, 1))) / self.deviations))

    def above(self, value: float | Floats) -> Floats:
        """Probability that the true log-ratio is more than ``value``. Unlike 1 - below, it is exact where it is tiny."""
        return self._sum(special.ndtr((self.centers - np.reshape(value, (-1, 1))) / self.deviations))

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        """Find both ends of the interval that excludes ``alpha / 2`` on either side, by bisection; shape (races,)."""
        reach = -special.ndtri(alpha / 2) * self.deviations
        low, low_in = (self.centers - reach).min(axis=1), self.center
        high_in, high = self.center, (self.centers + reach).max(axis=1)
        for _ in range(_BISECTIONS):
            at = (low + low_in) / 2
            outside = self.below(at) < alpha / 2
            low, low_in = np.where(outside, at, low), np.where(outside, low_in, at)
            at = (high_in + high) / 2
            outside = self.above(at) < alpha / 2
            high, high_in = np.where(outside, at, high), np.where(outside, high_in, at)
        return low, high

    @property
    def center(self) -> Floats:
        """The mean of the mixture, shape (races,)."""
        return self._sum(self.centers)

    def _sum(self, values: Floats) -> Floats:
        estimates: Floats = np.einsum("rn,rn->r", self.weights, values)
        return estimates


def relative_variances(expected: Thresholds, errors: Floats) -> Floats:
    """Return the variance of each launch relative to the usual one, which includes the mean error; shape (launches,).

    The inverse is its weight, as in a random-effects meta-analysis of studies with known errors (DerSimonian & Laird 1986,
    Control. Clin. Trials 7). The usual deviation of launches keeps a few rounds that agree by chance from deciding alone.

    Args:
        expected: Has the usual deviation of launches without the error.
        errors: Standard errors of the launches' medians, shape (launches,).
    """
    variances = expected.launch_deviation**2 + errors**2
    scale: Floats = variances / variances.mean()
    return scale


def posterior(
    effects: Floats,
    pairs: NDArray[np.intp],
    policy: Policy,
    *,
    shared_zygote: bool,
    expected: Thresholds | None = None,
    relative: Floats | None = None,
) -> Posterior:
    """Compute the posterior of races whose launches come from the same pairs of zygotes.

    Args:
        effects: Log-ratios, shape (races, launches).
        pairs: The pair that each launch belongs to, shape (launches,).
        shared_zygote: Whether the entrants of a launch come from one zygote. Both then share its bias,
            so the prior deviation between pairs is ``shared_zygote_deviation``.
        expected: Has the prior deviations; those of the step's time by default.
        relative: Variance of each launch relative to the usual one, shape (launches,); all alike by default.
    """
    expected = expected or policy.step_time
    weight: Floats = np.ones(effects.shape[1]) if relative is None else 1 / relative
    between = policy.shared_zygote_deviation if shared_zygote else expected.zygote_deviation
    of_launch, of_pair, log_prior = _grid(
        expected.launch_deviation, policy.launch_spread, between, policy.zygote_spread
    )
    values = huber_pseudovalues(effects, math.hypot(expected.launch_deviation, between), policy.clip, weight)
    members = (pairs[None, :] == np.unique(pairs)[:, None]).astype(float)
    totals = members @ weight
    number, launches = len(totals), values.shape[1]

    means = (values * weight) @ members.T / totals
    within = ((values - means @ members) ** 2) @ weight
    origin = means.mean(axis=1, keepdims=True)
    means = means - origin  # so that the quadratic form below does not cancel

    of_mean = of_pair[:, None] + of_launch[:, None] / totals  # variance of a pair's mean: (nodes, pairs)
    total = (1 / of_mean).sum(axis=1)
    centers = means @ (1 / of_mean / total[:, None]).T
    misfit = means**2 @ (1 / of_mean).T - centers**2 * total
    misfit += within[:, None] / of_launch
    constant = (launches - number) * np.log(of_launch) + np.log(of_mean).sum(axis=1) + np.log(total)
    logs = log_prior - 0.5 * (constant + misfit)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return Posterior(weights, centers + origin, 1 / np.sqrt(total))


@lru_cache(maxsize=16)
def _grid(launch: float, launch_spread: float, between: float, between_spread: float) -> tuple[Floats, Floats, Floats]:
    """Tabulate the variances of launches and of pairs, and the logarithm of the prior, at every node."""

    def log_prior(steps: Array, spread: float) -> Array:
        return np.log(np.gradient(steps)) - (_TAIL_DOF + 1) / 2 * np.log1p((steps / spread) ** 2 / _TAIL_DOF)

    prior = np.add.outer(log_prior(_LAUNCH_STEPS, launch_spread), log_prior(_ZYGOTE_STEPS, between_spread))
    own, pair = np.nonzero(prior > prior.max() - _UNLIKELY)
    of_launch, of_pair = (launch * np.exp(_LAUNCH_STEPS)) ** 2, (between * np.exp(_ZYGOTE_STEPS)) ** 2
    return of_launch[own], of_pair[pair], prior[own, pair]


def huber_pseudovalues(effects: Floats, expected: float, clip: float, weight: Floats | None = None) -> Floats:
    """Limit the influence of outlying launches: the mean and spread of the results are those of Huber's M-estimate.

    A launch further than ``clip`` deviations from the race's median is moved to that distance, and all distances are
    stretched by the weight of all launches / of those left in place: one step from the median (Bickel 1975, J. Am. Stat.
    Assoc. 70). The deviation is the larger of ``expected`` and the scaled median absolute deviation. If more than a third
    of the launches or of their weight are outliers, or the race has fewer than five launches, outliers cannot be
    identified. Such a race is unchanged, and its interval wide.

    ``effects`` has the shape (races, launches), and ``expected`` is the prior deviation of a launch, as a log-ratio.
    ``weight`` of a launch is the inverse of its relative variance, shape (launches,). They are all alike by default.
    """
    launches = effects.shape[1]
    if launches < FEW:
        return effects
    weight = np.ones(launches) if weight is None else weight
    middle = np.median(effects, axis=1, keepdims=True)
    away = (effects - middle) * np.sqrt(weight)
    spread = _NORMAL_MAD * np.median(np.abs(away), axis=1, keepdims=True)
    limit = clip * np.maximum(expected, spread)
    far = np.abs(away) > limit
    number, in_place = far.sum(axis=1, keepdims=True), np.where(far, 0, weight).sum(axis=1, keepdims=True)
    few = (number > 0) & (3 * number <= launches) & (3 * in_place >= (2 - 1e-9) * weight.sum())
    stretch = weight.sum() / np.where(few, in_place, weight.sum())
    moved = middle + np.clip(away, -limit, limit) / np.sqrt(weight) * stretch
    corrected: Floats = np.where(few, moved, effects)
    return corrected


def interval(
    effects: Sequence[Effect], alpha: float, policy: Policy, *, shared_zygote: bool, expected: Thresholds | None = None
) -> Ratio:
    """Compute the ratio contender / baseline with the interval that misses it with probability ``alpha``.

    Raises `ValueError` if there is no launch, or an effect is not a finite number.
    """
    if not effects:
        raise ValueError("no launch, no interval")
    values = np.array([[effect.value for effect in effects]])
    if not np.isfinite(values).all():
        raise ValueError("an effect is not a finite number")
    pairs = np.array([effect.pair for effect in effects])
    errors = np.array([effect.error for effect in effects])
    usual = expected or policy.step_time
    # Medians have these errors, besides what launches usually differ.
    whole = usual._replace(launch_deviation=math.hypot(usual.launch_deviation, math.sqrt(np.mean(errors**2))))
    relative = relative_variances(usual, errors)
    distribution = posterior(values, pairs, policy, shared_zygote=shared_zygote, expected=whole, relative=relative)
    low, high = distribution.bounds(alpha)
    before, now = np.mean([effect.doubt for effect in effects], axis=0)  # all launches may be off in the same direction
    return Ratio(math.exp(distribution.center[0]), math.exp(low[0] - before), math.exp(high[0] + now), 1 - alpha)
