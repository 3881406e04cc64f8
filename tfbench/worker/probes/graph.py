"""The graphs that TensorFlow runs: after grappler, and as placed on devices.

TensorFlow exports a graph when it builds a function for its first call. Functions that were called before `bench` are
therefore missing.
"""

from __future__ import annotations

import re
from typing import Any

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe

_UNIQUE = re.compile(r"_\d+(?=/|$)")
_TYPES = ("T", "dtype", "DstT", "SrcT", "out_type", "Tparams", "Toutput")


class Graph(Probe):
    """Lists the nodes of the first call's graphs."""

    name = "graph"

    def __init__(self) -> None:
        self._metadata: Any = None

    def before(self) -> None:
        tf_internals.collect_graphs(True)

    def between(self, result: object) -> None:
        self._metadata = tf_internals.collect_graphs(False)

    def found(self) -> JSON:
        graphs = self._metadata.function_graphs
        if not graphs:
            raise MetricUnavailable(
                "the first call built no TensorFlow graph: it ran an eager op, a function that XLA compiles completely, "
                "or a function that was called before bench"
            )
        optimized = [_nodes(graph.post_optimization_graph) for graph in graphs]
        run = [_nodes(*(graph.partition_graphs or [graph.post_optimization_graph])) for graph in graphs]
        return {"optimized": optimized, "executed": run, "onednn": tf_internals.has_onednn()}


def _nodes(*graphs: Any) -> list[JSON]:
    """Return the nodes of GraphDefs and of their functions: name without counters, op, fused ops, types."""
    parts = [nodes for graph in graphs for nodes in (graph.node, *(made.node_def for made in graph.library.function))]
    return [_node(node) for nodes in parts for node in nodes]


def _node(node: Any) -> JSON:
    made: JSON = {"name": _UNIQUE.sub("", node.name), "op": "function" if node.op.startswith("__") else node.op}
    if "fused_ops" in node.attr and (fused := [name.decode() for name in node.attr["fused_ops"].list.s]):
        made["fused"] = fused
    numbers = {key: node.attr[key].type for key in _TYPES if key in node.attr and node.attr[key].type}
    if numbers:
        made["types"] = {key: tf_internals.dtype_name(number) for key, number in numbers.items()}
    if node.op in ("_Send", "_HostSend"):
        ends = (node.attr[key].s.decode() for key in ("send_device", "recv_device"))
        made["copy"] = " to ".join(end.rpartition("device:")[2] or "?" for end in ends)
    if inputs := [_UNIQUE.sub("", name.removeprefix("^").partition(":")[0]) for name in node.input]:
        made["inputs"] = inputs
    return made
