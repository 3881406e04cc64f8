"""Whole races of made-up launches, decided as real ones are: what a policy's error rates are.

Every look runs `tfbench.stats.interval.posterior` with the levels of `tfbench.stats.alpha_spending`
and the bounds of `tfbench.stats.verdict`, for all races at once. An interval lies above a bound
exactly when the probability below that bound is less than alpha / 2, which saves finding its ends.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfbench.model import Outcome
from tfbench.policy import Policy
from tfbench.stats.alpha_spending import look_alpha
from tfbench.stats.interval import Array, Floats, Posterior, posterior
from tfbench.stats.verdict import Bounds

_BATCH = 2_500
"""Races looked at together: enough to be quick, few enough to stay in the processor's caches."""
_HEAVY_DOF = 3
_OTHER_MODE, _OTHER_MODE_SHARE = -math.log(0.7), 0.1
OUTCOMES = (Outcome.INCONCLUSIVE, Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED)
"""What a race can end as; arrays hold the index."""
_INCONCLUSIVE, _UNCHANGED, _IMPROVED, _REGRESSED = range(4)

Codes = NDArray[np.int8]
Counts = NDArray[np.int64]


class Noise(str, enum.Enum):
    """How launches of a pair scatter, with the same standard deviation (the bistable one: in its main mode)."""

    NORMAL = "normal"
    HEAVY = "heavy-tailed"
    """Student's t with 3 degrees of freedom."""
    BISTABLE = "bistable"
    """Normal, and in a tenth of the launches the baseline takes 30% less time."""
    SKEWED = "skewed"
    """Exponential, its mean at the true ratio: noise that only ever slows one side down."""


@dataclass(frozen=True)
class NoiseModel:
    """What the simulated launches are like; deviations are of log-ratios, as fractions."""

    effect: float = 0.0
    """True slowdown, as a fraction."""
    launch_deviation: float = 0.006
    zygote_deviation: float = 0.005
    """Deviation between pairs of zygotes, which every launch of a pair has in common."""
    noise: Noise = Noise.NORMAL


@dataclass(frozen=True)
class Races:
    """What became of simulated races; arrays have the shape (races,)."""

    first: Codes
    """Outcome of the first stage, as an index into `OUTCOMES`."""
    final: Codes
    """Outcome after confirmation."""
    launches: Counts
    """Launches of both stages."""

    def rate(self, outcome: Outcome, *, first: bool = False) -> float:
        """Share of races with this outcome; of the first stage alone if ``first``."""
        return float(np.mean((self.first if first else self.final) == OUTCOMES.index(outcome)))

    @property
    def rates(self) -> Mapping[Outcome, float]:
        """Share of races with each outcome."""
        return {outcome: self.rate(outcome) for outcome in OUTCOMES}

    @property
    def mean_launches(self) -> float:
        """Launches of a race on average, confirmation included."""
        return float(np.mean(self.launches))

    @property
    def median_launches(self) -> float:
        """Launches of half of the races at most, confirmation included."""
        return float(np.median(self.launches))


def simulate(
    policy: Policy, model: NoiseModel, races: int, seed: int, *, cases: int = 30, shared_zygote: bool = False
) -> Races:
    """Race ``races`` times, with confirmation in fresh launches of fresh zygotes where the policy asks for it.

    Args:
        cases: Cases of a run, which share its alpha.
        shared_zygote: Whether the entrants of a launch come from one zygote; variants of a run,
            which do, are not confirmed.
    """
    rng = np.random.default_rng(seed)
    first, launches = _stages(policy, model, races, rng, cases, shared_zygote)
    final = first.copy()
    if policy.confirm and not shared_zygote:
        alarms = np.flatnonzero(first == _REGRESSED)
        again, more = _stages(policy, model, len(alarms), rng, cases, shared_zygote)
        final[alarms] = np.where(again == _REGRESSED, _REGRESSED, _INCONCLUSIVE)
        launches[alarms] += more
    return Races(first, final, launches)


def _stages(
    policy: Policy, model: NoiseModel, races: int, rng: np.random.Generator, cases: int, shared_zygote: bool
) -> tuple[Codes, Counts]:
    codes, launches = np.full(races, _INCONCLUSIVE, dtype=np.int8), np.zeros(races, dtype=np.int64)
    for start in range(0, races, _BATCH):
        batch = slice(start, min(races, start + _BATCH))
        _stage(policy, model, rng, cases, shared_zygote, codes[batch], launches[batch])
    return codes, launches


def _stage(
    policy: Policy,
    model: NoiseModel,
    rng: np.random.Generator,
    cases: int,
    shared_zygote: bool,
    codes: Codes,
    launches: Counts,
) -> None:
    """One stage of some races; fills ``codes`` and ``launches``."""
    open_races = np.arange(len(codes))
    luck = rng.normal(0, model.zygote_deviation, (len(codes), policy.zygotes))
    effects: Array = np.empty((len(codes), 0))
    for look, count in enumerate(policy.looks):
        pairs = np.arange(effects.shape[1], count) % policy.zygotes
        effects = np.hstack([effects, math.log1p(model.effect) + luck[:, pairs] + scatter(rng, model, luck[:, pairs])])
        distribution = posterior(effects, np.arange(count) % policy.zygotes, policy, shared_zygote=shared_zygote)
        found = evaluate(distribution, look_alpha(policy, cases, look), policy)
        codes[open_races], launches[open_races] = found, count
        going_on = found == _INCONCLUSIVE
        open_races, luck, effects = open_races[going_on], luck[going_on], effects[going_on]
        if not len(open_races):
            return


def scatter(rng: np.random.Generator, model: NoiseModel, like: Floats) -> Floats:
    """What is a launch's own in its log-ratio, in the shape of ``like``."""
    shape = like.shape
    if model.noise is Noise.HEAVY:
        unit = rng.standard_t(_HEAVY_DOF, shape) / math.sqrt(_HEAVY_DOF / (_HEAVY_DOF - 2))
    elif model.noise is Noise.SKEWED:
        unit = rng.exponential(1, shape) - 1
    else:
        unit = rng.normal(0, 1, shape)
    found: Floats = model.launch_deviation * unit
    if model.noise is Noise.BISTABLE:
        found = found + _OTHER_MODE * (rng.random(shape) < _OTHER_MODE_SHARE)
    return found


def evaluate(distribution: Posterior, alpha: float, policy: Policy) -> Codes:
    """What `tfbench.stats.verdict.classify` says of the intervals at level ``alpha``, shape (races,)."""
    bounds, tail = Bounds.of(policy), alpha / 2
    codes = np.full(len(distribution.weights), _INCONCLUSIVE, dtype=np.int8)
    center = distribution.center

    def where(candidates: NDArray[np.bool_], ratio: float, *, wholly_above: bool) -> NDArray[np.intp]:
        """Those candidates whose interval lies wholly on one side of a ratio."""
        chosen = np.flatnonzero(candidates)
        one = Posterior(distribution.weights[chosen], distribution.centers[chosen], distribution.deviations)
        outside = one.below(math.log(ratio)) if wholly_above else one.above(math.log(ratio))
        found: NDArray[np.intp] = chosen[outside < tail]
        return found

    # An interval on one side of a ratio has its centre there, so most races need few of the four questions.
    codes[where(center > math.log(bounds.regressed), bounds.regressed, wholly_above=True)] = _REGRESSED
    codes[where(center < math.log(bounds.improved), bounds.improved, wholly_above=False)] = _IMPROVED
    within = (codes == _INCONCLUSIVE) & (np.abs(center) < math.log(bounds.unchanged_high))
    for ratio, above in ((bounds.unchanged_high, False), (bounds.unchanged_low, True)):
        kept = np.zeros_like(within)
        kept[where(within, ratio, wholly_above=above)] = True
        within = kept
    codes[within] = _UNCHANGED
    return codes
