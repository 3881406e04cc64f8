"""Simulate whole races, decided as real ones are, to measure a policy's error rates.

Every look runs `tfbench.stats.interval.posterior` with the levels of `tfbench.stats.alpha_spending`
and the regions of `tfbench.stats.verdict`, for all races at once.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfbench.model import Outcome
from tfbench.policy import Policy, Thresholds
from tfbench.stats.alpha_spending import look_alpha, unchanged_alpha
from tfbench.stats.interval import Array, Floats, Posterior, posterior, with_error
from tfbench.stats.verdict import balanced, regions

_BATCH = 500
"""Races per batch: enough to be fast, few enough to stay in the processor's caches."""
_HEAVY_DOF = 3
_OTHER_MODE, _OTHER_MODE_SHARE = -math.log(0.7), 0.1
OUTCOMES = (Outcome.INCONCLUSIVE, Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED)
"""Possible outcomes of a race; arrays hold the index."""
_INCONCLUSIVE, _UNCHANGED, _IMPROVED, _REGRESSED = range(len(OUTCOMES))

Codes = NDArray[np.int8]
Counts = NDArray[np.int64]


class Noise(str, enum.Enum):
    """Distribution of the launches of a pair, all with the same standard deviation (bistable: that of its main mode)."""

    NORMAL = "normal"
    HEAVY = "heavy-tailed"
    """Student's t with 3 degrees of freedom."""
    BISTABLE = "bistable"
    """Normal, and in a tenth of the launches the baseline takes 30% less time."""
    SKEWED = "skewed"
    """Exponential with its mean at the true ratio: noise that only slows one side down."""


@dataclass(frozen=True)
class NoiseModel:
    """Effect and noise of the simulated launches; deviations are of log-ratios."""

    effect: float = 0.0
    """True slowdown, as a fraction."""
    launch_deviation: float = 0.006
    zygote_deviation: float = 0.005
    """Deviation between pairs of zygotes; all launches of a pair share its value."""
    noise: Noise = Noise.NORMAL
    rounds_error: float = 0.0
    """The part of ``launch_deviation`` that is the error of the rounds' median, which launches show."""


@dataclass(frozen=True)
class Races:
    """Outcomes and costs of simulated races; arrays have the shape (races,)."""

    first: Codes
    """Outcome of the first stage, as an index into `OUTCOMES`."""
    final: Codes
    """Outcome after confirmation."""
    launches: Counts
    """Launches of both stages."""

    def rate(self, outcome: Outcome, *, first: bool = False) -> float:
        """Return the share of races with this outcome; in the first stage alone if ``first``."""
        return float(np.mean((self.first if first else self.final) == OUTCOMES.index(outcome)))

    @property
    def median_launches(self) -> float:
        """Median number of launches per race, confirmation included."""
        return float(np.median(self.launches))


def simulate(
    policy: Policy, model: NoiseModel, races: int, seed: int, *, cases: int = 30, shared_zygote: bool = False
) -> Races:
    """Simulate races, with confirmation in fresh launches of fresh zygotes if the policy has it.

    The cases of a run share its alpha. Variants of a run come from one zygote, and are not confirmed.
    """
    rng = np.random.default_rng(seed)
    usual = policy.step_time
    expected = with_error(usual, model.rounds_error)
    order = np.array(policy.pair_order())

    def stage(races: int, thresholds: Thresholds) -> tuple[Codes, Counts]:
        codes, launches = np.full(races, _INCONCLUSIVE, dtype=np.int8), np.zeros(races, dtype=np.int64)
        open_races = np.arange(races)
        pair_bias = rng.normal(0, model.zygote_deviation, (races, policy.zygotes))
        effects: Array = np.empty((races, 0))
        for look, count in enumerate(policy.looks):
            pairs = order[:count]
            bias = pair_bias[:, pairs[effects.shape[1] :]]
            effects = np.hstack([effects, math.log1p(model.effect) + bias + scatter(rng, model, bias)])
            levels = look_alpha(policy, cases, look), unchanged_alpha(policy, look)
            found = np.empty(len(effects), dtype=np.int8)
            for part in range(0, len(effects), _BATCH):
                batch = slice(part, part + _BATCH)
                found[batch] = evaluate(
                    posterior(effects[batch], pairs, policy, shared_zygote=shared_zygote, expected=expected),
                    *levels, thresholds,
                )  # fmt: skip
            found[(found == _UNCHANGED) & ~balanced(effects, thresholds)] = _INCONCLUSIVE
            codes[open_races], launches[open_races] = found, count
            undecided = found == _INCONCLUSIVE
            open_races, pair_bias, effects = open_races[undecided], pair_bias[undecided], effects[undecided]
            if not len(open_races):
                break
        return codes, launches

    first, launches = stage(races, usual)
    final = first.copy()
    if policy.confirm and not shared_zygote:
        alarms = np.flatnonzero((first == _REGRESSED) | (first == _IMPROVED))
        again, more = stage(len(alarms), usual.confirming())
        final[alarms] = np.where(again == first[alarms], again, _INCONCLUSIVE)
        launches[alarms] += more
    return Races(first, final, launches)


def scatter(rng: np.random.Generator, model: NoiseModel, like: Floats) -> Floats:
    """Draw the noise of single launches in their log-ratios, in the shape of ``like``."""
    shape, deviation = like.shape, model.launch_deviation
    if model.noise is Noise.HEAVY:
        return deviation * (rng.standard_t(_HEAVY_DOF, shape) / math.sqrt(_HEAVY_DOF / (_HEAVY_DOF - 2)))
    if model.noise is Noise.SKEWED:
        return deviation * (rng.exponential(1, shape) - 1)
    found: Floats = deviation * rng.normal(0, 1, shape)
    if model.noise is Noise.BISTABLE:
        found += _OTHER_MODE * (rng.random(shape) < _OTHER_MODE_SHARE)
    return found


def evaluate(distribution: Posterior, alpha: float, alpha_unchanged: float, thresholds: Thresholds) -> Codes:
    """Decide all races as `tfbench.stats.verdict.decide` decides one, besides `balanced`; shape (races,).

    Args:
        alpha: Level of the interval that finds a change, both ends together.
        alpha_unchanged: Level of the interval that proves `unchanged`, both ends together.
    """
    tails = region_tails(distribution, thresholds, max(alpha, alpha_unchanged))
    codes, probable = (classify_races(tails, level) for level in (alpha, alpha_unchanged))
    unchanged = np.where(probable == _UNCHANGED, _UNCHANGED, _INCONCLUSIVE)
    found: Codes = np.where((codes == _REGRESSED) | (codes == _IMPROVED), codes, unchanged).astype(np.int8)
    return found


def region_tails(distribution: Posterior, thresholds: Thresholds, alpha: float) -> dict[int, Floats]:
    """Return code -> for each race the probability that the truth is beyond the nearer end of the region; (races,).

    An interval lies in a region exactly if this probability is less than half its level. Computing it once for
    all levels is faster than computing both ends of each interval.

    Args:
        alpha: The largest level of interest. A race that does not reach it has a tail of 1.
    """
    center = np.exp(distribution.center)
    tails = {}
    for region in regions(thresholds):
        # An interval in the region has its centre there, so most races need the tails of one region.
        races = np.flatnonzero((region.low <= center) & (center <= region.high))
        found = np.zeros(len(center))
        for end, beyond in ((region.low, Posterior.below), (region.high, Posterior.above)):
            if 0 < end < math.inf:
                found[races] = np.maximum(found[races], beyond(distribution.of(races), math.log(end)))
                races = races[found[races] < alpha / 2]
        tail = np.ones(len(center))
        tail[races] = found[races]
        tails[OUTCOMES.index(region.outcome)] = tail
    return tails


def classify_races(tails: Mapping[int, Floats], alpha: float) -> Codes:
    """Classify the intervals of all races at level ``alpha``, as `tfbench.stats.verdict.classify` does; shape (races,).

    Args:
        tails: Of `region_tails`. The first region that holds an interval counts.
    """
    lies_in = [tail < alpha / 2 for tail in tails.values()]
    return np.select(lies_in, list(tails), _INCONCLUSIVE).astype(np.int8)
