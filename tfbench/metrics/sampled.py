"""Metrics other than time that every timed launch gives a sample of: the first call and the peak of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from tfbench.metrics.catalog import BYTES, FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.metrics.exact import amount
from tfbench.model import JSON, Case, Effect, Outcome, Reason, Verdict
from tfbench.policy import Policy
from tfbench.stats.verdict import Decision, decide

Facts = Sequence[JSON]
"""Of each launch."""


def peaks(facts: Facts) -> list[float]:
    """Peak host memory of each launch that tells it, bytes."""
    return [float(one[PEAK_HOST_MEMORY]) for one in facts if PEAK_HOST_MEMORY in one]


def memory(case: Case, before: Facts, now: Facts, policy: Policy) -> Verdict | None:
    """The verdict on the peak of host memory; ``None`` where neither side tells it.

    A peak is a maximum that allocators reach in steps, so medians of several launches are compared, and a change
    beyond the tolerance counts when all launches of one side lie beyond all launches of the other.
    """
    old, new = peaks(before), peaks(now)
    if not new and not old:
        return None
    launches = len(new)
    values = (median(old) if old else None, median(new) if new else None)

    def verdict(outcome: Outcome, code: str, text: str) -> Verdict:
        return Verdict(case, outcome, Reason(code, text), PEAK_HOST_MEMORY, None, launches, values=values, unit=BYTES)

    if not old:
        return verdict(Outcome.NEW, "not-in-baseline", f"{amount(values[1], BYTES)}; the baseline has none")
    if not new:
        return verdict(
            Outcome.MISSING, "not-read", f"{amount(values[0], BYTES)} in the baseline, and none is told here"
        )
    middle_old, middle_new = median(old), median(new)
    text = f"{amount(middle_old, BYTES)} before, {amount(middle_new, BYTES)} now ({launches} launches)"
    if abs(middle_new - middle_old) <= max(policy.memory_tolerance * middle_old, policy.memory_abs_tolerance):
        return verdict(Outcome.UNCHANGED, "within-tolerance", text)
    more = middle_new > middle_old
    apart = min(new) > max(old) if more else max(new) < min(old)
    if not apart or min(len(old), len(new)) < policy.memory_launches:
        why = "their launches overlap" if not apart else f"{policy.memory_launches} launches of each side are wanted"
        return verdict(Outcome.INCONCLUSIVE, "not-decided", f"{text}, but {why}")
    return verdict(Outcome.REGRESSED if more else Outcome.IMPROVED, "more" if more else "fewer", text)


def first_call_policy(policy: Policy) -> Policy:
    """The policy by which first calls are judged: its own effect, tolerance and belief in their noise."""
    return replace(
        policy,
        minimum_effect=policy.first_call_effect,
        tolerance=policy.first_call_tolerance,
        screen_tolerance=max(policy.screen_tolerance, policy.first_call_tolerance),
        launch_deviation=policy.first_call_deviation,
        zygote_deviation=policy.first_call_zygote_deviation,
    )


def first_call(before: Facts, now: Facts, pairs: Sequence[int], policy: Policy, cases: int) -> Decision | None:
    """The decision on the first call of the step, its unit the launch; ``None`` where a side does not tell it.

    Args:
        before: Of the baseline, launch by launch.
        now: Of the contender in the same launches.
        pairs: The pair of zygotes of each launch.
        cases: Cases of the whole run. First calls have the run's alpha once more, for themselves.
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
    moved = median(new for _, new, _ in both) - median(old for old, _, _ in both)
    if decision.outcome is not Outcome.UNCHANGED and abs(moved) < policy.first_call_abs_tolerance:
        text = f"within {policy.first_call_abs_tolerance * 1e3:.0f} ms either way: {moved * 1e3:+.1f} ms"
        return replace(decision, outcome=Outcome.UNCHANGED, reason=Reason("within-slack", text))
    return replace(decision, reason=Reason(decision.reason.code, decision.reason.message + _parts(before, now)))


def _parts(before: Facts, now: Facts) -> str:
    """What the first call went into: ``; trace 20 ms before, 45 ms now, …``."""
    words = []
    for part in ("trace", "compile", "execute"):
        old, new = (
            median([float(one.get("first_call_parts", {}).get(part, 0)) for one in facts] or [0.0])
            for facts in (before, now)
        )
        words.append(f"{part} {old * 1e3:.0f} ms before, {new * 1e3:.0f} ms now")
    return f"; {', '.join(words)}"
