"""Judge what a benchmark states: contracts, which hold on any machine without a baseline, and the work of a call.

The work gives the share of the roofline that a case reaches. The limit of a case is the shortest time for computing its
operations and moving its bytes, at the ceilings that the same run measured (Williams, Waterman & Patterson 2009,
Roofline, Commun. ACM 52).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from tfbench.metrics.catalog import CONTRACT, LEAK_CALLS, LEAK_METRICS, LEAK_SITES
from tfbench.metrics.parity import Difference
from tfbench.model.case import CALL_SECONDS, LEAK_KINDS, LEAKS, NO_ACCELERATOR, NO_MODULE, Case, Claim
from tfbench.model.measurement import MetricValues
from tfbench.model.reasons import Note, Reason, ReasonCode, because
from tfbench.model.report import Comparison, Outcome, VariantResult, Verdict
from tfbench.model.words import BYTES

ContractResult = tuple[Outcome, Reason]


def of_case(
    case: Case, contracts: Mapping[str, Any], metric_values: MetricValues, peaks: Sequence[float]
) -> list[Verdict]:
    """Check those ``contracts``, the keywords that ``bench`` received, that need one side only, and `@no_leak`.

    ``peaks`` is the peak host memory of each timed launch, bytes.
    """
    checks: dict[str, Callable[..., ContractResult]] = {
        "expect_ops": _expected, "compiled": _compiled, "max_traces": _traced, "max_peak_bytes": partial(_fits, peaks)
    }  # fmt: skip
    rows = [row(case, name, checks[name](metric_values, contracts[name])) for name in checks if name in contracts]
    return rows + [claim_row(case, claim, leak_free(metric_values, claim.kinds)) for claim in case.claims_on(LEAKS)]


def row(case: Case, contract: str, contract_result: ContractResult) -> Verdict:
    """Make a contract's row of the report."""
    return Verdict.of(case, *contract_result, CONTRACT + contract, launches=1)


def _result(outcome: Outcome, code: ReasonCode, note: Note, *notes: Reason, **facts: Any) -> ContractResult:
    return outcome, because(code, because(note, *notes, **facts))


_held = partial(_result, Outcome.UNCHANGED, ReasonCode.CONTRACT_HELD)
_broken = partial(_result, Outcome.REGRESSED, ReasonCode.CONTRACT_BROKEN)
_open = partial(_result, Outcome.INCONCLUSIVE, ReasonCode.CONTRACT_OPEN)
unreadable = partial(_result, Outcome.ERROR, ReasonCode.CONTRACT_UNREADABLE)
"""Makes the result of a contract that cannot be checked, from a note with its facts."""


def _judged(holds: bool, note: Note, **facts: Any) -> ContractResult:
    return _held(note, **facts) if holds else _broken(note, **facts)


def _expected(metric_values: MetricValues, expected: Mapping[str, int]) -> ContractResult:
    """Look the ops up in the graph that grappler left, then in the one that devices run, then in XLA's modules."""
    counts = metric_values.counts
    graphs = [counts[key] for key in ("optimized_ops", "graph_ops", "xla_kernels") if key in counts]
    if not graphs:
        return unreadable(Note.NO_GRAPH, why=metric_values.absent.get("graph_ops", "no graph was read"))
    counted = {op: next((graph[op] for graph in graphs if op in graph), 0) for op in expected}
    if counted == dict(expected):
        return _held(Note.OPS, counted=counted)
    return _broken(Note.OTHER_OPS, expected=dict(expected), counted=counted, graph=dict(graphs[0]))


def _compiled(metric_values: MetricValues, expected: bool) -> ContractResult:
    kernels, why = metric_values.counts.get("xla_kernels"), metric_values.absent.get("xla_kernels")
    if kernels is None and why != NO_MODULE:
        return _unread(metric_values, "xla_kernels")
    if kernels is None:
        return _broken(Note.NOT_COMPILED, why=why) if expected else _held(Note.WHY, why=why)
    return _judged(expected, Note.KERNELS, counts=dict(kernels))


def _traced(metric_values: MetricValues, limit: int) -> ContractResult:
    first, later = metric_values.value("traces"), metric_values.value("retraces")
    if first is None or later is None:
        return _unread(metric_values, "traces")
    if first + later <= limit:
        return _held(Note.TRACES, traces=first + later, limit=limit)
    causes = metric_values.counts["retraces"] or metric_values.counts["traces"]
    return _broken(Note.TRACES, traces=first + later, limit=limit, causes=dict(causes))


def _fits(peaks: Sequence[float], metric_values: MetricValues, limit: float) -> ContractResult:
    """Check the memory of the accelerator if there is one, otherwise that of the process."""
    on_device = metric_values.numbers.get("peak_device_memory")
    if on_device is None and metric_values.absent.get("peak_device_memory") != NO_ACCELERATOR:
        return _unread(metric_values, "peak_device_memory")
    peak = on_device or (median(peaks) if peaks else None)
    if peak is None:
        return unreadable(Note.NO_PEAK)
    return _judged(peak <= limit, Note.PEAK, peak=peak, limit=limit)


def _unread(metric_values: MetricValues, metric: str) -> ContractResult:
    why = metric_values.absent.get(metric, "the probing launch did not report it")
    return unreadable(Note.UNREAD, metric=metric, why=why)


def leak_free(metric_values: MetricValues, kinds: Collection[str] = LEAK_KINDS) -> ContractResult:
    """Check that a process gains nothing of these kinds with every call."""
    chosen = [metric for kind, metric in zip(LEAK_KINDS, LEAK_METRICS, strict=True) if kind in kinds]
    values = {metric: value for metric in chosen if (value := metric_values.value(metric.name)) is not None}
    memory = [metric for metric in chosen if metric.unit == BYTES]
    if values.keys().isdisjoint(memory or chosen):
        return _unread(metric_values, chosen[0].name)
    growth = {metric.name: (value, metric.unit) for metric, value in values.items() if value > metric.slack}
    if not growth:
        return _held(Note.NO_LEAK)
    sites = sorted(metric_values.counts.get(LEAK_SITES, {}).items(), key=lambda site: -site[1])
    return _broken(Note.LEAKS, growth=growth, sites=dict(sites), calls=int(metric_values.value(LEAK_CALLS) or 0))


def _alone(note: Note, why: str, **facts: Any) -> ContractResult:
    """Make the result without the other variant: open if the run leaves that out, and unreadable for any reason ``why``."""
    result = unreadable if why else _open
    return result(note, why=why or "the other variant is skipped or not part of this run", **facts)


def parity(limit: float, difference: Difference | str) -> ContractResult:
    """Check the difference from the reference variant; a text is for `_alone`."""
    if isinstance(difference, str):
        return _alone(Note.NO_RESULT, why=difference)
    note = difference.note(whose="the reference variant", allowed=limit)
    return _judged(difference.error <= limit, Note.RESULT, **note.facts)


def claim_row(case: Case, claim: Claim, contract_result: ContractResult) -> Verdict:
    """Make a claim's row of the report. Its name contains the other variant if the case has several such claims."""
    several = sum(stated.name == claim.name for stated in case.claims) > 1
    return row(case, f"{claim.name} {claim.other}" if several else claim.name, contract_result)


def of_times(claim: Claim, result: Comparison | str, tolerance: float) -> ContractResult:
    """Check a claim about speed: faster than another variant in the same race, or equally fast within ``tolerance``.

    Or check a limit in seconds. ``result`` compares the times of the other variant / those of this case, or says why there
    are none; for a limit, the times of this case / the limit.
    """
    facts: dict[str, Any] = {"other": claim.other, "claim": None if claim.name == "as_fast" else claim.bound}
    if isinstance(result, str):
        return _open(Note.NO_RACE, **facts, why=result)
    ratio, most, note = result.ratio, 1 + tolerance, Note.LIMIT if claim.metric == CALL_SECONDS else Note.SPEED
    ranges = {"as_fast": (1 / most, most), "at_most": (0.0, 1.0), "at_least": (1.0, math.inf)}
    low, high = ranges.get(claim.name, (claim.bound, math.inf))
    facts |= {"ratio": ratio, "launches": result.launches}
    if low <= ratio.low and ratio.high <= high:
        return _held(note, **facts)
    if ratio.high < low or ratio.low > high:
        return _broken(note, **facts)
    return _open(Note.UNDECIDED, because(note, **facts))


def of_metric_values(claim: Claim, mine: MetricValues, other: MetricValues | str) -> ContractResult:
    """Check a claim about a model: smaller than another variant, or as accurate; a text is for `_alone`."""
    if isinstance(other, str):
        return _alone(Note.OTHER_VARIANT, why=other, other=claim.other)
    theirs, ours = other.value(claim.metric), mine.value(claim.metric)
    if theirs is None or ours is None:
        return _unread(other if theirs is None else mine, claim.metric)
    if claim.name == "as_accurate":
        facts = {"accuracy": ours, "other": claim.other, "theirs": theirs, "allowed": claim.bound}
        return _judged(round(theirs - ours, 9) <= claim.bound, Note.ACCURACY, **facts)
    small = theirs >= claim.bound * ours
    return _judged(small, Note.SIZE, size=ours, other=claim.other, theirs=theirs, claim=claim.bound)


_WORK = ("flops", "bytes")
"""The facts with the work of a call that the roofline limits."""
CEILING = "ceiling"
"""The fact that marks a case as a ceiling, of ``flops`` or of ``bytes``."""


def with_shares(variant_results: Sequence[VariantResult], device: str = "cpu") -> tuple[VariantResult, ...]:
    """Add the facts ``share`` (of the limit, from 0 to 1) and ``bound`` to the results that have a ceiling.

    A ceiling applies to cases of the same device and processors. A ceiling of operations also needs the same precision.
    ``device`` is that of cases without a level of it, ``gpu`` where TensorFlow has one.
    """
    ceilings: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for result in variant_results:
        kind = result.facts.get(CEILING)
        if kind in _WORK and result.facts.get(kind):
            key = _key(kind, result, device)
            ceilings[key] = max(ceilings[key], result.facts[kind] / result.median_seconds)
    return tuple(_with_share(result, ceilings, device) for result in variant_results)


def _key(kind: str, result: VariantResult, device: str) -> tuple[str, ...]:
    levels = {"precision": "float32", "device": device, **result.variant}
    return (kind, levels["device"], str(result.cpus), *([levels["precision"]] if kind == "flops" else []))


def _with_share(result: VariantResult, ceilings: Mapping[tuple[str, ...], float], device: str) -> VariantResult:
    if CEILING in result.facts:
        return result
    seconds = {
        kind: result.facts[kind] / ceilings[key]
        for kind in _WORK
        if result.facts.get(kind) and (key := _key(kind, result, device)) in ceilings
    }
    if not seconds:
        return result
    longest, bound = max((value, kind) for kind, value in seconds.items())
    return result.changed(facts={**result.facts, "share": longest / result.median_seconds, "bound": bound})
