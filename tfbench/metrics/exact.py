"""Compare metrics without noise: from two sets of values to verdicts, and to a description of the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tfbench.metrics import catalog
from tfbench.metrics.catalog import BYTES, Metric, Worse
from tfbench.model import Case, MetricValues, Outcome, Reason, ReasonCode, Verdict
from tfbench.policy import Policy

_NAMED = 4
"""A description names at most this many ops or kernels."""


@dataclass(frozen=True)
class ComparisonContext:
    """What two sets of metrics are compared under: known differences between the sides, and unstable metrics."""

    differences: Collection[str] = ()
    """How the environments differ, one phrase each. Any difference turns a change into an explanation, unless
    ``policy.exact_across_versions``."""
    machines: Collection[str] = ()
    """How the machines differ, which matters for XLA: it compiles for the processor of the machine."""
    unstable: Mapping[str, str] = field(default_factory=dict)
    """Metric -> how launches of one side differ. A change of such a metric is inconclusive."""
    scatter: Mapping[str, float] = field(default_factory=dict)
    """How far outputs of the step differ between launches of one side, see `tfbench.metrics.parity.scatter`."""


def compare(
    case: Case, before: MetricValues, now: MetricValues, context: ComparisonContext, policy: Policy
) -> tuple[list[Verdict], list[str]]:
    """Compare all metrics of two probing launches.

    Within one environment any difference counts. Across environments (another TensorFlow, other settings) a change
    explains the verdict on time. It has a verdict of its own only if ``policy.exact_across_versions``. Returns the
    verdicts, and a phrase for each change that is an explanation only.
    """
    verdicts, explained = [], []
    other_setting = any(before.setting[key] != now.setting[key] for key in {*before.setting} & {*now.setting})
    for metric in catalog.PROBED:
        old, new = before.value(metric.name), now.value(metric.name)
        if new is None and (old is None or metric.timed):
            continue
        outcome, reason = _evaluate(metric, before, now, context, policy)
        other_environment = context.differences or other_setting or (metric.compiled and context.machines)
        changed = outcome not in (Outcome.UNCHANGED, Outcome.NEW)
        if changed and other_environment and not policy.exact_across_versions and reason.code != ReasonCode.NOT_EXACT:
            explained.append(f"{metric.name} {reason.message}")
            continue
        verdicts.append(Verdict(case, outcome, reason, metric.name, launches=1, values=(old, new), unit=metric.unit))
    return verdicts, explained


def _evaluate(
    metric: Metric, before: MetricValues, now: MetricValues, context: ComparisonContext, policy: Policy
) -> tuple[Outcome, Reason]:
    old, new = before.value(metric.name), now.value(metric.name)
    was, became = amount(old, metric.unit), amount(new, metric.unit)
    if old is None:
        why = before.absent.get(metric.name, "it was saved without this metric")
        return Outcome.NEW, Reason(ReasonCode.NOT_IN_BASELINE, f"{became}; no value in the baseline: {why}")
    if new is None:
        why = now.absent.get(metric.name, "the probing launch did not report it")
        return Outcome.MISSING, Reason(ReasonCode.NOT_READ, f"{was} in the baseline, unavailable now: {why}")
    if same(metric, before, now, policy):
        return Outcome.UNCHANGED, Reason(ReasonCode.SAME, f"{became}, as before")
    text = f"{was} before, {became} now"
    if how := context.unstable.get(metric.name):
        return Outcome.INCONCLUSIVE, Reason(ReasonCode.NOT_EXACT, f"{text}, but it is not exact here: {how}")
    text += details(metric.name, before, now)
    if new == old or metric.worse is Worse.NEITHER:
        return Outcome.INCONCLUSIVE, Reason(ReasonCode.OTHER, f"{text}: neither better nor worse by itself")
    more = new > old
    outcome = Outcome.REGRESSED if more == (metric.worse is Worse.MORE) else Outcome.IMPROVED
    return outcome, Reason(ReasonCode.MORE if more else ReasonCode.FEWER, text)


def same(metric: Metric, before: MetricValues, now: MetricValues, policy: Policy) -> bool:
    """Return whether two launches agree: exactly, or within the policy's tolerance if the metric is not exact."""
    if metric.name in before.counts and metric.name in now.counts:
        return dict(before.counts[metric.name]) == dict(now.counts[metric.name])
    old, new = before.value(metric.name), now.value(metric.name)
    if not metric.exact and old is not None and new is not None:
        slack = getattr(policy, metric.slack) if metric.slack else 0.0
        return abs(new - old) <= max(slack, policy.memory_tolerance * old)
    return old == new


def differing(launches: Collection[MetricValues], policy: Policy) -> dict[str, str]:
    """Map each metric that launches of one side disagree about to a description of the difference.

    The results of a step are compared by `tfbench.metrics.parity.scatter`.
    """
    first, *others = launches
    found = {}
    for metric in catalog.PROBED:
        if unlike := next((other for other in others if not same(metric, first, other, policy)), None):
            values = sorted({amount(metric_values.value(metric.name), metric.unit) for metric_values in launches})
            what = details(metric.name, first, unlike) or f", with the values {' and '.join(values)}"
            found[metric.name] = f"launches of the same side differ{what}"
    return found


def details(metric: str, before: MetricValues, now: MetricValues) -> str:
    """Describe the change of a count: ``: lost _FusedConv2D(BiasAdd, Relu); gained 2 Cast``; ``""`` without one."""
    changed = lost_and_gained(before.counts.get(metric, {}), now.counts.get(metric, {}))
    return f": {changed}" if changed else ""


def lost_and_gained(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Describe the difference of two counts; ``""`` if there is none."""
    old, new = Counter(before), Counter(now)
    return "; ".join(f"{word} {named(some)}" for word, some in (("lost", old - new), ("gained", new - old)) if some)


def named(counts: Mapping[str, int]) -> str:
    """Describe a count by its most frequent entries: ``2 Cast, Relu and 3 more``."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [what if count == 1 else f"{count} {what}" for what, count in ordered[:_NAMED]]
    rest = sum(count for _, count in ordered[_NAMED:])
    return ", ".join(words) + (f" and {rest} more" if rest else "")


def amount(value: float | None, unit: str) -> str:
    """Format a value; bytes get a binary prefix."""
    if value is None:
        return "none"
    if unit == BYTES:
        scales = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
        scaled = (f"{value / scale:.2f} {word}" for word, scale in scales.items() if abs(value) >= scale)
        return next(scaled, f"{value:,.0f} B")
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"
