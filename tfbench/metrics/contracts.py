"""What a benchmark says must hold of it on any machine, and whether it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from tfbench.metrics.catalog import BYTES, CONTRACT
from tfbench.metrics.exact import amount, named
from tfbench.model import Case, Claim, Comparison, MetricValues, Outcome, Reason, Verdict
from tfbench.policy import Policy
from tfbench.stats.verdict import evidence

ContractResult = tuple[Outcome, Reason]
HELD, BROKEN, UNREADABLE, OPEN = "contract-held", "contract-broken", "contract-unreadable", "contract-open"


def of_case(
    case: Case, contracts: Mapping[str, Any], metric_values: MetricValues, peaks: Sequence[float]
) -> list[Verdict]:
    """The rows of the contracts that one side's launches decide: ``expect_ops``, ``compiled``,
    ``max_traces``, ``max_peak_bytes``.

    Args:
        contracts: As ``bench`` was told them.
        peaks: Peak host memory of each timed launch, bytes.
    """
    checks: dict[str, Callable[[Any], ContractResult]] = {
        "expect_ops": lambda wanted: _expected(wanted, metric_values),
        "compiled": lambda wanted: _compiled(wanted, metric_values),
        "max_traces": lambda most: _traced(most, metric_values),
        "max_peak_bytes": lambda most: _fits(most, metric_values, peaks),
    }
    return [row(case, name, checks[name](contracts[name])) for name in checks if name in contracts]


def row(case: Case, contract: str, contract_result: ContractResult) -> Verdict:
    """A contract's row of the report."""
    outcome, reason = contract_result
    return Verdict(case, outcome, reason, CONTRACT + contract, launches=1)


def _held(text: str) -> ContractResult:
    return Outcome.UNCHANGED, Reason(HELD, text)


def _broken(text: str) -> ContractResult:
    return Outcome.REGRESSED, Reason(BROKEN, text)


def unreadable(text: str) -> ContractResult:
    """A contract that nothing can be said about, which is an error."""
    return Outcome.ERROR, Reason(UNREADABLE, text)


def _open(text: str) -> ContractResult:
    return Outcome.INCONCLUSIVE, Reason(OPEN, text)


def _expected(wanted: Mapping[str, int], metric_values: MetricValues) -> ContractResult:
    """Names are looked up in the graph that grappler left, the one that devices run, and XLA's module."""
    graphs = [
        metric_values.counts[key]
        for key in ("optimized_ops", "graph_ops", "xla_kernels")
        if key in metric_values.counts
    ]
    if not graphs:
        why = metric_values.absent.get("graph_ops", "no graph was read")
        return unreadable(f"ops are expected and no graph could be read: {why}")
    found = {op: next((graph[op] for graph in graphs if op in graph), 0) for op in wanted}
    if wrong := {op: count for op, count in found.items() if count != wanted[op]}:
        text = ", ".join(f"{wanted[op]} {op} expected, {count} found" for op, count in sorted(wrong.items()))
        return _broken(f"{text}; the graph has {named(graphs[0])}")
    return _held(
        f"as expected: {named({op: count for op, count in found.items() if count}) or 'none of ' + ', '.join(wanted)}"
    )


def _compiled(wanted: bool, metric_values: MetricValues) -> ContractResult:
    """Whether XLA compiled anything of the step."""
    kernels = metric_values.counts.get("xla_kernels")
    if kernels is None:
        why = metric_values.absent.get("xla_kernels", "it was not told")
        return _broken(f"to be compiled by XLA, but {why}") if wanted else _held(why)
    text = f"XLA compiled {sum(kernels.values())} kernels: {named(kernels)}"
    return _held(text) if wanted else _broken(text)


def _traced(most: int, metric_values: MetricValues) -> ContractResult:
    first, later = metric_values.value("traces"), metric_values.value("retraces")
    if first is None or later is None:
        return unreadable(f"traces could not be counted: {metric_values.absent.get('traces', 'they were not told')}")
    text = f"traced {first + later:.0f} times, {most} allowed"
    if first + later <= most:
        return _held(text)
    causes = metric_values.counts["retraces"] or metric_values.counts["traces"]
    return _broken(f"{text}: {named(causes)}")


def _fits(most: float, metric_values: MetricValues, peaks: Sequence[float]) -> ContractResult:
    """On an accelerator its own memory counts, elsewhere the process'."""
    peak = metric_values.numbers.get("peak_device_memory") or (median(peaks) if peaks else None)
    if peak is None:
        return unreadable("this system does not tell how much memory a process needs")
    text = f"peak of {amount(peak, BYTES)}, {amount(most, BYTES)} allowed"
    return _held(text) if peak <= most else _broken(text)


def parity(most: float, error: float | str) -> ContractResult:
    """Of the error against the reference variant, or why there is none."""
    if isinstance(error, str):
        return _open(f"it cannot be compared: {error}")
    text = f"differs from the reference variant by {error:.2g}, {most:.2g} allowed"
    return _held(text) if error <= most else _broken(text)


def claim_row(case: Case, claim: Claim, contract_result: ContractResult) -> Verdict:
    """A claim's row of the report, with the other variant in its name where there are several."""
    several = sum(one.name == claim.name for one in case.claims) > 1
    return row(case, f"{claim.name} {claim.other}" if several else claim.name, contract_result)


def of_times(claim: Claim, found: Comparison | str, policy: Policy) -> ContractResult:
    """So many times as fast as another variant in the same race, or neither faster nor slower.

    Args:
        found: The times of the other / those of this case, or why there are none.
    """
    asked = "the same time is claimed" if claim.name == "as_fast" else f"{claim.bound:g}x is claimed"
    if isinstance(found, str):
        return _open(f"{claim.other}: {asked}; {found}")
    ratio, most = found.ratio, 1 + policy.tolerance
    text = f"{ratio.center:.2f}x as fast as {claim.other}, {asked} ({evidence(found)})"
    least, limit = (1 / most, most) if claim.name == "as_fast" else (claim.bound, math.inf)
    if least <= ratio.low and ratio.high <= limit:
        return _held(text)
    return _broken(text) if ratio.high < least or ratio.low > limit else _open(f"not decided: {text}")


def of_metric_values(claim: Claim, mine: MetricValues, other: MetricValues | str) -> ContractResult:
    """So many times as small as another variant, or about as accurate.

    Args:
        other: What was read of the other variant, or why nothing was.
    """
    if isinstance(other, str):
        return _open(f"{claim.other}: {other}")
    theirs, ours = other.value(claim.metric), mine.value(claim.metric)
    if theirs is None or ours is None:
        lacking = other if theirs is None else mine
        return unreadable(f"{claim.metric} is claimed: {lacking.absent.get(claim.metric, 'it was not told')}")
    if claim.name == "as_accurate":
        text = f"accuracy {ours:.2%}, {theirs:.2%} of {claim.other}, {100 * claim.bound:g} points less are allowed"
        return _held(text) if round(theirs - ours, 9) <= claim.bound else _broken(text)
    text = f"{amount(ours, BYTES)}, {amount(theirs, BYTES)} of {claim.other}: {theirs / ours:.2f}x as small"
    text = f"{text}, {claim.bound:g}x is claimed"
    return _held(text) if theirs >= claim.bound * ours else _broken(text)
