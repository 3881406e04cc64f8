"""Check the contracts of a benchmark, which must hold on any machine without a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from tfbench.metrics.catalog import BYTES, CONTRACT, LEAK_METRICS
from tfbench.metrics.exact import amount, named
from tfbench.metrics.parity import Difference
from tfbench.model import Case, Claim, Comparison, MetricValues, Outcome, Reason, ReasonCode, Verdict
from tfbench.policy import Policy
from tfbench.stats.verdict import evidence

ContractResult = tuple[Outcome, Reason]


def of_case(
    case: Case, contracts: Mapping[str, Any], metric_values: MetricValues, peaks: Sequence[float]
) -> list[Verdict]:
    """Check those ``contracts``, the keywords that ``bench`` received, that need one side only.

    ``peaks`` is the peak host memory of each timed launch, bytes.
    """
    checks: dict[str, Callable[..., ContractResult]] = {
        "expect_ops": _expected, "compiled": _compiled, "max_traces": _traced, "max_peak_bytes": partial(_fits, peaks)
    }  # fmt: skip
    return [row(case, name, checks[name](metric_values, contracts[name])) for name in checks if name in contracts]


def row(case: Case, contract: str, contract_result: ContractResult) -> Verdict:
    """Make a contract's row of the report."""
    return Verdict(case, *contract_result, CONTRACT + contract, launches=1)


def _result(outcome: Outcome, code: ReasonCode, text: str) -> ContractResult:
    return outcome, Reason(code, text)


_held = partial(_result, Outcome.UNCHANGED, ReasonCode.CONTRACT_HELD)
_broken = partial(_result, Outcome.REGRESSED, ReasonCode.CONTRACT_BROKEN)
_open = partial(_result, Outcome.INCONCLUSIVE, ReasonCode.CONTRACT_OPEN)
unreadable = partial(_result, Outcome.ERROR, ReasonCode.CONTRACT_UNREADABLE)
"""Makes the result of a contract that cannot be checked, from the reason."""


def _expected(metric_values: MetricValues, expected: Mapping[str, int]) -> ContractResult:
    """Look the ops up in the graph that grappler left, then in the one that devices run, then in XLA's modules."""
    counts = metric_values.counts
    graphs = [counts[key] for key in ("optimized_ops", "graph_ops", "xla_kernels") if key in counts]
    if not graphs:
        why = metric_values.absent.get("graph_ops", "no graph was read")
        return unreadable(f"the ops of expect_ops could not be counted: {why}")
    found = {op: next((graph[op] for graph in graphs if op in graph), 0) for op in expected}
    if wrong := {op: count for op, count in found.items() if count != expected[op]}:
        text = ", ".join(f"{expected[op]} {op} expected, {count} found" for op, count in sorted(wrong.items()))
        return _broken(f"{text}; the graph has {named(graphs[0])}")
    present = {op: count for op, count in found.items() if count}
    return _held(f"as expected: {named(present) or 'none of ' + ', '.join(expected)}")


def _compiled(metric_values: MetricValues, expected: bool) -> ContractResult:
    kernels = metric_values.counts.get("xla_kernels")
    if kernels is None:
        why = metric_values.absent.get("xla_kernels", "the probing launch did not report it")
        return _broken(f"compilation by XLA expected: {why}") if expected else _held(why)
    text = f"XLA compiled {sum(kernels.values())} kernels: {named(kernels)}"
    return _held(text) if expected else _broken(text)


def _traced(metric_values: MetricValues, limit: int) -> ContractResult:
    first, later = metric_values.value("traces"), metric_values.value("retraces")
    if first is None or later is None:
        return unreadable(_unread(metric_values, "traces"))
    text = f"traced {first + later:.0f} times, {limit} allowed"
    if first + later <= limit:
        return _held(text)
    causes = metric_values.counts["retraces"] or metric_values.counts["traces"]
    return _broken(f"{text}: {named(causes)}")


def _fits(peaks: Sequence[float], metric_values: MetricValues, limit: float) -> ContractResult:
    """Check the memory of the accelerator if there is one, otherwise that of the process."""
    peak = metric_values.numbers.get("peak_device_memory") or (median(peaks) if peaks else None)
    if peak is None:
        return unreadable("this system does not report the memory of a process")
    text = f"peak of {amount(peak, BYTES)}, {amount(limit, BYTES)} allowed"
    return _held(text) if peak <= limit else _broken(text)


def _unread(metric_values: MetricValues, metric: str) -> str:
    return f"{metric} could not be read: {metric_values.absent.get(metric, 'the probing launch did not report it')}"


def leak_free(metric_values: MetricValues, policy: Policy) -> ContractResult:
    """Check that a process gains nothing with every call."""
    values = {metric: metric_values.value(metric.name) for metric in LEAK_METRICS}
    if all(value is None for metric, value in values.items() if metric.unit == BYTES):
        return unreadable(_unread(metric_values, LEAK_METRICS[0].name))
    found = [
        f"{metric.name} {amount(value, metric.unit)}"
        for metric, value in values.items()
        if value is not None and value > getattr(policy, metric.slack)
    ]
    if found:
        return _broken(f"the process grows with every call: {', '.join(found)}")
    return _held("the process does not grow with its calls")


def parity(limit: float, found: Difference | str) -> ContractResult:
    """Check the difference from the reference variant; a text says why there is no comparison."""
    if isinstance(found, str):
        return _open(f"the result has no comparison: {found}")
    text = f"differs from the reference variant{found.describe()}, {limit:.2g} allowed"
    return _held(text) if found.error <= limit else _broken(text)


def claim_row(case: Case, claim: Claim, contract_result: ContractResult) -> Verdict:
    """Make a claim's row of the report. Its name contains the other variant if the case has several such claims."""
    several = sum(one.name == claim.name for one in case.claims) > 1
    return row(case, f"{claim.name} {claim.other}" if several else claim.name, contract_result)


def of_times(claim: Claim, found: Comparison | str, tolerance: float) -> ContractResult:
    """Check a claim about speed: faster than another variant in the same race, or equally fast.

    Args:
        found: Compares the times of the other variant / those of this case, or says why there are none.
        tolerance: Fraction by which equally fast variants may differ.
    """
    claimed = "the same time is claimed" if claim.name == "as_fast" else f"{claim.bound:g}x is claimed"
    if isinstance(found, str):
        return _open(f"{claim.other}: {claimed}; {found}")
    ratio, most = found.ratio, 1 + tolerance
    text = f"{ratio.center:.2f}x as fast as {claim.other}, {claimed} ({evidence(ratio, found.launches)})"
    low, high = (1 / most, most) if claim.name == "as_fast" else (claim.bound, math.inf)
    if low <= ratio.low and ratio.high <= high:
        return _held(text)
    return _broken(text) if ratio.high < low or ratio.low > high else _open(f"not decided: {text}")


def of_metric_values(claim: Claim, mine: MetricValues, other: MetricValues | str) -> ContractResult:
    """Check a claim about a model: smaller than another variant (or why it has no values), or as accurate."""
    if isinstance(other, str):
        return _open(f"{claim.other}: {other}")
    theirs, ours = other.value(claim.metric), mine.value(claim.metric)
    if theirs is None or ours is None:
        return unreadable(_unread(other if theirs is None else mine, claim.metric))
    if claim.name == "as_accurate":
        allowed = f"{100 * claim.bound:g} percentage points less allowed"
        text = f"accuracy {ours:.2%}, {theirs:.2%} of {claim.other}, {allowed}"
        return _held(text) if round(theirs - ours, 9) <= claim.bound else _broken(text)
    sizes = f"{amount(ours, BYTES)}, {amount(theirs, BYTES)} of {claim.other}"
    text = f"{sizes}: {theirs / ours:.2f}x as small, {claim.bound:g}x is claimed"
    return _held(text) if theirs >= claim.bound * ours else _broken(text)
