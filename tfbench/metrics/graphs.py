"""Count and compare the ops of TensorFlow's graphs, from the nodes of a launch, and the instructions of XLA's modules.

A node is ``{"name", "op"}`` with, where they exist, ``fused`` (the ops that were merged into it), ``types``
(attribute -> type), ``copy`` (from device to device) and ``inputs``.
The counts of nodes expect nodes that `working` returned.

The text of XLA's optimized modules comes from ``HloModule::ToString``: computations in braces, one instruction per
line, ``%name = type opcode(operands), attributes``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
    fused = Counter(f"{part} in {node['op']}" for node in nodes for part in node.get("fused") or ())
    return fused + Counter(str(node["op"]) for node in nodes if "Fused" in node["op"] and not node.get("fused"))


def casts(nodes: Nodes) -> Counter[str]:
    """Count casts by their types, such as ``float32 to float64``."""
    types = (node.get("types", {}) for node in nodes if node["op"] in ("Cast", "_MklCast"))
    return Counter(f"{cast.get('SrcT', '?')} to {cast.get('DstT', '?')}" for cast in types)


def float64_ops(nodes: Nodes) -> Counter[str]:
    """Count the ops that have a float64 type."""
    return ops(node for node in nodes if "float64" in node.get("types", {}).values())


def copies(nodes: Nodes) -> Counter[str]:
    """Count copies between devices by their direction, such as ``CPU:0 to GPU:0``."""
    return Counter(node["copy"] for node in nodes if "copy" in node)


_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = (?P<type>\(.*?\)|\S+) (?P<op>[a-z][\w\-]*)\((?P<rest>.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{\s*$")
_CALLED = re.compile(r"(?:calls|to_apply)=\{?%?(?P<name>[\w.\-]+)")
_DETAILS = {"fusion": re.compile(r"kind=k(\w+)"), "custom-call": re.compile(r'custom_call_target="([^"]*)"')}
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), .*preallocated-temp", re.MULTILINE)
_ALGORITHM = re.compile(
    r'"(?:selected_algorithm|algorithm|triton_gemm_config|block_level_fusion_config|custom_fusion_config|cudnn_fusion_config)":'
    r'("-?\d+"|\{(?:[^{}]|\{[^{}]*\})*\})'
)
"""What XLA chose for a kernel: an algorithm of cuBLAS or cuDNN by its number, or tiles of a kernel that it generates."""
_NO_KERNEL = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "while", "conditional", "call"}
)
"""Opcodes that run no kernel. Loops and branches are among them, because their bodies have kernels of their own."""


class Instruction(NamedTuple):
    """One line of a computation."""

    computation: str
    type: str
    op: str
    rest: str
    """Operands and attributes."""

    @property
    def description(self) -> str:
        """The op with its kind or target: ``fusion kLoop``, ``custom-call __onednn$matmul``."""
        match = self.op in _DETAILS and _DETAILS[self.op].search(self.rest)
        return f"{self.op} {match[1]}" if match else self.op

    @property
    def element_type(self) -> str:
        """The type of one element of the result, such as ``f64``."""
        return self.type.partition("[")[0]


def instructions(text: str) -> list[Instruction]:
    """Parse every instruction of a module, in order."""
    computation = ""
    read = []
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            computation = match["name"]
        elif match := _INSTRUCTION.match(line):
            read.append(Instruction(computation, **match.groupdict()))
    return read


def kernels(module: Sequence[Instruction]) -> list[Instruction]:
    """Select the instructions of a module that run individually, without those inside fusions and reductions."""
    # The computation of a parallel call on a CPU runs by itself; those of fusions, reductions and sorts are inlined.
    inlining = (line.rest for line in module if line.op not in ("call", "async-start"))
    inner = {match["name"] for rest in inlining for match in _CALLED.finditer(rest)}
    return [line for line in module if line.computation not in inner and line.op not in _NO_KERNEL]


def algorithms(kernels: Iterable[Instruction]) -> Counter[str]:
    """Count the kernels that XLA tuned for a GPU by their description and the algorithm that it chose."""
    chosen = ((kernel.description, match[1]) for kernel in kernels if (match := _ALGORITHM.search(kernel.rest)))
    return Counter(f"{description} {algorithm}".replace('"', "") for description, algorithm in chosen)


def xla_casts(instructions: Iterable[Instruction]) -> Counter[str]:
    """Count conversions by their result type, such as ``to f64``."""
    return Counter(f"to {instruction.element_type}" for instruction in instructions if instruction.op == "convert")


def xla_float64(instructions: Iterable[Instruction]) -> Counter[str]:
    """Count the instructions with a float64 result by opcode."""
    return Counter(line.op for line in instructions if line.element_type == "f64" and line.op not in _NO_KERNEL)


def temporary_bytes(assignments: Sequence[str]) -> int | None:
    """Sum the temporary memory of all modules, from their buffer assignments; ``None`` if XLA wrote none."""
    return sum(int(size) for text in assignments for size in _TEMPORARY.findall(text)) if assignments else None


def lost_and_gained(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the entries of a count that are ``lost`` and ``gained``; a key without entries is left out."""
    old, new = Counter(before), Counter(now)
    return {word: dict(some) for word, some in (("lost", old - new), ("gained", new - old)) if some}
