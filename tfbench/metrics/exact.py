"""Judge metrics that are exact or sampled, and list what differs between the evidence of two sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import NamedTuple

from tfbench.metrics import catalog, parity
from tfbench.metrics.graphs import lost_and_gained
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import JSON, Case, Effect, MetricValues, Note, Outcome, Ratio, Reason, ReasonCode, Verdict, because
from tfbench.model.case import FIRST_CALL, FIRST_CALL_PARTS, PEAK_HOST_MEMORY, SET_UP, WARM_UP
from tfbench.model.words import BYTES, SECONDS, amount, exchanged
from tfbench.policy import FIRST_CALL_DEVIATION, FIRST_CALL_ZYGOTE_DEVIATION, Policy, Thresholds
from tfbench.stats.verdict import CODES, Decision, Terms, decide

MEMORY_ABS_TOLERANCE = 1 << 20
"""Bytes by which peaks of host memory may differ: one of Python's arenas, which take 1 MiB. Launches reuse space that
their zygote left free in it, and zygotes of different sides leave different amounts."""
MEMORY_LAUNCHES = 3
"""Launches of each side before a memory peak is decided. Fewer say nothing about their scatter."""

SLOW_START = Thresholds(0.25, 0.5, FIRST_CALL_DEVIATION, FIRST_CALL_ZYGOTE_DEVIATION)
"""Of imports, set-ups and warm-ups: they are paid once, like first calls, and wait for files besides."""
IMPORT_SECONDS, SET_UP_SECONDS, WARM_UP_SECONDS = 0.3, 0.1, 0.15
"""Seconds by which they may differ, however short they are. A set-up starts TensorFlow's threads, which scatters by tens
of milliseconds. Several zygotes import at once and share the disk and caches. A warm-up is known to about ten calls."""
IMPORT_SIZE = Thresholds(0.1, 0.2, 0.02, 0.01)
IMPORT_BYTES = 16 << 20
"""Resident bytes by which imports may differ: collections of garbage fall into one file or the next."""
START_LAUNCHES = 2
"""Launches of each side before these are decided: those of the first look of `quick`. The expected noise makes up for it."""

# Compare metrics without noise: from two sets of values to verdicts, and to a description of the difference


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
    scatter: parity.Scatter = field(default_factory=dict)
    """How far outputs of the step differ between launches of one side, see `tfbench.metrics.parity.scatter`."""


def compare(
    case: Case, before: MetricValues, now: MetricValues, context: ComparisonContext, policy: Policy
) -> tuple[list[Verdict], list[Reason]]:
    """Compare all metrics of two probing launches.

    Within one environment any difference counts. Across environments (another TensorFlow, other settings) a change
    explains the verdict on time. It has a verdict of its own only if ``policy.exact_across_versions``. Returns the
    verdicts, and a note for each change that is an explanation only.
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
            explained.append(because(Note.METRIC, reason, metric=metric.name))
            continue
        verdicts.append(Verdict.of(case, outcome, reason, metric.name, launches=1, values=(old, new), unit=metric.unit))
    return verdicts, explained


def _evaluate(
    metric: catalog.Metric, before: MetricValues, now: MetricValues, context: ComparisonContext, policy: Policy
) -> tuple[Outcome, Reason]:
    old, new = before.value(metric.name), now.value(metric.name)
    if old is None:
        why = before.absent.get(metric.name, "it was saved without this metric")
        return Outcome.NEW, because(ReasonCode.NOT_IN_BASELINE, now=new, unit=metric.unit, why=why)
    if new is None:
        why = now.absent.get(metric.name, "the probing launch did not report it")
        return Outcome.MISSING, because(ReasonCode.NOT_READ, before=old, unit=metric.unit, why=why)
    if same(metric, before, now, policy):
        return Outcome.UNCHANGED, because(ReasonCode.SAME, before=old, now=new, unit=metric.unit)
    facts: JSON = {"before": old, "now": new, "unit": metric.unit}
    if how := context.unstable.get(metric.name):
        return Outcome.INCONCLUSIVE, because(ReasonCode.NOT_EXACT, **facts, how=how)
    facts |= lost_and_gained(before.counts.get(metric.name, {}), now.counts.get(metric.name, {}))
    if new == old or metric.worse is catalog.Worse.NEITHER:
        return Outcome.INCONCLUSIVE, because(ReasonCode.OTHER, **facts)
    more = new > old
    outcome = Outcome.REGRESSED if more == (metric.worse is catalog.Worse.MORE) else Outcome.IMPROVED
    return outcome, because(ReasonCode.MORE if more else ReasonCode.FEWER, **facts)


def same(metric: catalog.Metric, before: MetricValues, now: MetricValues, policy: Policy) -> bool:
    """Return whether two launches agree: exactly, or within the policy's tolerance if the metric is not exact."""
    if metric.name in before.counts and metric.name in now.counts:
        return dict(before.counts[metric.name]) == dict(now.counts[metric.name])
    old, new = before.value(metric.name), now.value(metric.name)
    if not metric.exact and old is not None and new is not None:
        slack = metric.slack
        return abs(new - old) <= max(slack, policy.memory_tolerance * old)
    return old == new


def differing(launches: Collection[MetricValues], policy: Policy) -> dict[str, str]:
    """Map each metric that launches of one side disagree about to a description of the difference.

    The results of a step are compared by `tfbench.metrics.parity.scatter`.
    """
    first, *others = launches
    unlike_metrics = {}
    for metric in catalog.PROBED:
        if unlike := next((other for other in others if not same(metric, first, other, policy)), None):
            values = sorted({amount(metric_values.value(metric.name), metric.unit) for metric_values in launches})
            counts = lost_and_gained(first.counts.get(metric.name, {}), unlike.counts.get(metric.name, {}))
            what = f": {exchanged(**counts)}" if counts else f", with the values {' and '.join(values)}"
            unlike_metrics[metric.name] = f"launches of the same side differ{what}"
    return unlike_metrics


def apart(sides: Sequence[Sequence[MetricValues]]) -> set[str]:
    """Return the metrics that scatter, and of which each launch of one side differs from each launch of the other one."""
    found = set()
    for metric in catalog.PROBED:
        read = [[value for one in side if (value := one.value(metric.name)) is not None] for side in sides]
        if metric.scatters and len(read) == 2 and all(read):
            low, high = sorted(read)
            found |= {metric.name} if min(high) - max(low) > metric.slack else set()
    return found


@dataclass(frozen=True)
class MetricChange:
    """A metric that differs between two sides."""

    metric: str
    unit: str
    before: float | None
    now: float | None
    counts: Mapping[str, Mapping[str, int]]
    """The entries ``lost`` and ``gained`` by a metric that counts."""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Its name, both values, and the entries lost and gained, in words."""
        values = amount(self.before, self.unit), amount(self.now, self.unit)
        return self.metric, *values, exchanged(**self.counts)


def metric_changes(before: MetricValues, now: MetricValues, policy: Policy) -> list[MetricChange]:
    """List each metric that differs by more than the policy's tolerance for it."""
    changes = []
    for metric in catalog.PROBED:
        old, new = before.value(metric.name), now.value(metric.name)
        counts = lost_and_gained(before.counts.get(metric.name, {}), now.counts.get(metric.name, {}))
        if old is not None and new is not None and same(metric, before, now, policy):
            continue
        if (old or 0) != (new or 0) or counts:  # an absent metric equals 0: a side without a graph has no casts
            changes.append(MetricChange(metric.name, metric.unit, old, new, counts))
    return changes


def result_changes(before: ProbeOutput, now: ProbeOutput) -> list[str]:
    """List the arrays of a result whose types differ; none if their numbers differ."""
    old, new = ([output.dtype for output in side.outputs] for side in (before, now))
    both = enumerate(zip(old, new, strict=True), 1) if len(old) == len(new) else ()
    return [f"result: array {number} is {became} instead of {was}" for number, (was, became) in both if was != became]


# Compare the metrics that launches sample: the first call, the peak of host memory, and those of a device


Facts = Sequence[JSON]
"""The facts of each launch."""


def peaks(facts: Facts) -> list[float]:
    """List the peak host memory of each launch that reports it, bytes."""
    return [float(values[PEAK_HOST_MEMORY]) for values in facts if PEAK_HOST_MEMORY in values]


def on_device(
    case: Case, before: Facts, now: Facts, policy: Policy, cases: int, pairs: Sequence[int] = ()
) -> list[Verdict]:
    """Make the verdicts on device time and energy, as far as a side reports them. For the arguments, see `sampled`.

    Unless the policy gates them, a change for the worse and an open one are reported only. A gate of which no launch of two
    sides has read either has the row `missing`.
    """
    rows = []
    for metric in catalog.ON_DEVICE.items():
        old, new = ([float(values[metric[0]]) for values in facts if values.get(metric[0])] for facts in (before, now))
        limits = Limits(policy.device, policy.device_launches)
        row = sampled(case, metric, old, new, limits, policy, cases, pairs)
        if row and not policy.device_gated and row.outcome not in (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.NEW):
            row = row.changed(outcome=Outcome.INCONCLUSIVE, reason=because(ReasonCode.NOT_GATED, row.reason))
        rows += [row] if row else []
    if policy.device_gated and before and not rows:
        unread = because(Note.UNREAD, metric=" and ".join(catalog.ON_DEVICE), why="the launches report neither")
        rows.append(Verdict.of(case, Outcome.MISSING, because(ReasonCode.NOT_READ, unread), catalog.DEVICE_TIME))
    return rows


class Limits(NamedTuple):
    """How a sampled metric is decided."""

    thresholds: Thresholds
    launches: int
    """Fewest of each side."""
    slack: float = 0.0
    """A difference of the medians that is none."""


def sampled(
    case: Case,
    metric: tuple[str, str],
    old: Sequence[float],
    new: Sequence[float],
    limits: Limits,
    policy: Policy,
    cases: int,
    pairs: Sequence[int] = (),
) -> Verdict | None:
    """Make the verdict on a metric of which each launch gives a sample; ``None`` if there are none.

    It is decided like a time, one effect per launch, with an alpha of its own that the run's ``cases`` share. The number of
    launches tells the look.

    Args:
        metric: Its name and unit.
        pairs: The pair of zygotes of each launch, if both sides took part in each; otherwise the launches of the two
            sides have nothing in common.
    """
    name, unit = metric
    launches = min(len(old), len(new))
    was, now_is = (median(values) if values else None for values in (old, new))
    both = {"launches": launches or len(new), "values": (was, now_is), "unit": unit}

    def verdict(outcome: Outcome, reason: Reason, ratio: Ratio | None = None) -> Verdict:
        return Verdict.of(case, outcome, reason, name, ratio=ratio, **both)

    if was is None and now_is is None:
        return None
    if was is None:
        return verdict(Outcome.NEW, because(ReasonCode.NOT_IN_BASELINE, now=now_is, unit=unit))
    if now_is is None:
        return verdict(Outcome.MISSING, because(ReasonCode.NOT_READ, before=was, unit=unit))
    facts = {"before": was, "now": now_is, "unit": unit}
    if limits.slack and abs(now_is - was) <= limits.slack:
        note = because(Note.CHANGE, **facts, launches=launches)
        return verdict(Outcome.UNCHANGED, because(ReasonCode.WITHIN_TOLERANCE, note))
    if launches < limits.launches:
        note = because(Note.FEW_LAUNCHES, **facts, needed=limits.launches)
        return verdict(Outcome.INCONCLUSIVE, because(ReasonCode.NOT_DECIDED, note))
    together = pairs if len(pairs) == len(old) == len(new) else range(launches)
    # A set-up may allocate nothing. Samples up to the difference that is none count as equal.
    old, new = ([max(sample, limits.slack) for sample in samples] for samples in (old, new))
    effects = [Effect(math.log(now / before), pair) for before, now, pair in zip(old, new, together, strict=False)]
    decision = decide(effects, launches, Terms(policy, cases, False, limits.thresholds), True)
    outcome, ratio = decision.outcome or Outcome.INCONCLUSIVE, decision.comparison.ratio
    codes = {**CODES, Outcome.REGRESSED: ReasonCode.MORE, Outcome.IMPROVED: ReasonCode.FEWER}
    note = because(Note.CHANGE, **facts, ratio=ratio, launches=launches)
    return verdict(outcome, because(codes[outcome], note), ratio)


OF_LAUNCHES: Mapping[str, tuple[str, Callable[[Policy], Limits]]] = {
    PEAK_HOST_MEMORY: (BYTES, lambda policy: Limits(policy.memory, MEMORY_LAUNCHES, MEMORY_ABS_TOLERANCE)),
    SET_UP: (SECONDS, lambda policy: Limits(SLOW_START, START_LAUNCHES, SET_UP_SECONDS)),
    WARM_UP: (SECONDS, lambda policy: Limits(SLOW_START, START_LAUNCHES, WARM_UP_SECONDS)),
}
"""Metrics of which the facts of each timed launch have a sample: their units and how they are decided."""


def of_launches(
    metric: str, case: Case, before: Facts, now: Facts, policy: Policy, cases: int, pairs: Sequence[int] = ()
) -> Verdict | None:
    """Make the verdict on one of these metrics; ``None`` if neither side reports it. For the arguments, see `sampled`."""
    unit, limits = OF_LAUNCHES[metric]
    launches = list(zip(before, now, pairs, strict=True)) if len(before) == len(now) == len(pairs) else []
    if both := [launch for launch in launches if metric in launch[0] and metric in launch[1]]:
        before, now, pairs = [old for old, _, _ in both], [new for _, new, _ in both], [pair for _, _, pair in both]
    old, new = ([float(values[metric]) for values in facts if metric in values] for facts in (before, now))
    return sampled(case, (metric, unit), old, new, limits(policy), policy, cases, pairs)


memory = partial(of_launches, PEAK_HOST_MEMORY)
"""Makes the verdict on the peak of host memory."""

Imports = Mapping[int, tuple[float, int]]
"""Pair of zygotes -> seconds and resident bytes of what a benchmark file has imported."""


def imports(case: Case, before: Imports, now: Imports, policy: Policy, cases: int) -> list[Verdict]:
    """Make the verdicts on what the file of a case imports, from the pairs of zygotes that both sides have.

    No second race confirms a change, so one stage has the whole alpha.
    """
    pairs, rows = sorted(before.keys() & now.keys()), list[Verdict | None]()
    alone = replace(policy, confirm=False)
    for place, (metric, thresholds, slack) in enumerate((
        ((catalog.IMPORT, SECONDS), SLOW_START, IMPORT_SECONDS),
        ((catalog.IMPORT_MEMORY, BYTES), IMPORT_SIZE, IMPORT_BYTES),
    )):  # fmt: skip
        old, new = ([float(side[pair][place]) for pair in pairs] for side in (before, now))
        rows.append(sampled(case, metric, old, new, Limits(thresholds, START_LAUNCHES, slack), alone, cases, pairs))
    return [row for row in rows if row is not None]


def first_call(before: Facts, now: Facts, pairs: Sequence[int], policy: Policy, cases: int) -> Decision | None:
    """Decide on the first call of the step, one effect per launch; ``None`` if no launch reports both sides.

    Facts and ``pairs``, the pair of zygotes, are launch by launch. Launches without first calls do not count. First
    calls have an alpha of their own, equal to the run's, which its ``cases`` share. The number of launches tells the
    look. An undecided one is inconclusive.
    """
    launches, doubt = zip(before, now, pairs, strict=True), catalog.FIRST_CALL_DOUBT
    both = [(old, new, pair) for old, new, pair in launches if FIRST_CALL in old and FIRST_CALL in new]
    before, now = [old for old, _, _ in both], [new for _, new, _ in both]
    effects = [
        Effect(math.log(new[FIRST_CALL] / old[FIRST_CALL]), pair, doubt=(old.get(doubt, 0.0), new.get(doubt, 0.0)))
        for old, new, pair in both if min(old[FIRST_CALL], new[FIRST_CALL]) > 0
    ]  # fmt: skip
    if not effects:
        return None
    decision = decide(effects, len(effects), Terms(policy, cases, False, policy.first_call), True)
    tolerance = policy.first_call_abs_tolerance
    difference = median(facts[FIRST_CALL] for facts in now) - median(facts[FIRST_CALL] for facts in before)
    if decision.outcome is not Outcome.UNCHANGED and abs(difference) < tolerance:
        reason = because(ReasonCode.WITHIN_ABS_TOLERANCE, tolerance=tolerance, difference=difference)
        return replace(decision, outcome=Outcome.UNCHANGED, reason=reason)
    return replace(decision, reason=decision.reason.noted(_parts(before, now)))


def _parts(before: Facts, now: Facts) -> Reason:
    """Return a note on the parts of the first call, in seconds."""

    def seconds(facts: Facts, part: str) -> float:
        return median(float(values.get(FIRST_CALL_PARTS, {}).get(part, 0)) for values in facts)

    parts = {part: (seconds(before, part), seconds(now, part)) for part in ("trace", "compile", "execute")}
    return because(Note.FIRST_CALL_PARTS, **parts)
