"""A case's own thresholds instead of the policy's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tfbench.model import THRESHOLDS, Case
from tfbench.policy import Policy, Thresholds


def policy_of(policy: Policy, *cases: Case) -> Policy:
    """Return the policy with the cases' own thresholds and statistic.

    If a case has others on the other side, the last of ``cases``, the stricter thresholds and the statistic of that side count.
    """
    own = [_own(policy, case) for case in cases] or [policy]
    statistic = cases[-1].statistic if cases else ""
    effects, tolerances = zip(*(one.once_effects for one in own), strict=True)
    return dataclasses.replace(
        policy,
        minimum_effect=min(one.minimum_effect for one in own),
        tolerance=min(one.tolerance for one in own),
        once_effects=(min(effects), min(tolerances)),
        screen_tolerance=min(one.screen_tolerance for one in own),
        statistic=statistic or policy.statistic,
    )


def _own(policy: Policy, case: Case) -> Policy:
    if not case.thresholds:
        return policy
    own = dict(case.thresholds)
    effect, tolerance = own["minimum_effect"], own["tolerance"]
    screen = max(policy.screen_tolerance, tolerance)
    return dataclasses.replace(
        policy, minimum_effect=effect, tolerance=tolerance, once_effects=(effect, tolerance), screen_tolerance=screen
    )


def judged(case: Case, usual: Thresholds, used: Thresholds) -> Case:
    """Return the case with the thresholds that its verdict used, none if they are the usual ones."""
    pairs = tuple((name, float(getattr(used, name))) for name in THRESHOLDS)
    return dataclasses.replace(case, thresholds=() if usual[:2] == used[:2] else pairs)


def ignored(case: Case, used: Thresholds) -> str:
    """Say that the case's own thresholds are looser than the used ones, ``""`` if they are not."""
    if not case.thresholds or all(getattr(used, name) >= value for name, value in case.thresholds):
        return ""
    return f"its own thresholds ({described(case)}) are looser than the baseline's, so the stricter ones count"


def completed(given: Mapping[str, float], policy: Policy) -> dict[str, float]:
    """Return both thresholds of a case that sets at least one of them.

    The other one is the policy's where the two agree. Otherwise the tolerance is twice the minimum effect.

    Raises:
        ValueError: A value is no fraction, or the minimum effect is not below the tolerance.
    """
    effect, tolerance = given.get("minimum_effect"), given.get("tolerance")
    if effect is None and tolerance is not None:
        effect = min(policy.minimum_effect, tolerance / 2)
    if tolerance is None and effect is not None:
        tolerance = max(policy.tolerance, 2 * effect)
    if effect is None or tolerance is None or not 0 < effect < tolerance < 1:
        raise ValueError(f"0 < minimum_effect < tolerance < 1 must hold, but they are {effect} and {tolerance}")
    return {"minimum_effect": effect, "tolerance": tolerance}


def described(case: Case) -> str:
    """Return ``minimum effect 5.0%, tolerance 10.0%``; ``""`` for a case without own thresholds."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.1%}" for name, value in case.thresholds)
