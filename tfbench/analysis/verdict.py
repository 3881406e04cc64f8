"""From evidence to an outcome with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.analysis.spending import look_alpha
from tfbench.analysis.statistics import interval
from tfbench.model import Comparison, Effect, Outcome, Ratio, Reason
from tfbench.policy import Policy


@dataclass(frozen=True)
class Decision:
    """What the launches so far decide; ``outcome`` is ``None`` while the race goes on."""

    outcome: Outcome | None
    reason: Reason
    comparison: Comparison


def compare(effects: Sequence[Effect], rounds: int, policy: Policy, *, cases: int, shared_zygote: bool) -> Comparison:
    """The ratio and its interval at a look.

    Args:
        effects: One a launch.
        rounds: How many rounds stand behind them.
        cases: Cases of the whole run, which share its alpha.
    """
    return Comparison(
        ratio=interval(effects, look_alpha(policy, cases), policy, shared_zygote=shared_zygote),
        launches=len(effects),
        pairs=len({effect.pair for effect in effects}),
        rounds=rounds,
    )


def classify(low: float, high: float, policy: Policy) -> Outcome | None:
    """The outcome that an interval of ratios proves, or ``None`` if it proves none.

    Regressed and improved are asked first: an interval that lies between the minimum effect and the
    tolerance is a real change, however small. Unchanged needs the whole interval within the
    tolerance, which is the two one-sided tests of Schuirmann (1987, J. Pharmacokinet. Biopharm. 15).
    """
    if low > 1 + policy.minimum_effect:
        return Outcome.REGRESSED
    if high < 1 / (1 + policy.minimum_effect):
        return Outcome.IMPROVED
    if low >= 1 / (1 + policy.tolerance) and high <= 1 + policy.tolerance:
        return Outcome.UNCHANGED
    return None


def decide(
    effects: Sequence[Effect], rounds: int, policy: Policy, *, cases: int, shared_zygote: bool, final: bool
) -> Decision:
    """Judge the evidence at a look.

    Args:
        final: There will be no further launch, so what is not decided is inconclusive.

    Raises:
        ValueError: There is no launch.
    """
    comparison = compare(effects, rounds, policy, cases=cases, shared_zygote=shared_zygote)
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
    ratio, evidence = comparison.ratio, _evidence(comparison)
    if outcome in (Outcome.REGRESSED, Outcome.IMPROVED):
        text = f"{change(ratio.center)} ({evidence})"
    elif outcome is Outcome.UNCHANGED:
        text = f"within {policy.tolerance:.1%} either way: {change(ratio.center)} ({evidence})"
    else:
        text = (
            f"not decided: a slowdown of {hidden(ratio):.1%} could still be hiding ({evidence}); "
            "a quieter machine or a stricter --policy, which takes more launches, tells more"
        )
    return Reason(_CODES[outcome], text)


def hidden(ratio: Ratio) -> float:
    """The largest slowdown that the interval leaves possible, as a fraction; 0 if none is."""
    return max(0.0, ratio.high - 1)


def change(ratio: float) -> str:
    """A ratio of times in words: ``5.2% slower``; factors above 2 as ``3.4x slower``."""
    word, factor = ("slower", ratio) if ratio >= 1 else ("faster", 1 / ratio)
    if factor >= 2:
        return f"{factor:.1f}x {word}"
    return f"{abs(ratio - 1):.1%} {word}"


def _evidence(comparison: Comparison) -> str:
    ratio = comparison.ratio
    low, high = (f"{end - 1:+.1%}" for end in (ratio.low, ratio.high))
    launches = f"{comparison.launches} launch{'' if comparison.launches == 1 else 'es'}"
    return f"interval {low} to {high} at {ratio.confidence:.2%} confidence, {launches}"
