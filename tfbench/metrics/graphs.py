"""What graphs are made of: from the nodes that a launch sent to counts.

A node is ``{"name", "op"}`` with, where they exist, ``fused`` (the ops that a fused one stands for), ``types``
(attribute -> type), ``copy`` (from device to device) and ``inputs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]

PLUMBING = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "NoOp", "Identity", "IdentityN"})
"""Nodes that do no work."""
_TRANSPOSES = frozenset({"Transpose", "ConjugateTranspose", "_MklTranspose", "_MklConjugateTranspose"})
_VARIABLES = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})


def working(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that do something."""
    return [node for node in nodes if node["op"] not in PLUMBING]


def counts(optimized: Sequence[Sequence[Node]], executed: Sequence[Sequence[Node]]) -> dict[str, dict[str, int]]:
    """Every count of a step's graphs.

    Args:
        optimized: Nodes of each graph as grappler left it, where fusions have their common names.
        executed: Nodes of each graph as its devices run it.
    """
    planned = working(node for graph in optimized for node in graph)
    run = working(node for graph in executed for node in graph)
    found = {
        "graph_ops": Counter(node["op"] for node in run),
        "optimized_ops": Counter(node["op"] for node in planned),
        "fused_ops": Counter(part for node in planned for part in _parts(node)),
        "casts": Counter(_cast(node) for node in run if node["op"] in ("Cast", "_MklCast")),
        "float64_ops": Counter(node["op"] for node in run if "float64" in node.get("types", {}).values()),
        "transposes": Counter(node["op"] for node in run if node["op"] in _TRANSPOSES),
        "copies": Counter(node["copy"] for node in run if "copy" in node),
        "variables_read": Counter(node["op"] for node in run if node["op"] in _VARIABLES),
    }
    return {metric: dict(sorted(count.items())) for metric, count in found.items()}


def fusion(node: Node) -> str:
    """A fused op with what it stands for: ``_FusedConv2D(BiasAdd, Relu)``."""
    return f"{node['op']}({', '.join(node['fused'])})" if node.get("fused") else str(node["op"])


def _parts(node: Node) -> list[str]:
    """Each op that a fused one took in, so that one that takes in fewer is worse: ``Relu in _FusedConv2D``."""
    if node.get("fused"):
        return [f"{part} in {node['op']}" for part in node["fused"]]
    return [str(node["op"])] if "Fused" in node["op"] else []


def _cast(node: Node) -> str:
    types = node.get("types", {})
    return f"{types.get('SrcT', '?')} to {types.get('DstT', '?')}"
