"""A case's own thresholds instead of the policy's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tfbench.model import Case
from tfbench.policy import Policy

FIELDS = ("minimum_effect", "tolerance")
"""Fields of the policy that a case can set."""


def policy_of(policy: Policy, case: Case) -> Policy:
    """Return the policy with the case's own thresholds."""
    if case.statistic:
        policy = dataclasses.replace(policy, statistic=case.statistic)
    if not case.thresholds:
        return policy
    own = dict(case.thresholds)
    effect, tolerance = own["minimum_effect"], own["tolerance"]
    screen = max(policy.screen_tolerance, tolerance)
    return dataclasses.replace(
        policy, minimum_effect=effect, tolerance=tolerance, once_effects=(effect, tolerance), screen_tolerance=screen
    )


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
