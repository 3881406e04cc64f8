"""Metrics without noise: from two readings to verdicts, and to words for what lies between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tfbench.metrics.catalog import BYTES, EITHER, MORE, PARITY, READ, ROUGH, Metric
from tfbench.model import Case, MetricValues, Outcome, Reason, Verdict
from tfbench.policy import Policy

_NAMED = 4
"""So many of the things that were gained or lost are named."""


@dataclass(frozen=True)
class ComparisonContext:
    """On what terms two readings are compared."""

    differences: Collection[str] = ()
    """How the environments differ, one phrase each: then a change is an explanation, unless the policy says more."""
    machines: Collection[str] = ()
    """How the machines differ: XLA compiles for the processor at hand."""
    unstable: Mapping[str, str] = field(default_factory=dict)
    """Metric -> how it differed between launches of one side: demoted, as it is not exact."""


def compare(
    case: Case, before: MetricValues, now: MetricValues, context: ComparisonContext, policy: Policy
) -> tuple[list[Verdict], list[str]]:
    """The verdicts on all metrics that a probing launch reads, and in words what changed for a reason that was asked for.

    Within one environment any difference counts. Across environments (another TensorFlow, other settings) what
    changed explains a verdict on time, and is one of its own if ``policy.exact_across_versions``.
    """
    verdicts, explained = [], []
    setting = [
        f"{key} {before.setting[key]} there, {now.setting[key]} here"
        for key in sorted({*before.setting} & {*now.setting})
        if before.setting[key] != now.setting[key]
    ]
    for metric in READ:
        old, new = before.value(metric.name), now.value(metric.name)
        if old is None and new is None:
            continue
        outcome, reason = _evaluate(metric, before, now, context, policy)
        elsewhere = [*context.differences, *setting, *(context.machines if metric.compiled else ())]
        changed = outcome not in (Outcome.UNCHANGED, Outcome.NEW)
        if changed and elsewhere and not policy.exact_across_versions and reason.code != "not-exact":
            explained.append(f"{metric.name} {reason.message}")
            continue
        verdicts.append(Verdict(case, outcome, reason, metric.name, launches=1, values=(old, new), unit=metric.unit))
    return verdicts, explained


def _evaluate(
    metric: Metric, before: MetricValues, now: MetricValues, context: ComparisonContext, policy: Policy
) -> tuple[Outcome, Reason]:
    old, new = before.value(metric.name), now.value(metric.name)
    if old is None:
        why = before.absent.get(metric.name, "the baseline was saved without it")
        return Outcome.NEW, Reason("not-in-baseline", f"{amount(new, metric.unit)}; the baseline has none: {why}")
    if new is None:
        why = now.absent.get(metric.name, "it was not told")
        return Outcome.MISSING, Reason("not-read", f"{amount(old, metric.unit)} in the baseline, and here: {why}")
    if same(metric, before, now, policy):
        return Outcome.UNCHANGED, Reason("same", f"{amount(new, metric.unit)}, as before")
    if how := context.unstable.get(metric.name):
        text = f"{_from_to(metric, old, new)}, but it is not exact here: {how}"
        return Outcome.INCONCLUSIVE, Reason("not-exact", text)
    text = _from_to(metric, old, new) + details(metric.name, before, now)
    if new == old or metric.worse == EITHER:
        return Outcome.INCONCLUSIVE, Reason("other", f"{text}: neither better nor worse by itself")
    if (new > old) == (metric.worse == MORE):
        return Outcome.REGRESSED, Reason("more" if new > old else "fewer", text)
    return Outcome.IMPROVED, Reason("more" if new > old else "fewer", text)


def same(metric: Metric, before: MetricValues, now: MetricValues, policy: Policy) -> bool:
    """Whether two readings agree: exactly, or for sizes within the policy's tolerance."""
    if metric.name in before.counts and metric.name in now.counts:
        return dict(before.counts[metric.name]) == dict(now.counts[metric.name])
    old, new = before.value(metric.name), now.value(metric.name)
    if metric in ROUGH and old is not None and new is not None:
        return abs(new - old) <= policy.memory_tolerance * old
    return old == new


def differing(launches: Collection[MetricValues], policy: Policy) -> dict[str, str]:
    """Metric -> how launches of one side disagree about it; empty if all are as exact as they should be."""
    first, *others = launches
    found = {}
    for metric in READ:
        strange = next((other for other in others if not same(metric, first, other, policy)), None)
        if strange is not None:
            values = sorted({amount(metric_values.value(metric.name), metric.unit) for metric_values in launches})
            what = details(metric.name, first, strange) or f", read as {' and '.join(values)}"
            found[metric.name] = f"launches of the same side differ{what}"
    if any(other.sketch != first.sketch for other in others):
        found[PARITY] = "launches of the same side return other numbers"
    return found


def _from_to(metric: Metric, old: float, new: float) -> str:
    return f"{amount(old, metric.unit)} before, {amount(new, metric.unit)} now"


def details(metric: str, before: MetricValues, now: MetricValues) -> str:
    """What was gained and lost between two counts: ``: lost _FusedConv2D(BiasAdd, Relu); gained 2 Cast``."""
    changed = lost_and_gained(before.counts.get(metric, {}), now.counts.get(metric, {}))
    return f": {changed}" if changed else ""


def lost_and_gained(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """The difference of two counts in words, ``""`` if there is none."""
    old, new = Counter(before), Counter(now)
    return "; ".join(f"{word} {named(some)}" for word, some in (("lost", old - new), ("gained", new - old)) if some)


def named(counts: Mapping[str, int]) -> str:
    """The most frequent in words: ``2 Cast, Relu and 3 more``."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [what if count == 1 else f"{count} {what}" for what, count in ordered[:_NAMED]]
    rest = sum(count for _, count in ordered[_NAMED:])
    return ", ".join(words) + (f" and {rest} more" if rest else "")


def amount(value: float | None, unit: str) -> str:
    """A value in words, of bytes in the unit that suits it."""
    if value is None:
        return "none"
    if unit == BYTES:
        for power, word in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if abs(value) >= 1 << power:
                return f"{value / (1 << power):.2f} {word}"
        return f"{value:,.0f} B"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"
