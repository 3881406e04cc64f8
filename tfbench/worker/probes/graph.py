"""The graphs that TensorFlow runs, after grappler and as placed on devices, and the modules that XLA compiles.

TensorFlow exports a graph when it builds a function for its first call. Functions that were called before `bench` are
therefore missing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe

_UNIQUE = re.compile(r"_\d+(?=/|$)")
_TYPES = ("T", "dtype", "DstT", "SrcT", "out_type", "Tparams", "Toutput")
FOLDER = "xla"
_ENDING = "_after_optimizations.txt"


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


class Xla(Probe):
    """Lists the files of the modules that are compiled in any call, from XLA's own dump below the launch's folder.

    All calls count, because XLA compiles its automatic clusters at the second call.
    The probe must be created before the first op, because XLA reads its flags only once.
    """

    name = "xla"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        given = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{given} --xla_dump_to={self._folder} --xla_dump_hlo_as_text".strip()
        self._known: set[str] = set()
        self._after: set[str] = set()

    def before(self) -> None:
        self._known = self._modules()

    def after(self, calls: int) -> None:
        self._after = self._modules()

    def found(self) -> JSON:
        if new := sorted(self._after - self._known):
            return {"modules": new}
        raise MetricUnavailable("XLA compiled no module")

    def _modules(self) -> set[str]:
        return {file.name for file in self._folder.glob(f"*{_ENDING}")}


def of_module(file: str) -> str:
    """Return the function of a module from its file name, without the counters and hashes that XLA adds."""
    name = file.partition(".")[2].partition("__XlaMustCompile")[0].removesuffix(_ENDING)
    return re.sub(r"^a_inference_|_\d+$", "", name) or file
