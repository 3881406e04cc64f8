"""From evidence to an outcome with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.model import Comparison, Effect, Outcome, Ratio, Reason
from tfbench.policy import Policy
from tfbench.stats.alpha_spending import case_alpha, look_alpha, look_of
from tfbench.stats.interval import interval


@dataclass(frozen=True)
class Decision:
    """What the launches so far decide; ``outcome`` is ``None`` while the race goes on."""

    outcome: Outcome | None
    reason: Reason
    comparison: Comparison


@dataclass(frozen=True)
class Bounds:
    """The ratios at which outcomes begin. Both sides swapped mirror them: 1 / ratio."""

    regressed: float
    improved: float
    unchanged_low: float
    unchanged_high: float

    @staticmethod
    def of(policy: Policy) -> Bounds:
        least, most = 1 + policy.minimum_effect, 1 + policy.tolerance
        return Bounds(least, 1 / least, 1 / most, most)


def compare(
    effects: Sequence[Effect], rounds: int, policy: Policy, *, cases: int, look: int, shared_zygote: bool
) -> Comparison:
    """The ratio and its interval at a look.

    The confidence that the ratio carries is that of the whole race: with this probability the
    intervals of all looks hold the true ratio (repeated confidence intervals, Jennison & Turnbull
    1989, J. R. Stat. Soc. B 51), so stopping where an interval decides costs nothing further.

    Args:
        effects: One a launch.
        rounds: How many rounds stand behind them.
        cases: Cases of the whole run, which share its alpha.
        look: Index of the planned look, from 0.
        shared_zygote: Whether the entrants of a launch are forked from one zygote.

    Raises:
        ValueError: There is no launch, or an effect is not a finite number.
    """
    ratio = interval(effects, look_alpha(policy, cases, look), policy, shared_zygote=shared_zygote)
    return Comparison(
        ratio=Ratio(ratio.center, ratio.low, ratio.high, 1 - case_alpha(policy, cases)),
        launches=len(effects),
        pairs=len({effect.pair for effect in effects}),
        rounds=rounds,
    )


def classify(low: float, high: float, policy: Policy) -> Outcome | None:
    """The outcome that an interval of ratios proves, or ``None`` if it proves none.

    Regressed and improved are asked first: an interval that lies between the minimum effect and the
    tolerance is a real change, however small. Unchanged needs the whole interval within the
    tolerance, which is the two one-sided tests of Schuirmann (1987, J. Pharmacokinet. Biopharm. 15);
    it may leave 1 out, or reach beyond the minimum effect: a change that is real and too small to
    matter is no change. What straddles the tolerance proves nothing.
    """
    bounds = Bounds.of(policy)
    if low > bounds.regressed:
        return Outcome.REGRESSED
    if high < bounds.improved:
        return Outcome.IMPROVED
    if low >= bounds.unchanged_low and high <= bounds.unchanged_high:
        return Outcome.UNCHANGED
    return None


def decide(
    effects: Sequence[Effect],
    rounds: int,
    policy: Policy,
    *,
    cases: int,
    shared_zygote: bool,
    final: bool,
) -> Decision:
    """Judge the evidence at a look.

    A first ``regressed`` is to be raced again, in fresh launches of fresh zygotes, and decided from
    those launches alone at the same levels; only if both say regressed has the case regressed.
    `tfbench.stats.alpha_spending.case_alpha` accounts for what the two stages may spend together.

    Args:
        effects: One a launch, of this stage only.
        rounds: How many rounds stand behind them.
        cases: Cases of the whole run, which share its alpha.
        shared_zygote: Whether the entrants of a launch are forked from one zygote.
        final: There will be no further launch, so what is not decided is inconclusive.

    Raises:
        ValueError: There is no launch, or an effect is not a finite number.
    """
    look = look_of(len(effects), policy.looks)
    comparison = compare(effects, rounds, policy, cases=cases, look=look, shared_zygote=shared_zygote)
    outcome = classify(comparison.ratio.low, comparison.ratio.high, policy)
    if outcome is None and final:
        outcome = Outcome.INCONCLUSIVE
    return Decision(outcome, _reason(outcome, comparison, policy), comparison)


_CODES = {
    Outcome.REGRESSED: "slower",
    Outcome.IMPROVED: "faster",
    Outcome.UNCHANGED: "within-tolerance",
    Outcome.INCONCLUSIVE: "not-decided",
    None: "racing",
}


def _reason(outcome: Outcome | None, comparison: Comparison, policy: Policy) -> Reason:
    ratio = comparison.ratio
    reported = evidence(comparison)
    if outcome in (Outcome.REGRESSED, Outcome.IMPROVED):
        text = f"{change(ratio.center)} ({reported})"
    elif outcome is Outcome.UNCHANGED:
        text = f"within {policy.tolerance:.1%} either way: {change(ratio.center)} ({reported})"
    elif hidden(ratio) > policy.minimum_effect:
        text = (
            f"not decided: a slowdown of {_percent(hidden(ratio))} could still be hiding ({reported}); {_fix(policy)}"
        )
    else:
        text = f"not decided, but not slower: at worst {change(ratio.high)} ({reported}); {_fix(policy)}"
    return Reason(_CODES[outcome], text)


def _fix(policy: Policy) -> str:
    strict = "" if policy.name == "strict" else "--policy strict, "
    return f"{strict}more launches or a quieter machine (`tfbench doctor`) tell more"


def hidden(ratio: Ratio) -> float:
    """The largest slowdown that the interval leaves possible, as a fraction; 0 if none is."""
    return max(0.0, ratio.high - 1)


def change(ratio: float) -> str:
    """A ratio of times in words: ``5.2% slower``; factors above 2 as ``3.4x slower``."""
    word, factor = ("slower", ratio) if ratio >= 1 else ("faster", 1 / ratio)
    if factor >= 2:
        return f"{factor:.1f}x {word}"
    return f"{abs(ratio - 1):.1%} {word}"


def _percent(fraction: float) -> str:
    return f"{fraction:.1%}" if fraction < 1 else f"a factor of {1 + fraction:.1f}"


def evidence(comparison: Comparison) -> str:
    """What a reason quotes: ``interval +1.0% to +3.0% at 95% confidence, 6 launches``."""
    ratio = comparison.ratio
    low, high = (f"{end - 1:+.1%}" if end < 3 else f"{end:.1f}x" for end in (ratio.low, ratio.high))
    launches = f"{comparison.launches} launch{'' if comparison.launches == 1 else 'es'}"
    return f"interval {low} to {high} at {100 * ratio.confidence:.4g}% confidence, {launches}"
