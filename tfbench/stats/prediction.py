"""Judge saved times, and the mean of a suite.

A session is one run of the suite. Its value for a case is the floor, the fastest block of its first
launches. The floors of unchanged code differ between sessions. How much depends on the case and the
machine, so the earlier sessions tell. The question is whether one more session fits into their spread,
which a prediction interval for a future observation answers (Hahn & Meeker 1991, Statistical Intervals,
ch. 4). Code changes between the earlier sessions widen the spread, which errs on the safe side.

The model is that of a random-effects meta-analysis: cases differ in their true log-ratio, and each is measured with an
error of its own. The weights follow DerSimonian & Laird (1986, Control. Clin. Trials 7), and the interval Hartung &
Knapp (2001, Stat. Med. 20): a t interval by the weighted scatter of the cases themselves. It holds for few cases, and
where the errors are known only by their order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, mean, stdev

import numpy as np
from scipy import special

from tfbench.model import Comparison, Note, Outcome, Ratio, Reason, ReasonCode, because
from tfbench.policy import Policy
from tfbench.stats.verdict import Decision, classify

# Compare saved times with the spread between sessions, without a race


Floors = Sequence[float]
"""The fastest block of each launch of one session, in seconds per iteration and in time order."""


def predict(now: float, own: Sequence[float], sessions: Sequence[float], alpha: float) -> Ratio:
    """Compute the ratio of a new session to the baseline's, with its prediction interval.

    Args:
        now: Logarithm of the new session's floor.
        own: The same of the sessions of the baseline's own code, at least one.
        sessions: The same of every earlier session, including ``own``, at least two; fewer raise `ValueError`.
        alpha: Both ends of the interval together.
    """
    if not own or len(sessions) < 2:
        raise ValueError("a spread needs at least two sessions, including one of the baseline's own code")
    effect = now - mean(own)
    reach = float(special.stdtrit(len(sessions) - 1, 1 - alpha / 2)) * stdev(sessions) * math.sqrt(1 + 1 / len(own))
    return Ratio(math.exp(effect), math.exp(effect - reach), math.exp(effect + reach), 1 - alpha)


def evaluate(
    now: Floors,
    own: Sequence[Floors],
    others: Sequence[Floors],
    calls: tuple[Floors, Floors],
    policy: Policy,
    cases: int,
) -> Decision:
    """Decide on a new session from the saved times of a case; usually `inconclusive`.

    A change is reported at the run's alpha divided by its cases, because no second race confirms it.
    `unchanged` is reported at ``policy.alpha_case``, within ``policy.screen_tolerance``, unless there is
    a change at that level.

    Args:
        now: The new session.
        own: Sessions of the baseline's own code, including the baseline itself.
        others: Sessions of other code of the same case, on the same machine in the same environment.
        calls: All rounds of the baseline, and of the new session. `unchanged` needs their means to be alike, too, since the
            fastest blocks say nothing about slow calls.
        cases: Cases of the whole run, which share its alpha.
    """
    launches = min(policy.floor_launches, *map(len, (now, *own, *others)))
    floor, *known = (math.log(min(session[:launches])) for session in (now, *own, *others))
    of_own = known[: len(own)]

    def decided(outcome: Outcome, reason: Reason, ratio: Ratio) -> Decision:
        return Decision(outcome, reason, Comparison(ratio, len(now), 1, len(calls[1])))

    if len(known) < policy.sessions:
        few = because(ReasonCode.FEW_SESSIONS, sessions=len(known), needed=policy.sessions)
        return decided(Outcome.INCONCLUSIVE, few, Ratio(math.exp(floor - mean(of_own)), 0.0, math.inf, 1.0))

    def saved(outcome: Outcome, note: Reason, ratio: Ratio) -> Decision:
        return decided(outcome, because(ReasonCode.SAVED_TIMES, note), ratio)

    spread = {"sessions": len(known), "deviation": stdev(known)}
    strict = predict(floor, of_own, known, policy.alpha / max(1, cases))
    changed = classify(strict.low, strict.high, policy.step_time)
    if changed in (Outcome.REGRESSED, Outcome.IMPROVED):
        return saved(changed, because(Note.BEYOND_SPREAD, ratio=strict, launches=len(now), **spread), strict)
    lax = predict(floor, of_own, known, policy.alpha_case)
    within = policy.step_time._replace(tolerance=policy.screen_tolerance)
    if classify(lax.low, lax.high, within) is Outcome.UNCHANGED:
        means = fmean(calls[1]) / fmean(calls[0])
        if means > 1 + within.tolerance:
            return saved(Outcome.INCONCLUSIVE, because(Note.MEANS_APART, fastest=lax.center, mean=means), lax)
        facts = {"launches": len(now), "tolerance": within.tolerance, **spread}
        return saved(Outcome.UNCHANGED, because(Note.WITHIN_SPREAD, ratio=lax, **facts), lax)
    return saved(Outcome.INCONCLUSIVE, because(Note.HIDDEN_BY_SPREAD, ratio=lax, **spread), lax)


# Average the ratios of many cases, with an interval: a small slowdown of all cases, which no single case shows


FEWEST = 2
"""Cases of a mean. One case has an interval of its own."""
_LEAST_SHARE = 0.5
"""Share of the median error below which a case gets no more weight: errors are estimated, and small ones by luck."""

_TINY = 1e-9
"""Least error, for intervals without width."""


def mean_ratio(ratios: Sequence[Ratio], confidence: float = 0.95) -> Ratio | None:
    """Return the mean of cases' ratios with its interval; ``None`` for fewer than `FEWEST` cases that can be used.

    A case is used if its ratio and both ends of its interval are positive numbers.

    Args:
        ratios: One per case, each with an interval at its own confidence.
        confidence: That of the mean's interval.
    """
    used = [one for one in ratios if 0 < one.low <= one.center <= one.high < math.inf and 0 < one.confidence < 1]
    if len(used) < FEWEST:
        return None
    center = np.log([one.center for one in used])
    width = np.log([one.high for one in used]) - np.log([one.low for one in used])
    quantile = special.ndtri(0.5 + np.array([one.confidence for one in used]) / 2)
    errors = width / (2 * quantile)
    variance = np.maximum(errors, max(_LEAST_SHARE * float(np.median(errors)), _TINY)) ** 2
    weights = 1 / (variance + _between(center, variance))
    mean = float(np.average(center, weights=weights))
    freedom = len(used) - 1
    error = math.sqrt(float(np.average((center - mean) ** 2, weights=weights)) / freedom)
    reach = float(special.stdtrit(freedom, 0.5 + confidence / 2)) * error
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), confidence)


def classify_mean(mean: Ratio, limit: float) -> Outcome:
    """Return the outcome that the interval of a mean proves.

    As for a single case, a change counts from half of the slowdown that is to be found: regressed or improved needs the
    whole interval beyond it, and unchanged the whole interval within the limit.
    """
    least = 1 + limit / 2
    if mean.low > least:
        return Outcome.REGRESSED
    if mean.high < 1 / least:
        return Outcome.IMPROVED
    return Outcome.UNCHANGED if 1 / (1 + limit) < mean.low and mean.high < 1 + limit else Outcome.INCONCLUSIVE


def _between(center: np.ndarray, variance: np.ndarray) -> float:
    """Return the variance of the true log-ratios between cases, by DerSimonian & Laird's method of moments."""
    weights = 1 / variance
    mean = np.average(center, weights=weights)
    excess = float(np.sum(weights * (center - mean) ** 2)) - (len(center) - 1)
    return max(0.0, excess / float(np.sum(weights) - np.sum(weights**2) / np.sum(weights)))
