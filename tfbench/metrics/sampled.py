"""Compare the metrics that every timed launch samples: the first call and the peak of host memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median, stdev

from tfbench.metrics.catalog import BYTES, FIRST_CALL, FIRST_CALL_PARTS, PEAK_HOST_MEMORY
from tfbench.metrics.exact import amount
from tfbench.model import JSON, Case, Effect, Outcome, Ratio, Reason, ReasonCode, Verdict
from tfbench.policy import Policy
from tfbench.stats.verdict import Decision, decide, evidence

Facts = Sequence[JSON]
"""The facts of each launch."""


def peaks(facts: Facts) -> list[float]:
    """List the peak host memory of each launch that reports it, bytes."""
    return [float(one[PEAK_HOST_MEMORY]) for one in facts if PEAK_HOST_MEMORY in one]


def memory(
    case: Case, before: Facts, now: Facts, policy: Policy, cases: int, pairs: Sequence[int] = ()
) -> Verdict | None:
    """Make the verdict on the peak of host memory; ``None`` if neither side reports it.

    A peak is decided like a time, one effect per launch, with an alpha of its own that the run's ``cases`` share. The
    number of launches tells the look. A difference of the medians within the policy's bytes is none.

    Args:
        before, now: Facts of the launches of each side.
        pairs: The pair of zygotes of each launch, if both sides took part in each; otherwise the launches of the two
            sides have nothing in common.
    """
    old, new = peaks(before), peaks(now)
    launches = min(len(old), len(new))
    was, now_is = (median(values) if values else None for values in (old, new))

    def verdict(outcome: Outcome, reason: Reason, ratio: Ratio | None = None) -> Verdict:
        return Verdict(
            case, outcome, reason, PEAK_HOST_MEMORY, ratio, launches or len(new), values=(was, now_is), unit=BYTES
        )

    if was is None and now_is is None:
        return None
    if was is None:
        text = f"{amount(now_is, BYTES)}; no value in the baseline"
        return verdict(Outcome.NEW, Reason(ReasonCode.NOT_IN_BASELINE, text))
    if now_is is None:
        text = f"{amount(was, BYTES)} in the baseline, unavailable now"
        return verdict(Outcome.MISSING, Reason(ReasonCode.NOT_READ, text))
    text = f"{amount(was, BYTES)} before, {amount(now_is, BYTES)} now"
    if abs(now_is - was) <= policy.memory_abs_tolerance:
        return verdict(Outcome.UNCHANGED, Reason(ReasonCode.WITHIN_TOLERANCE, f"{text} ({launches} launches)"))
    if launches < policy.memory_launches or min(*old, *new) <= 0:
        text = f"{text}, but {policy.memory_launches} launches of each side are needed"
        return verdict(Outcome.INCONCLUSIVE, Reason(ReasonCode.NOT_DECIDED, text))
    together = pairs if len(pairs) == len(old) == len(new) else range(launches)
    effects = [Effect(math.log(two / one), pair) for one, two, pair in zip(old, new, together, strict=False)]
    found = decide(effects, launches, policy, cases=cases, shared_zygote=False, final=True, thresholds=policy.memory)
    outcome, ratio = found.outcome or Outcome.INCONCLUSIVE, found.comparison.ratio
    codes = {Outcome.REGRESSED: ReasonCode.MORE, Outcome.IMPROVED: ReasonCode.FEWER}
    code = codes.get(outcome, ReasonCode(found.reason.code))
    text = f"{text} ({evidence(ratio, launches)}){_scatter(effects, outcome)}"
    return verdict(outcome, Reason(code, text), ratio)


def first_call(before: Facts, now: Facts, pairs: Sequence[int], policy: Policy, cases: int) -> Decision | None:
    """Decide on the first call of the step, one effect per launch; ``None`` if no launch reports both sides.

    Facts and ``pairs``, the pair of zygotes, are launch by launch. Launches without first calls do not count. First
    calls have an alpha of their own, equal to the run's, which its ``cases`` share. The number of launches tells the
    look. An undecided one is inconclusive.
    """
    both = [
        (old, new, pair)
        for old, new, pair in zip(before, now, pairs, strict=True)
        if FIRST_CALL in old and FIRST_CALL in new
    ]
    before, now = [old for old, _, _ in both], [new for _, new, _ in both]
    times = [(float(old[FIRST_CALL]), float(new[FIRST_CALL]), pair) for old, new, pair in both]
    effects = [Effect(math.log(new / old), pair) for old, new, pair in times if old > 0 and new > 0]
    if not effects:
        return None
    decision = decide(
        effects, len(effects), policy, cases=cases, shared_zygote=False, final=True, thresholds=policy.first_call
    )
    difference = median(new for _, new, _ in times) - median(old for old, _, _ in times)
    if decision.outcome is not Outcome.UNCHANGED and abs(difference) < policy.first_call_abs_tolerance:
        text = f"within {policy.first_call_abs_tolerance * 1e3:.0f} ms either way: {difference * 1e3:+.1f} ms"
        return replace(decision, outcome=Outcome.UNCHANGED, reason=Reason(ReasonCode.WITHIN_ABS_TOLERANCE, text))
    text = decision.reason.message + _scatter(effects, decision.outcome) + _parts(before, now)
    return replace(decision, reason=Reason(decision.reason.code, text))


def _scatter(effects: Sequence[Effect], outcome: Outcome | None) -> str:
    """Describe why launches did not decide: ``; ratios of single launches have a standard deviation of 35%``."""
    if outcome is not Outcome.INCONCLUSIVE or len(effects) < 2:
        return ""
    return f"; ratios of single launches have a standard deviation of {stdev(effect.value for effect in effects):.1%}"


def _parts(before: Facts, now: Facts) -> str:
    """Describe the parts of the first call: ``; trace 20 ms before, 45 ms now, …``."""

    def shown(facts: Facts, part: str) -> str:
        return f"{1e3 * median(float(one.get(FIRST_CALL_PARTS, {}).get(part, 0)) for one in facts):.0f} ms"

    parts = ("trace", "compile", "execute")
    return "; " + ", ".join(f"{part} {shown(before, part)} before, {shown(now, part)} now" for part in parts)
