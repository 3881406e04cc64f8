"""Compare the metrics that every timed launch samples: the first call and the peak of host memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from tfbench.metrics.catalog import BYTES, FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.metrics.exact import amount
from tfbench.model import JSON, Case, Effect, Outcome, Reason, ReasonCode, Verdict
from tfbench.policy import Policy
from tfbench.stats.verdict import Decision, decide

Facts = Sequence[JSON]
"""The facts of each launch."""


def peaks(facts: Facts) -> list[float]:
    """List the peak host memory of each launch that reports it, bytes."""
    return [float(one[PEAK_HOST_MEMORY]) for one in facts if PEAK_HOST_MEMORY in one]


def memory(case: Case, before: Facts, now: Facts, policy: Policy) -> Verdict | None:
    """Make the verdict on the peak of host memory; ``None`` if neither side reports it.

    A peak is a maximum that allocators reach in steps, so the medians of several launches are compared. A change beyond
    the tolerance counts only if all launches of one side lie beyond all launches of the other.
    """
    old, new = peaks(before), peaks(now)
    launches = len(new)
    was, now_is = (median(values) if values else None for values in (old, new))

    def verdict(outcome: Outcome, code: ReasonCode, text: str) -> Verdict:
        reason, values = Reason(code, text), (was, now_is)
        return Verdict(case, outcome, reason, PEAK_HOST_MEMORY, None, launches, values=values, unit=BYTES)

    if was is None and now_is is None:
        return None
    if was is None:
        return verdict(Outcome.NEW, ReasonCode.NOT_IN_BASELINE, f"{amount(now_is, BYTES)}; no value in the baseline")
    if now_is is None:
        return verdict(Outcome.MISSING, ReasonCode.NOT_READ, f"{amount(was, BYTES)} in the baseline, unavailable now")
    text = f"{amount(was, BYTES)} before, {amount(now_is, BYTES)} now ({launches} launches)"
    if abs(now_is - was) <= max(policy.memory_tolerance * was, policy.memory_abs_tolerance):
        return verdict(Outcome.UNCHANGED, ReasonCode.WITHIN_TOLERANCE, text)
    more = now_is > was
    apart = min(new) > max(old) if more else max(new) < min(old)
    if not apart or min(len(old), len(new)) < policy.memory_launches:
        why = "the launches of both sides overlap" if not apart else f"{policy.memory_launches} launches are needed"
        return verdict(Outcome.INCONCLUSIVE, ReasonCode.NOT_DECIDED, f"{text}, but {why}")
    return verdict(Outcome.REGRESSED if more else Outcome.IMPROVED, ReasonCode.MORE if more else ReasonCode.FEWER, text)


def first_call(before: Facts, now: Facts, pairs: Sequence[int], policy: Policy, cases: int) -> Decision | None:
    """Decide on the first call of the step, one effect per launch; ``None`` if no launch reports both sides.

    Facts and ``pairs``, the pair of zygotes, are launch by launch. First calls have an alpha of their own, equal to
    the run's, which its ``cases`` share.
    """
    both = [
        (float(old[FIRST_CALL]), float(new[FIRST_CALL]), pair)
        for old, new, pair in zip(before, now, pairs, strict=True)
        if FIRST_CALL in old and FIRST_CALL in new
    ]
    effects = [Effect(math.log(new / old), pair) for old, new, pair in both if old > 0 and new > 0]
    if not effects:
        return None
    decision = decide(
        effects, len(effects), policy, cases=cases, shared_zygote=False, final=True, thresholds=policy.first_call
    )
    difference = median(new for _, new, _ in both) - median(old for old, _, _ in both)
    if decision.outcome is not Outcome.UNCHANGED and abs(difference) < policy.first_call_abs_tolerance:
        text = f"within {policy.first_call_abs_tolerance * 1e3:.0f} ms either way: {difference * 1e3:+.1f} ms"
        return replace(decision, outcome=Outcome.UNCHANGED, reason=Reason(ReasonCode.WITHIN_ABS_TOLERANCE, text))
    return replace(decision, reason=Reason(decision.reason.code, decision.reason.message + _parts(before, now)))


def _parts(before: Facts, now: Facts) -> str:
    """Describe the parts of the first call: ``; trace 20 ms before, 45 ms now, …``."""

    def shown(facts: Facts, part: str) -> str:
        return f"{1e3 * median(float(one.get('first_call_parts', {}).get(part, 0)) for one in facts):.0f} ms"

    parts = ("trace", "compile", "execute")
    return "; " + ", ".join(f"{part} {shown(before, part)} before, {shown(now, part)} now" for part in parts)
