"""Saved times against the spread between sessions: all that can be said without racing.

A session is one run of the suite; what stands for a case in it is its floor, the fastest block of its
first launches. The floors of unchanged code move between sessions, by how much is a matter of the case
and the machine, and it is learnt from the sessions that there were. The question is then whether one more
session fits in: a prediction interval for a future observation (Hahn & Meeker 1991, Statistical
Intervals, ch. 4). Code that changed between the earlier sessions widens their spread, which
errs on the side of doubt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev

from scipy import special

from tfbench.model import Comparison, Outcome, Ratio, Reason
from tfbench.policy import Policy
from tfbench.stats.verdict import Decision, change, classify, evidence, hidden

Floors = Sequence[float]
"""The floor of each launch of one session, seconds, in time order."""


def predict(now: float, own: Sequence[float], sessions: Sequence[float], alpha: float) -> Ratio:
    """The ratio of a new session to the baseline's, with an interval that knows how sessions differ.

    Args:
        now: Logarithm of the new session's floor.
        own: The same of the sessions of the baseline's own code, one at least.
        sessions: The same of every earlier session, those of ``own`` included, two at least.
        alpha: Both ends of the interval together.

    Raises:
        ValueError: There are fewer.
    """
    if not own or len(sessions) < 2:
        raise ValueError("a spread needs two sessions, and the baseline's own among them")
    effect = now - mean(own)
    reach = float(special.stdtrit(len(sessions) - 1, 1 - alpha / 2)) * stdev(sessions) * math.sqrt(1 + 1 / len(own))
    return Ratio(math.exp(effect), math.exp(effect - reach), math.exp(effect + reach), 1 - alpha)


def evaluate(
    now: Floors, own: Sequence[Floors], others: Sequence[Floors], rounds: int, policy: Policy, cases: int
) -> Decision:
    """What the saved times of a case say of a new session; `inconclusive` more often than not.

    A change is called one at the whole run's alpha shared over its cases, as no second race stands
    behind it. `unchanged` is claimed at ``policy.alpha_case``, within ``policy.screen_tolerance``, and
    not of what looks like a change at that level.

    Args:
        now: The new session.
        own: Sessions of the baseline's own code, the baseline itself among them.
        others: Sessions of other code of the same case, on the same machine in the same environment.
        rounds: How many rounds stand behind the new session.
        cases: Cases of the whole run, which share its alpha.
    """
    launches = min(policy.floor_launches, *map(len, (now, *own, *others)))

    def floor(session: Floors) -> float:
        return math.log(min(session[:launches]))

    known = [floor(session) for session in (*own, *others)]
    if len(known) < policy.sessions:
        text = (
            f"saved times alone: {len(known)} comparable session{'s' * (len(known) != 1)} of this case, "
            f"{policy.sessions} are wanted to know how much it moves by itself"
        )
        unknown = Ratio(math.exp(floor(now) - mean(known[: len(own)])), 0.0, math.inf, 1.0)
        return Decision(Outcome.INCONCLUSIVE, Reason("few-sessions", text), Comparison(unknown, len(now), 1, rounds))

    def against(alpha: float) -> Comparison:
        ratio = predict(floor(now), [floor(session) for session in own], known, alpha)
        return Comparison(ratio, len(now), 1, rounds)

    spread = f"the spread of {len(known)} sessions, deviation {stdev(known):.1%}"
    strict = against(policy.alpha / max(1, cases))
    if (changed := classify(strict.ratio.low, strict.ratio.high, policy)) in (Outcome.REGRESSED, Outcome.IMPROVED):
        text = f"{change(strict.ratio.center)} than {spread}, allows ({evidence(strict)}); not raced"
        return Decision(changed, Reason("saved-times", text), strict)
    lax = against(policy.alpha_case)
    low, high = 1 / (1 + policy.screen_tolerance), 1 + policy.screen_tolerance
    moved = classify(lax.ratio.low, lax.ratio.high, policy) in (Outcome.REGRESSED, Outcome.IMPROVED)
    if lax.ratio.low >= low and lax.ratio.high <= high and not moved:
        text = f"within {policy.screen_tolerance:.1%} by saved times, {change(lax.ratio.center)}, against {spread} ({evidence(lax)})"
        return Decision(Outcome.UNCHANGED, Reason("saved-times", f"{text}; not raced"), lax)
    text = f"saved times do not decide: {change(lax.ratio.center)}, and {spread}, could hide {hidden(lax.ratio):.1%}"
    return Decision(Outcome.INCONCLUSIVE, Reason("saved-times", text), lax)
