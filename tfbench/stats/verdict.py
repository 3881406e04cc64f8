"""Decide an outcome, with its reason, from the evidence of a race."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfbench.model import Comparison, Effect, Note, Outcome, Ratio, Reason, ReasonCode, Statistic, because
from tfbench.policy import Policy, Thresholds
from tfbench.stats.alpha_spending import case_alpha, look_alpha, look_of, unchanged_alpha
from tfbench.stats.interval import FEW, Floats, huber_pseudovalues, interval

CODES = {
    Outcome.REGRESSED: ReasonCode.SLOWER,
    Outcome.IMPROVED: ReasonCode.FASTER,
    Outcome.UNCHANGED: ReasonCode.WITHIN_TOLERANCE,
    Outcome.INCONCLUSIVE: ReasonCode.NOT_DECIDED,
    None: ReasonCode.RACING,
}
"""The reason codes of times that a race decides; ``None`` stands for an open race."""


@dataclass(frozen=True)
class Decision:
    """The decision at a look; ``outcome`` is ``None`` while the race goes on."""

    outcome: Outcome | None
    reason: Reason
    comparison: Comparison
    statistic: Statistic = Statistic.MEDIAN
    """What the comparison is about."""
    tail: Ratio | None = None
    """The ratio of the geometric means of the calls; ``None`` where the tail is not judged."""


class Region(NamedTuple):
    """A closed range of ratios: an interval that lies in it proves the outcome."""

    outcome: Outcome
    low: float
    high: float


def regions(thresholds: Thresholds) -> tuple[Region, ...]:
    """Return the ranges of ratios that prove an outcome; the first one that holds an interval counts.

    Swapping the sides mirrors them: ratio to 1 / ratio.

    Regressed and improved come first: an interval between the minimum effect and the tolerance is a
    real change, however small. Unchanged needs the whole interval within the tolerance, which is the
    two one-sided tests of Schuirmann (1987, J. Pharmacokinet. Biopharm. 15). Such an interval may
    exclude 1 or reach beyond the minimum effect: a real change that is too small to matter is no change.
    """
    effect, tolerance = 1 + thresholds.minimum_effect, 1 + thresholds.tolerance
    return (  # a ratio at the minimum effect itself is not yet a change
        Region(Outcome.REGRESSED, math.nextafter(effect, math.inf), math.inf),
        Region(Outcome.IMPROVED, 0.0, math.nextafter(1 / effect, 0)),
        Region(Outcome.UNCHANGED, 1 / tolerance, tolerance),
    )


def compare(
    effects: Sequence[Effect],
    rounds: int,
    policy: Policy,
    *,
    cases: int,
    shared_zygote: bool,
    thresholds: Thresholds | None = None,
    share: float = 1.0,
) -> Comparison:
    """Compute the ratio and the interval that finds a change, at the look that this number of launches belongs to.

    The confidence of the ratio is that of the whole race: with this probability the intervals of all
    looks contain the true ratio (repeated confidence intervals, Jennison & Turnbull 1989,
    J. R. Stat. Soc. B 51). Stopping at an interval that decides therefore costs no further alpha.

    Args:
        effects: One per launch, as for `interval`, which may refuse them.
        rounds: Number of rounds of these launches.
        cases: Cases of the whole run, which share its alpha.
        shared_zygote: Whether the entrants of a launch are forked from one zygote.
        thresholds: Has the noise to expect; those of the step's time by default.
        share: Part of the alpha of the stage that is spent on this question.
    """
    alpha = look_alpha(policy, cases, look_of(len(effects), policy.looks), share)
    ratio = interval(effects, alpha, policy, shared_zygote=shared_zygote, expected=thresholds)
    return Comparison(
        ratio=replace(ratio, confidence=1 - share * case_alpha(policy, cases)),
        launches=len(effects),
        pairs=len({effect.pair for effect in effects}),
        rounds=rounds,
    )


def classify(low: float, high: float, thresholds: Thresholds) -> Outcome | None:
    """Return the outcome that an interval of ratios proves by `regions`, or ``None`` if it proves none."""
    proved = (region.outcome for region in regions(thresholds) if region.low <= low and high <= region.high)
    return next(proved, None)


def decide(
    effects: Sequence[Effect],
    rounds: int,
    policy: Policy,
    *,
    cases: int,
    shared_zygote: bool,
    final: bool,
    thresholds: Thresholds | None = None,
    share: float = 1.0,
) -> Decision:
    """Decide from the evidence at a look, by the thresholds of the step's time unless others are given.

    The caller races a first ``regressed`` again, in fresh launches of fresh zygotes, and decides from
    those launches alone at the same levels. The case has regressed only if both stages say so.
    `tfbench.stats.alpha_spending.case_alpha` accounts for the alpha of both stages.

    ``unchanged`` is proved by an interval of its own level (`unchanged_alpha`), which the comparison then has. If
    that interval lies beyond the minimum effect, the race goes on, because the change is probably real.

    Args and errors are those of `compare`, where ``effects`` are of this stage only. ``final`` tells whether
    this was the last launch, so that an undecided case is inconclusive.
    """
    chosen = thresholds or policy.step_time
    comparison = compare(
        effects, rounds, policy, cases=cases, shared_zygote=shared_zygote, thresholds=chosen, share=share
    )
    outcome = classify(comparison.ratio.low, comparison.ratio.high, chosen)
    lopsided, values = False, np.array([[effect.value for effect in effects]])
    if outcome not in (Outcome.REGRESSED, Outcome.IMPROVED):
        alpha = unchanged_alpha(policy, look_of(len(effects), policy.looks))
        narrow = interval(effects, alpha, policy, shared_zygote=shared_zygote, expected=chosen)
        proved = classify(narrow.low, narrow.high, chosen) is Outcome.UNCHANGED
        lopsided = proved and not balanced(values, chosen)[0]
        if proved and not lopsided:
            outcome = Outcome.UNCHANGED
            comparison = replace(comparison, ratio=replace(narrow, confidence=1 - 2 * policy.alpha_unchanged))
        else:
            outcome = Outcome.INCONCLUSIVE if final else None
    if lopsided:
        return Decision(outcome, because(CODES[outcome], _lopsided(values[0], chosen)), comparison)
    return Decision(outcome, _reason(outcome, comparison, chosen, policy.name), comparison)


def _lopsided(effects: Floats, thresholds: Thresholds) -> Reason:
    away = np.abs(effects - np.median(effects)) > math.log1p(thresholds.tolerance)
    mean = math.exp(float(effects.mean()))
    return because(Note.LOPSIDED, differing=int(away.sum()), launches=len(effects), mean=mean)


def _reason(outcome: Outcome | None, comparison: Comparison, thresholds: Thresholds, policy: str) -> Reason:
    facts: dict[str, object] = {}
    if outcome is Outcome.UNCHANGED:
        facts = {"tolerance": thresholds.tolerance}
    elif outcome in (Outcome.INCONCLUSIVE, None):
        facts = {"minimum_effect": thresholds.minimum_effect, "policy": policy}
    return because(CODES[outcome], ratio=comparison.ratio, launches=comparison.launches, **facts)


def launches_needed(effects: Sequence[Effect], thresholds: Thresholds, clip: float) -> float:
    """Estimate the launches after which the interval proves an outcome, from the mean and the scatter of these.

    Two standard errors have to fit between the mean and the nearer of what the interval can prove: no more than the
    tolerance, or more than the minimum effect. The interval itself says less, since it is far too wide after few launches.
    A single outlying launch does not count: it is limited as in the interval or, where that takes more launches, left out.
    Two launches cannot tell which of them is one, so the estimate is 0.

    Args:
        clip: Deviations from the median beyond which a launch is an outlier, see `huber_pseudovalues`.
    """
    values = np.array([effect.value for effect in effects])
    if len(values) < 3:
        return 0.0
    if len(values) < FEW:
        values = np.delete(values, np.abs(values - np.median(values)).argmax())
    values = huber_pseudovalues(values[np.newaxis], thresholds.launch_deviation, clip)[0]
    away = abs(float(values.mean()))
    room = max(math.log1p(thresholds.tolerance) - away, away - math.log1p(thresholds.minimum_effect))
    return float(2 * values.std(ddof=1) / room) ** 2


def balanced(effects: Floats, thresholds: Thresholds) -> NDArray[np.bool_]:
    """Return for each race whether the plain mean of its launches lies within the tolerance too; shape (races,).

    The centre of the interval sets single outlying launches aside. So it cannot tell noise, which strikes both sides,
    from a slow mode that only one side has. The mean can: launches that are 30% slower in every fifth process are
    5% on average. ``effects`` are log-ratios of the shape (races, launches).
    """
    found: NDArray[np.bool_] = np.abs(effects.mean(axis=1)) <= math.log1p(thresholds.tolerance)
    return found
