"""What XLA made of a function: from the text of an optimized module to counts.

The text is that of ``HloModule::ToString``: computations in braces, an instruction a line,
``%name = type opcode(operands), attributes``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<op>[a-z][\w\-]*)\((?P<rest>.*)$"
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{\s*$")
_CALLED = re.compile(r"(?:calls|to_apply)=\{?%?(?P<name>[\w.\-]+)")
_KIND = re.compile(r"kind=k(\w+)")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), .*preallocated-temp", re.MULTILINE)
_FREE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "while", "conditional", "call"}
)
"""Instructions that no kernel is run for; the bodies of loops and branches count their own."""


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    computation: str
    name: str
    type: str
    op: str
    rest: str
    """Operands and attributes."""

    @property
    def description(self) -> str:
        """The op with its kind or target: ``fusion kLoop``, ``custom-call __onednn$matmul``."""
        if self.op == "fusion" and (kind := _KIND.search(self.rest)):
            return f"fusion {kind[1]}"
        if self.op == "custom-call" and (target := _TARGET.search(self.rest)):
            return f"custom-call {target[1]}"
        return self.op


def instructions(text: str) -> list[Instruction]:
    """Every instruction of a module, in order."""
    computation = ""
    read = []
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            computation = found["name"]
        elif found := _INSTRUCTION.match(line):
            read.append(Instruction(computation, found["name"], found["type"], found["op"], found["rest"]))
    return read


def kernels(every: Sequence[Instruction]) -> list[Instruction]:
    """The instructions of a module that are run one by one, those inside of fusions and reductions left out."""
    # A parallel call on a CPU has a computation that is run; those of fusions, reductions and sorts are parts of one.
    inner = {
        called["name"]
        for one in every
        if one.op not in ("call", "async-start")
        for called in _CALLED.finditer(one.rest)
    }
    return [one for one in every if one.computation not in inner and one.op not in _FREE]


def called(kernel: Instruction) -> str:
    """The computation that a fusion is made of, ``""`` if it names none."""
    found = _CALLED.search(kernel.rest)
    return found["name"] if found else ""


def counts(modules: Iterable[str]) -> dict[str, dict[str, int]]:
    """Every count of a step's modules."""
    read = [instructions(text) for text in modules]
    run = [kernel for module in read for kernel in kernels(module)]
    every = list(chain.from_iterable(read))
    found = {
        "xla_kernels": Counter(kernel.description for kernel in run),
        "xla_fusions": Counter(kernel.description.removeprefix("fusion ") for kernel in run if kernel.op == "fusion"),
        "xla_custom_calls": Counter(kernel.description.removeprefix("custom-call ") for kernel in run if kernel.op == "custom-call"),
        "xla_casts": Counter(f"to {_element(one.type)}" for one in every if one.op == "convert"),
        "xla_float64": Counter(one.op for one in every if _element(one.type) == "f64" and one.op not in _FREE),
    }  # fmt: skip
    return {metric: dict(sorted(count.items())) for metric, count in found.items()}


def _element(type_: str) -> str:
    return type_.partition("[")[0]


def temporary_bytes(assignment: str) -> int:
    """What a module allocates for its own use, from the text of its buffer assignment."""
    return sum(map(int, _TEMPORARY.findall(assignment)))
