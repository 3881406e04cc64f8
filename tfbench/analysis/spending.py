"""How a run's chance of a false alarm is shared over its cases, its stages and its looks."""

from __future__ import annotations

import math

from tfbench.policy import Policy


def stage_alpha(policy: Policy, cases: int) -> float:
    """What one stage of one case may spend.

    A run of ``cases`` cases shares ``policy.alpha`` equally (Bonferroni), which holds whatever the
    cases have in common. With confirmation an alarm needs two stages that share neither launches
    nor zygotes, so their chances multiply and each may spend the square root.
    """
    share = policy.alpha / max(1, cases)
    return min(policy.alpha_case, math.sqrt(share) if policy.confirm else share)


def look_alpha(policy: Policy, cases: int) -> float:
    """What one look of one stage may spend, both sides of the interval together.

    Every planned look spends the same share: Pocock's (1977) shape, which reports a large
    regression at the first look, with the union bound over looks in place of his joint normal
    law, since the bound holds for clipped means and moderated t intervals as well.
    """
    return stage_alpha(policy, cases) / len(policy.looks)
