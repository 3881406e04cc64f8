"""Count what TensorFlow's graphs consist of, from the nodes that a launch sent.

A node is ``{"name", "op"}`` with, where they exist, ``fused`` (the ops that were merged into it), ``types``
(attribute -> type), ``copy`` (from device to device) and ``inputs``.
The counts below expect nodes that `working` returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

Node = Mapping[str, Any]
Nodes = Collection[Node]

_PLUMBING = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "NoOp", "Identity", "IdentityN"})
"""Ops that do no work."""
TRANSPOSES = frozenset({"Transpose", "ConjugateTranspose", "_MklTranspose", "_MklConjugateTranspose"})
READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})


def working(nodes: Iterable[Node]) -> list[Node]:
    """Drop the nodes that do no work."""
    return [node for node in nodes if node["op"] not in _PLUMBING]


def ops(nodes: Iterable[Node], among: Collection[str] = ()) -> Counter[str]:
    """Count nodes by op; ``among`` restricts the ops."""
    return Counter(node["op"] for node in nodes if not among or node["op"] in among)


def fused_ops(nodes: Nodes) -> Counter[str]:
    """Count merged ops, such as ``Relu in _FusedConv2D``, so that a fusion of fewer ops has a lower count."""
    found = Counter(f"{part} in {node['op']}" for node in nodes for part in node.get("fused") or ())
    return found + Counter(str(node["op"]) for node in nodes if "Fused" in node["op"] and not node.get("fused"))


def casts(nodes: Nodes) -> Counter[str]:
    """Count casts by their types, such as ``float32 to float64``."""
    types = (node.get("types", {}) for node in nodes if node["op"] in ("Cast", "_MklCast"))
    return Counter(f"{one.get('SrcT', '?')} to {one.get('DstT', '?')}" for one in types)


def float64_ops(nodes: Nodes) -> Counter[str]:
    """Count the ops that have a float64 type."""
    return ops(node for node in nodes if "float64" in node.get("types", {}).values())


def copies(nodes: Nodes) -> Counter[str]:
    """Count copies between devices by their direction, such as ``CPU:0 to GPU:0``."""
    return Counter(node["copy"] for node in nodes if "copy" in node)


def fusion(node: Node) -> str:
    """Name an op with the ops merged into it: ``_FusedConv2D(BiasAdd, Relu)``."""
    return f"{node['op']}({', '.join(node['fused'])})" if node.get("fused") else str(node["op"])
