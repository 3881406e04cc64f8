"""From the rounds of launches to a ratio with an interval that knows both levels, launch and pair of zygotes.

The model: a launch of pair j shows the true log-ratio, plus what its two zygotes have in common over
all their launches (deviation tau), plus what is its own (deviation sigma). A handful of launches from
four pairs says little about either deviation, and t intervals with the three degrees of freedom that
they leave are hopelessly wide. So what is known of noise before the race counts too: the policy names
a typical value of each deviation and how far cases stray from it, and the interval averages over all
deviations, each weighted by how plausible it was before and how well it explains this case's launches.
Given the deviations everything is normal, so the answer is a mixture of normal distributions over a
grid (the random-effects model with an informative prior of Higgins, Thompson & Spiegelhalter 2009,
J. R. Stat. Soc. A 172, computed as in Roever 2020, J. Stat. Softw. 93(6)). The priors have the tails of
Student's t, so that a case which contradicts them is judged by its own launches.
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
from tfbench.policy import Policy

Floats = NDArray[np.float64]
Array = Any
"""An array in the middle of a formula, where the stubs of numpy 2.2 to 2.5 disagree about its type."""

_NORMAL_MAD = 1.482602218505602
"""From the median absolute deviation to the deviation of a normal distribution."""
_TAIL_DOF = 2.0
"""Degrees of freedom of the t distribution that a deviation's logarithm has before the race: so few
that noise a hundred times the usual is believed as soon as it is seen."""
_LAUNCH_STEPS: Array = np.concatenate([np.arange(-1.75, 3.0, 0.25), np.arange(3.0, 6.01, 0.5)])
_ZYGOTE_STEPS: Array = np.arange(-2.0, 6.01, 0.5)
"""Grids of the deviations, as the logarithm of their ratio to the policy's figure: from a seventh to 400 times.
The finer one follows what 30 launches know of their deviation, the coarser one what a few pairs do."""
_UNLIKELY = 8.0
"""Nodes whose prior is e to this power less than the best one's are left out: both figures far off."""
_BISECTIONS = 50
_FEW = 5


def median_log_ratio(baseline: Sequence[float], contender: Sequence[float]) -> float:
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
    return float(np.median(np.log(second) - np.log(first)))


@dataclass(frozen=True)
class Posterior:
    """Where the true log-ratios of many races lie: for each race a mixture of normal distributions.

    ``weights`` and ``centers`` have the shape (races, nodes), ``deviations`` (nodes,); a node is one
    value of both deviations of the noise.
    """

    weights: Floats
    centers: Floats
    deviations: Floats

    def below(self, value: float | Floats) -> Floats:
        """Probability that the true log-ratio is less than ``value`` (one for all races, or one each), shape (races,)."""
        bound: Array = np.asarray(value, dtype=float).reshape(-1, 1)
        return self._sum(special.ndtr((bound - self.centers) / self.deviations))

    def above(self, value: float | Floats) -> Floats:
        """Probability that the true log-ratio is more than ``value``; exact where it is tiny, as 1 - below is not."""
        bound = np.asarray(value, dtype=float).reshape(-1, 1)
        return self._sum(special.ndtr((self.centers - bound) / self.deviations))

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        """Both ends of the interval that leaves ``alpha / 2`` on either side, by bisection, shape (races,)."""
        reach = -special.ndtri(alpha / 2) * self.deviations
        middle = self._sum(self.centers)
        low, low_in = (self.centers - reach).min(axis=1), middle.copy()
        high_in, high = middle.copy(), (self.centers + reach).max(axis=1)
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
        found: Floats = np.einsum("rn,rn->r", self.weights, values)
        return found


def posterior(effects: Floats, pairs: NDArray[np.intp], policy: Policy, *, shared_zygote: bool) -> Posterior:
    """What races say that have the same pairs of zygotes in the same launches.

    Args:
        effects: Log-ratios, shape (races, launches).
        pairs: Which pair each launch belongs to, shape (launches,).
        shared_zygote: Whether the entrants of a launch come from one zygote. Its luck is then common
            to both, so the deviation between pairs is believed to be ``shared_zygote_deviation``.
    """
    between = policy.shared_zygote_deviation if shared_zygote else policy.zygote_deviation
    nodes = _grid(policy.launch_deviation, policy.launch_spread, between, policy.zygote_spread)
    values = huber_pseudovalues(effects, math.hypot(policy.launch_deviation, between), policy.clip)
    members = (pairs[None, :] == np.unique(pairs)[:, None]).astype(float)
    counts = members.sum(axis=1)
    number, launches = len(counts), values.shape[1]

    means = values @ members.T / counts
    within = ((values - means @ members) ** 2).sum(axis=1)
    origin = means.mean(axis=1, keepdims=True)
    means = means - origin  # so that the quadratic form below does not cancel

    of_mean = nodes.between[:, None] + nodes.launch[:, None] / counts  # variance of a pair's mean: (nodes, pairs)
    total = (1 / of_mean).sum(axis=1)
    centers = means @ (1 / of_mean / total[:, None]).T
    misfit = means**2 @ (1 / of_mean).T - centers**2 * total
    misfit += within[:, None] / nodes.launch
    constant = (launches - number) * np.log(nodes.launch) + np.log(of_mean).sum(axis=1) + np.log(total)
    logs = nodes.log_prior - 0.5 * (constant + misfit)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return Posterior(weights, centers + origin, 1 / np.sqrt(total))


@dataclass(frozen=True)
class _Grid:
    launch: Floats
    between: Floats
    log_prior: Floats


@lru_cache(maxsize=16)
def _grid(launch: float, launch_spread: float, between: float, between_spread: float) -> _Grid:
    """Both deviations' variances at every node, and how plausible a node is before the race."""

    def log_prior(steps: Floats, spread: float) -> Floats:
        density = -(_TAIL_DOF + 1) / 2 * np.log1p((steps / spread) ** 2 / _TAIL_DOF)
        found: Floats = density + np.log(np.gradient(steps))
        return found

    own: Array
    pair: Array
    own, pair = np.meshgrid(_LAUNCH_STEPS, _ZYGOTE_STEPS, indexing="ij")
    prior: Array = log_prior(_LAUNCH_STEPS, launch_spread)[:, None] + log_prior(_ZYGOTE_STEPS, between_spread)[None, :]
    likely = (prior > prior.max() - _UNLIKELY).ravel()
    return _Grid(
        (launch * np.exp(own)).ravel()[likely] ** 2,
        (between * np.exp(pair)).ravel()[likely] ** 2,
        prior.ravel()[likely],
    )


def huber_pseudovalues(effects: Floats, expected: float, clip: float) -> Floats:
    """Effects in which launches far out no longer decide alone.

    A launch further than ``clip`` deviations from the race's median is moved to that distance, and
    all distances are then stretched by launches / launches left in place: these are the pseudo-values
    of Huber's M-estimate of location in one step from the median (Bickel 1975, J. Am. Stat. Assoc. 70),
    whose mean and spread are its value and error. The deviation is the larger of ``expected`` and the
    scaled median absolute deviation. With more than a third of its launches far out, or with fewer than
    five launches, nobody can tell which ones are the odd ones; such a race is left as it is, wide.

    Args:
        effects: Shape (races, launches).
        expected: Deviation of a launch before the race, a log-ratio.
        clip: Deviations.
    """
    launches = effects.shape[1]
    if launches < _FEW:
        return effects
    middle = np.median(effects, axis=1, keepdims=True)
    away = effects - middle
    spread = _NORMAL_MAD * np.median(np.abs(away), axis=1, keepdims=True)
    limit = clip * np.maximum(expected, spread)
    far = (np.abs(away) > limit).sum(axis=1, keepdims=True)
    moved = middle + np.clip(away, -limit, limit) * (launches / (launches - far))
    found: Floats = np.where((far > 0) & (3 * far <= launches), moved, effects)
    return found


def interval(effects: Sequence[Effect], alpha: float, policy: Policy, *, shared_zygote: bool) -> Ratio:
    """The ratio contender / baseline with the interval that misses it with probability ``alpha``.

    Raises:
        ValueError: There is no launch, or an effect is not a finite number.
    """
    if not effects:
        raise ValueError("no launch, no interval")
    values = np.array([[effect.value for effect in effects]])
    if not np.isfinite(values).all():
        raise ValueError("an effect is not a finite number")
    pairs = np.array([effect.pair for effect in effects])
    distribution = posterior(values, pairs, policy, shared_zygote=shared_zygote)
    low, high = distribution.bounds(alpha)
    return Ratio(math.exp(distribution.center[0]), math.exp(low[0]), math.exp(high[0]), 1 - alpha)
