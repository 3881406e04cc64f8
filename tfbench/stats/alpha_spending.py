"""Spend alpha over looks and cases, by the thresholds of a case."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from tfbench.model import THRESHOLDS, Case, Note, Reason, because
from tfbench.policy import Policy, Thresholds
from tfbench.stats.interval import Array

# A case's own thresholds instead of the policy's


def policy_of(policy: Policy, *cases: Case) -> Policy:
    """Return the policy with the own thresholds and statistic of a case.

    If the case has others on the other side, the last of ``cases``, the stricter thresholds and the statistic of that side
    count.
    """

    def strictest(usual: tuple[float, float]) -> tuple[float, float]:
        pairs = [tuple(value for _, value in case.thresholds) or usual for case in cases]
        return min(effect for effect, _ in pairs), min(tolerance for _, tolerance in pairs)

    effect, tolerance = strictest((policy.minimum_effect, policy.tolerance))
    once, statistic = strictest(policy.once_effects), cases[-1].statistic or policy.statistic
    return dataclasses.replace(
        policy, minimum_effect=effect, tolerance=tolerance, once_effects=once, statistic=statistic
    )


def judged(case: Case, usual: Thresholds, used: Thresholds) -> Case:
    """Return the case with the thresholds that its verdict used, none if they are the usual ones."""
    pairs = tuple((name, float(getattr(used, name))) for name in THRESHOLDS)
    return dataclasses.replace(case, thresholds=() if usual[:2] == used[:2] else pairs)


def ignored(case: Case, used: Thresholds) -> Reason | None:
    """Return a note that the case's own thresholds are looser than the used ones, ``None`` if they are not."""
    if not case.thresholds or all(getattr(used, name) >= value for name, value in case.thresholds):
        return None
    return because(Note.STRICTER_THRESHOLDS, **dict(case.thresholds))


def completed(given: Mapping[str, float], policy: Policy) -> dict[str, float]:
    """Return both thresholds of a case that sets at least one of them.

    The other one is the policy's where the two agree. Otherwise the tolerance is twice the minimum effect.
    Raises `ValueError` if a value is no fraction, or the minimum effect is not below the tolerance.
    """
    effect, tolerance = given.get("minimum_effect"), given.get("tolerance")
    if effect is None and tolerance is not None:
        effect = min(policy.minimum_effect, tolerance / 2)
    if tolerance is None and effect is not None:
        tolerance = max(policy.tolerance, 2 * effect)
    if effect is None or tolerance is None or not 0 < effect < tolerance < 1:
        raise ValueError(f"0 < minimum_effect < tolerance < 1 must hold, but they are {effect} and {tolerance}")
    return {"minimum_effect": effect, "tolerance": tolerance}


# Divide the alpha of a run over its cases, stages and looks


_REACH = 8.0
"""The grid of the score process ends this many deviations from zero; the probability beyond is 1e-15."""
_POINTS = 801


def case_alpha(policy: Policy, cases: int) -> float:
    """Compute the alpha of one stage of one case, for both ends of its interval together.

    A run of ``cases`` cases shares ``policy.alpha`` equally (Bonferroni), which holds however the cases
    depend on each other. A false positive is an interval wholly above, so a stage spends half of its
    alpha on it. With confirmation, a false positive needs two stages, which share neither launches nor
    zygotes. Given the noise of the case, both are independent and their probabilities multiply:
    (a / 2)^2 = share. If the second stage raced from the zygotes of the first, only the launches' part
    of the error would be new. The bias of the zygotes, the larger part, would be found again.
    ``policy.alpha_case`` limits the alpha of a stage.
    """
    share = policy.alpha / max(1, cases)
    return min(policy.alpha_case, 2 * math.sqrt(share) if policy.confirm else share)


@lru_cache(maxsize=64)
def alpha_per_look(alpha: float, looks: tuple[int, ...], spent: tuple[float, ...] = ()) -> tuple[float, ...]:
    """Compute the nominal two-sided level of every look, so that all looks together err with ``alpha``.

    This is alpha spending by Lan & DeMets (1983, Biometrika 70), by the recursion of Armitage, McPherson & Rowe (1969, J. R.
    Stat. Soc. A 132). Even shares give the first look more than the functions by Pocock or O'Brien and Fleming: an early look
    is there to report a large change.

    Levels apply to any distribution of the evidence. Information is assumed to grow with launches. That of the zygotes grows
    more slowly, which makes looks more alike than assumed and errs on the safe side.

    Args:
        alpha: Both sides together, over all looks.
        looks: Increasing numbers of launches.
        spent: Cumulative share of ``alpha`` that may be spent by each look, the last one 1; even steps by default.
    """
    shares = spent or tuple((index + 1) / len(looks) for index in range(len(looks)))
    information = [look / looks[-1] for look in looks]
    steps = np.diff([0.0, *shares]) * alpha / 2
    levels: list[float] = []
    scores: Array = np.zeros(1)
    density: Array = np.ones(1)  # of the score of open races on the grid, times the grid's step
    before = 0.0
    for step, now in zip(steps, information, strict=True):
        scale = math.sqrt(now - before)
        # Find the boundary that is crossed with the probability of this look's share, by bisection to the last bit.
        # Importing scipy.optimize, for brentq, would cost every start of tfbench a quarter of a second.
        low, z, high = 0.0, _REACH / 2, _REACH
        for _ in range(60):
            crossed = density @ special.ndtr((scores - z * math.sqrt(now)) / scale)
            low, high = (z, high) if crossed > step else (low, z)
            z = (low + high) / 2
        levels.append(2 * float(special.ndtr(-z)))
        grid = np.linspace(-_REACH * math.sqrt(now), z * math.sqrt(now), _POINTS)
        weight = np.full(_POINTS, grid[1] - grid[0])
        weight[[0, -1]] /= 2
        kernel = np.exp(-0.5 * ((grid[:, None] - scores[None, :]) / scale) ** 2) / (scale * math.sqrt(2 * math.pi))
        density, scores, before = (kernel @ density) * weight, grid, now
    return tuple(levels)


def look_of(launches: int, looks: Sequence[int]) -> int:
    """Return the index of the look for this number of launches.

    If the budget ran out between two looks, it is the next one: the race ends there, so the shares of
    that look and of all later ones are unspent.
    """
    return next((index for index, look in enumerate(looks) if launches <= look), len(looks) - 1)


def look_alpha(policy: Policy, cases: int, look: int, share: float = 1.0) -> float:
    """Compute the nominal level at which a look of one stage finds a change, for both ends of the interval together.

    This question spends ``share`` of the alpha of the stage.
    """
    return alpha_per_look(share * case_alpha(policy, cases), policy.looks)[look]


def unchanged_alpha(policy: Policy, look: int) -> float:
    """Compute the nominal level at which a look proves `unchanged`, for both ends of the interval together.

    The looks share ``policy.alpha_unchanged`` on either side. The cases do not share it, because an `unchanged`
    fails no run.
    """
    return alpha_per_look(2 * policy.alpha_unchanged, policy.looks)[look]
