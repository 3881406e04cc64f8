"""Describe the changes between the graphs of two sides."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfbench.metrics import catalog, graphs
from tfbench.metrics.exact import lost_and_gained, same
from tfbench.metrics.graphs import Node, Nodes, fusion, working
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import MetricValues
from tfbench.model.words import amount, exchanged, named
from tfbench.policy import Policy

_SOURCES = frozenset({"Const", "ReadVariableOp", "VarHandleOp"})
"""Ops that only provide values, and so are no part of a fusion."""
GRAPH, XLA, RESULT = "graph", "XLA", "result"
_LIBRARIES = {(False, True): ", a kernel of oneDNN's", (True, False): ", a kernel of TensorFlow's own"}
"""Whether an op was, and is now, one of oneDNN."""
_PARTS = frozenset({"parameter", "constant", "broadcast", "bitcast", "tuple", "get-tuple-element", "iota"})
"""Instructions that do not appear in the description of a fusion."""


class Change(NamedTuple):
    """One line of an explanation."""

    where: str
    what: str
    """``other kernel``, ``fused apart``, ``fused together``, ``replaced``, ``folded``, ``removed``, ``added``, ``other type``."""
    text: str


def explain(before: ProbeOutput, now: ProbeOutput) -> list[Change]:
    """List every change of the executed graphs, of XLA's modules, and of the types of the result."""
    return [
        *graph_changes(before.executed, now.executed),
        *xla_changes(before.modules, now.modules),
        *result_changes([one.dtype for one in before.outputs], [one.dtype for one in now.outputs]),
    ]


def result_changes(before: Sequence[str], now: Sequence[str]) -> list[Change]:
    """List the arrays of a result whose types differ, by the names of their types; none if their numbers differ."""
    if len(before) != len(now):
        return []
    return [
        Change(RESULT, "other type", f"array {number} is {became} instead of {was}")
        for number, (was, became) in enumerate(zip(before, now, strict=True), 1)
        if was != became
    ]


def graph_changes(before: Nodes, now: Nodes) -> list[Change]:
    """Match nodes by name and list the changes: grappler gives a fused op the name of the last op merged into it."""
    old, new = _by_name(before), _by_name(now)
    gone, came = set(old) - set(new), set(new) - set(old)
    kinds = ("other kernel", "fused apart", "fused together", "replaced")
    rewritten: dict[str, Counter[str]] = {what: Counter() for what in kinds}
    folded: Counter[str] = Counter()
    for key in sorted(set(old) & set(new)):
        was, became = old[key], new[key]
        if fusion(was) == fusion(became):
            continue
        if became["op"] == "Const":
            folded[fusion(was)] += 1
            continue
        # The side without the fusion has extra nodes: they lead to the namesake and have none of their own.
        lost, gained = _leading(key, old, gone), _leading(key, new, came)
        gone -= set(lost)
        came -= set(gained)
        parts = _counted(fusion(new[one]) for one in (*gained, key))
        whole = _counted(fusion(old[one]) for one in (*lost, key))
        verb = "are" if lost else "is"
        if len(gained) > len(lost) and was.get("fused"):
            what = "fused apart"
        elif len(lost) > len(gained) and became.get("fused"):
            what = "fused together"
        elif len(gained) == len(lost):
            what = "other kernel"
            parts += _LIBRARIES.get(("Mkl" in was["op"], "Mkl" in became["op"]), "")
        else:
            what = "replaced"
        rewritten[what][f"{whole} {verb} now {parts}"] += 1
    changes = [
        Change(GRAPH, what, text if count == 1 else f"{text} ({count} times)")
        for what, texts in rewritten.items()
        for text, count in sorted(texts.items())
    ]
    changes += [Change(GRAPH, "folded", f"{named(folded)} into constants")] if folded else []
    less, more = (Counter(_label(side[one]) for one in keys) for side, keys in ((old, gone), (new, came)))
    for what, labels in (("removed", less - more), ("added", more - less)):  # an op with another name is neither
        changes += [Change(GRAPH, what, named(labels))] if labels else []
    return changes


def _counted(ops: Iterable[str]) -> str:
    """List ops in their order; neighbours that are the same are counted: ``2 Cast, MatMul``."""
    runs = ((op, len(list(alike))) for op, alike in itertools.groupby(ops))
    return ", ".join(op if count == 1 else f"{count} {op}" for op, count in runs)


Key = tuple[str, int]


def _by_name(nodes: Nodes) -> dict[Key, Node]:
    counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    return {(node["name"], next(counts[node["name"]])): node for node in working(nodes)}


def _leading(key: Key, side: Mapping[Key, Node], free: set[Key]) -> list[Key]:
    """List the nodes of ``free`` that lead to this node through such nodes only, in execution order."""
    found: list[Key] = []
    waiting = [key]
    while waiting:
        for name in side[waiting.pop()].get("inputs", ()):
            one = (name, 0)
            if one in free and one not in found and side[one]["op"] not in _SOURCES:
                found.insert(0, one)
                waiting.append(one)
    return found


def _label(node: Node) -> str:
    types = node.get("types", {})
    if "SrcT" in types and "DstT" in types:
        return f"{node['op']} {types['SrcT']} to {types['DstT']}"
    return fusion(node)


def xla_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """List the changes of each module's kernels; a fusion is described by its instructions."""
    changes = []
    for name in sorted({*before} | {*now}):
        old, new = _kernels(before.get(name, "")), _kernels(now.get(name, ""))
        where = f"{XLA} {name}"
        if not old or not new:
            side, word = (new, "added") if new else (old, "removed")
            changes.append(Change(where, word, f"a module of {sum(side.values())} kernels: {named(side)}"))
            continue
        if not (changed := exchanged(**lost_and_gained(old, new))):
            continue
        first, second = sum(old.values()), sum(new.values())
        less, more = old - new, new - old
        what = "removed" if not more else "added" if not less else "other kernel"
        if less and more and first != second:
            what = "fused together" if second < first else "fused apart"
        changes.append(Change(where, what, f"{first} kernels before, {second} now: {changed}"))
    return changes


def _kernels(text: str) -> Counter[str]:
    """Count the kernels of a module by description; a fusion is described by its instructions."""
    inside: dict[str, Counter[str]] = {}
    module = graphs.instructions(text)
    for one in module:
        if one.op not in _PARTS:
            inside.setdefault(one.computation, Counter())[one.op] += 1
    found: Counter[str] = Counter()
    for kernel in graphs.kernels(module):
        parts = inside.get(graphs.called(kernel), Counter()) if kernel.op == "fusion" else Counter()
        found[f"{kernel.description} of {', '.join(sorted(parts))}" if parts else kernel.description] += 1
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
