"""Parse the text of XLA's optimized modules, and count their instructions.

The text comes from ``HloModule::ToString``: computations in braces, one instruction per line,
``%name = type opcode(operands), attributes``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = (?P<type>\(.*?\)|\S+) (?P<op>[a-z][\w\-]*)\((?P<rest>.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{\s*$")
_CALLED = re.compile(r"(?:calls|to_apply)=\{?%?(?P<name>[\w.\-]+)")
_DETAILS = {"fusion": re.compile(r"kind=k(\w+)"), "custom-call": re.compile(r'custom_call_target="([^"]*)"')}
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), .*preallocated-temp", re.MULTILINE)
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
        found = self.op in _DETAILS and _DETAILS[self.op].search(self.rest)
        return f"{self.op} {found[1]}" if found else self.op

    @property
    def element_type(self) -> str:
        """The type of one element of the result, such as ``f64``."""
        return self.type.partition("[")[0]


def instructions(text: str) -> list[Instruction]:
    """Parse every instruction of a module, in order."""
    computation = ""
    read = []
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            computation = found["name"]
        elif found := _INSTRUCTION.match(line):
            read.append(Instruction(computation, **found.groupdict()))
    return read


def kernels(module: Sequence[Instruction]) -> list[Instruction]:
    """Select the instructions of a module that run individually, without those inside fusions and reductions."""
    # The computation of a parallel call on a CPU runs by itself; those of fusions, reductions and sorts are inlined.
    inner = {
        found["name"] for one in module if one.op not in ("call", "async-start") for found in _CALLED.finditer(one.rest)
    }
    return [one for one in module if one.computation not in inner and one.op not in _NO_KERNEL]


def called(kernel: Instruction) -> str:
    """Name the computation inside a fusion; ``""`` if it names none."""
    found = _CALLED.search(kernel.rest)
    return found["name"] if found else ""


def kinds(kernels: Iterable[Instruction], op: str) -> Counter[str]:
    """Count the kernels with this opcode by their kind or target."""
    return Counter(kernel.description.removeprefix(f"{op} ") for kernel in kernels if kernel.op == op)


def casts(instructions: Iterable[Instruction]) -> Counter[str]:
    """Count conversions by their result type, such as ``to f64``."""
    return Counter(f"to {one.element_type}" for one in instructions if one.op == "convert")


def float64(instructions: Iterable[Instruction]) -> Counter[str]:
    """Count the instructions with a float64 result by opcode."""
    return Counter(one.op for one in instructions if one.element_type == "f64" and one.op not in _NO_KERNEL)


def temporary_bytes(assignments: Sequence[str]) -> int | None:
    """Sum the temporary memory of all modules, from their buffer assignments; ``None`` if XLA wrote none."""
    return sum(int(size) for text in assignments for size in _TEMPORARY.findall(text)) if assignments else None


def of_module(file: str) -> str:
    """Return the function of a module from its file name, without the counters and hashes that XLA adds."""
    name = file.partition(".")[2].partition("__XlaMustCompile")[0].removesuffix("_after_optimizations.txt")
    return re.sub(r"^a_inference_|_\d+$", "", name) or file
