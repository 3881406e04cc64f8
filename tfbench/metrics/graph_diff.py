"""What changed between the graphs of two sides, as a person would say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tfbench.metrics import hlo
from tfbench.metrics.catalog import READ
from tfbench.metrics.exact import amount, details, lost_and_gained, named
from tfbench.metrics.extract import ProbeOutput
from tfbench.metrics.graphs import Node, fusion, working
from tfbench.model import MetricValues

_SOURCES = frozenset({"Const", "ReadVariableOp", "VarHandleOp"})
"""What values come from: no part of a fusion."""
GRAPH, XLA = "graph", "XLA"
_PARTS = frozenset({"parameter", "constant", "broadcast", "bitcast", "tuple", "get-tuple-element", "iota"})
"""Instructions of a fusion that do not name it."""


@dataclass(frozen=True)
class Change:
    """One line of an explanation."""

    where: str
    what: str
    """``other kernel``, ``fused apart``, ``fused together``, ``folded``, ``removed``, ``added``."""
    text: str


def explain(before: ProbeOutput, now: ProbeOutput) -> list[Change]:
    """Every change of the executed graphs and of XLA's modules."""
    found = []
    if "graph" in before.found or "graph" in now.found:
        found += graph_changes(_nodes(before), _nodes(now))
    if before.modules or now.modules:
        found += xla_changes(before.modules, now.modules)
    return found


def _nodes(probe_output: ProbeOutput) -> list[Node]:
    return [node for graph in probe_output.found.get("graph", {}).get("executed", []) for node in graph]


# Graphs


def graph_changes(before: Iterable[Node], now: Iterable[Node]) -> list[Change]:
    """Nodes are the same where their names are: grappler gives a fused op the name of the last one in it."""
    old, new = _by_name(before), _by_name(now)
    gone, came = set(old) - set(new), set(new) - set(old)
    kernels: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    together: Counter[str] = Counter()
    folded: Counter[str] = Counter()
    for key in sorted(set(old) & set(new)):
        was, became = old[key], new[key]
        if fusion(was) == fusion(became):
            continue
        if became["op"] == "Const":
            folded[fusion(was)] += 1
            continue
        # What the wider of the two stands for is what leads up to its namesake and has no namesake of its own.
        lost, gained = _leading(key, old, gone), _leading(key, new, came)
        gone -= set(lost)
        came -= set(gained)
        parts = ", ".join(fusion(new[one]) for one in (*gained, key))
        whole = ", ".join(fusion(old[one]) for one in (*lost, key))
        if len(gained) > len(lost):
            apart[f"{whole} is now {parts}"] += 1
        elif len(lost) > len(gained):
            together[f"{whole} are now {parts}"] += 1
        else:
            kernels[f"{whole} is now {parts}{_by_whom(was, became)}"] += 1
    changes = [
        Change(GRAPH, what, _times(text, count))
        for what, texts in (("other kernel", kernels), ("fused apart", apart), ("fused together", together))
        for text, count in sorted(texts.items())
    ]
    changes += [Change(GRAPH, "folded", f"{named(folded)} into constants")] if folded else []
    removed, added = (Counter(_said(side[one]) for one in keys) for side, keys in ((old, gone), (new, came)))
    changes += [Change(GRAPH, "removed", named(removed))] if removed else []
    changes += [Change(GRAPH, "added", named(added))] if added else []
    return changes


Key = tuple[str, int]


def _by_name(nodes: Iterable[Node]) -> dict[Key, Node]:
    seen: Counter[str] = Counter()
    found = {}
    for node in working(nodes):
        found[node["name"], seen[node["name"]]] = node
        seen[node["name"]] += 1
    return found


def _leading(key: Key, side: Mapping[Key, Node], free: set[Key]) -> list[Key]:
    """Nodes of ``free`` from which only such nodes lead to this one, in the order they run."""
    found: list[Key] = []
    waiting = [key]
    while waiting:
        for name in side[waiting.pop()].get("inputs", ()):
            one = (name, 0)
            if one in free and one not in found and side[one]["op"] not in _SOURCES:
                found.insert(0, one)
                waiting.append(one)
    return found


def _by_whom(was: Node, became: Node) -> str:
    dnn = ["Mkl" in node["op"] for node in (was, became)]
    if dnn == [False, True]:
        return ", a kernel of oneDNN's"
    return ", a kernel of TensorFlow's own" if dnn == [True, False] else ""


def _said(node: Node) -> str:
    types = node.get("types", {})
    if "SrcT" in types and "DstT" in types:
        return f"{node['op']} {types['SrcT']} to {types['DstT']}"
    return fusion(node)


def _times(text: str, count: int) -> str:
    return text if count == 1 else f"{text} ({count} times)"


# XLA


def xla_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """By what is run: kernels, with what their fusions are made of."""
    changes = []
    for name in sorted({*before} | {*now}):
        old, new = _kernels(before.get(name, "")), _kernels(now.get(name, ""))
        where = f"{XLA} {name}"
        if not old or not new:
            side, word = (new, "added") if new else (old, "removed")
            changes.append(Change(where, word, f"a module of {sum(side.values())} kernels: {named(side)}"))
            continue
        changed = lost_and_gained(old, new)
        if not changed:
            continue
        total = f"{sum(old.values())} kernels before, {sum(new.values())} now"
        fewer = sum(new.values()) < sum(old.values())
        what = "fused together" if fewer else "fused apart" if sum(new.values()) > sum(old.values()) else "other kernel"
        changes.append(Change(where, what, f"{total}: {changed}"))
    return changes


def _kernels(text: str) -> Counter[str]:
    """Kernel in words -> how often it stands in a module; a fusion with the instructions in it."""
    inside: dict[str, Counter[str]] = {}
    every = hlo.instructions(text)
    for one in every:
        if one.op not in _PARTS:
            inside.setdefault(one.computation, Counter())[one.op] += 1
    found: Counter[str] = Counter()
    for kernel in hlo.kernels(every):
        parts = inside.get(hlo.called(kernel), Counter()) if kernel.op == "fusion" else Counter()
        found[f"{kernel.description} of {', '.join(sorted(parts))}" if parts else kernel.description] += 1
    return found


# Metrics


def metric_changes(before: MetricValues, now: MetricValues) -> list[tuple[str, str, str, str]]:
    """Metric, its values on both sides and what was gained and lost, of each metric that differs."""
    rows = []
    for metric in READ:
        old, new = before.value(metric.name), now.value(metric.name)
        more = details(metric.name, before, now).removeprefix(": ")
        if (old or 0) != (new or 0) or more:  # none read and none there is the same, where the graph itself is gone
            rows.append((metric.name, amount(old, metric.unit), amount(new, metric.unit), more))
    return rows
