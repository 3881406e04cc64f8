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
    if not new and not old:
        return None
    launches = len(new)
    values = (median(old) if old else None, median(new) if new else None)

    def verdict(outcome: Outcome, code: ReasonCode, text: str) -> Verdict:
        return Verdict(case, outcome, Reason(code, text), PEAK_HOST_MEMORY, None, launches, values=values, unit=BYTES)

    if not old:
        return verdict(Outcome.NEW, ReasonCode.NOT_IN_BASELINE, f"{amount(values[1], BYTES)}; no value in the baseline")
    if not new:
        return verdict(
            Outcome.MISSING, ReasonCode.NOT_READ, f"{amount(values[0], BYTES)} in the baseline, unavailable now"
        )
    old_median, new_median = median(old), median(new)
    text = f"{amount(old_median, BYTES)} before, {amount(new_median, BYTES)} now ({launches} launches)"
    if abs(new_median - old_median) <= max(policy.memory_tolerance * old_median, policy.memory_abs_tolerance):
        return verdict(Outcome.UNCHANGED, ReasonCode.WITHIN_TOLERANCE, text)
    more = new_median > old_median
    apart = min(new) > max(old) if more else max(new) < min(old)
    if not apart or min(len(old), len(new)) < policy.memory_launches:
        why = "the launches of both sides overlap" if not apart else f"{policy.memory_launches} launches are needed"
        return verdict(Outcome.INCONCLUSIVE, ReasonCode.NOT_DECIDED, f"{text}, but {why}")
    return verdict(Outcome.REGRESSED if more else Outcome.IMPROVED, ReasonCode.MORE if more else ReasonCode.FEWER, text)


def first_call_policy(policy: Policy) -> Policy:
    """Make the policy for first calls, which has their minimum effect, tolerance and prior noise."""
    return replace(
        policy,
        minimum_effect=policy.first_call_effect,
        tolerance=policy.first_call_tolerance,
        screen_tolerance=max(policy.screen_tolerance, policy.first_call_tolerance),
        launch_deviation=policy.first_call_deviation,
        zygote_deviation=policy.first_call_zygote_deviation,
    )


def first_call(before: Facts, now: Facts, pairs: Sequence[int], policy: Policy, cases: int) -> Decision | None:
    """Decide on the first call of the step, one effect per launch; ``None`` if no launch reports both sides.

    Args:
        before: Facts of the baseline, launch by launch.
        now: Facts of the contender in the same launches.
        pairs: The pair of zygotes of each launch.
        cases: Cases of the whole run. First calls have an alpha of their own, equal to the run's.
    """
    both = [
        (float(old[FIRST_CALL]), float(new[FIRST_CALL]), pair)
        for old, new, pair in zip(before, now, pairs, strict=True)
        if FIRST_CALL in old and FIRST_CALL in new
    ]
    effects = [Effect(math.log(new / old), pair) for old, new, pair in both if old > 0 and new > 0]
    if not effects:
        return None
    decision = decide(effects, len(effects), first_call_policy(policy), cases=cases, shared_zygote=False, final=True)
    difference = median(new for _, new, _ in both) - median(old for old, _, _ in both)
    if decision.outcome is not Outcome.UNCHANGED and abs(difference) < policy.first_call_abs_tolerance:
        text = f"within {policy.first_call_abs_tolerance * 1e3:.0f} ms either way: {difference * 1e3:+.1f} ms"
        return replace(decision, outcome=Outcome.UNCHANGED, reason=Reason(ReasonCode.WITHIN_ABS_TOLERANCE, text))
    return replace(decision, reason=Reason(decision.reason.code, decision.reason.message + _parts(before, now)))


def _parts(before: Facts, now: Facts) -> str:
    """Describe the parts of the first call: ``; trace 20 ms before, 45 ms now, …``."""
    phrases = []
    for part in ("trace", "compile", "execute"):
        old, new = (
            median([float(one.get("first_call_parts", {}).get(part, 0)) for one in facts] or [0.0])
            for facts in (before, now)
        )
        phrases.append(f"{part} {old * 1e3:.0f} ms before, {new * 1e3:.0f} ms now")
    return f"; {', '.join(phrases)}"
