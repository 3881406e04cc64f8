"""The raw evidence of a probing launch, from which the metrics of `tfbench.metrics.catalog` are extracted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from tfbench.metrics import graphs, hlo
from tfbench.model import JSON


@dataclass(frozen=True)
class Output:
    """An array of numbers in the result of a step."""

    array: NDArray[Any]
    name: str = ""
    """Its place in the result, such as ``['loss']`` or ``[1]``; empty if it is the result."""
    dtype: str = ""
    """Its type in the step. Extension types such as bfloat16 have another one in ``array``."""


@dataclass(frozen=True)
class ProbeOutput:
    """What the probes of one launch returned, and the parsed graphs and modules that several metrics share."""

    found: Mapping[str, JSON]
    """Probe -> its evidence."""
    absent: Mapping[str, str]
    """Probe -> why it has no evidence."""
    facts: JSON = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    """Module that XLA compiled -> its optimized text."""
    assignments: Sequence[str] = ()
    """Buffer assignments of the modules, if XLA wrote them."""
    outputs: Sequence[Output] = ()

    @cached_property
    def optimized(self) -> list[graphs.Node]:
        """Working nodes of all graphs as grappler left them, in which fusions have their common names."""
        return self._nodes("optimized")

    @cached_property
    def executed(self) -> list[graphs.Node]:
        """Working nodes of all graphs as the devices run them."""
        return self._nodes("executed")

    def _nodes(self, stage: str) -> list[graphs.Node]:
        return graphs.working(node for graph in self.found.get("graph", {}).get(stage, ()) for node in graph)

    @cached_property
    def _parsed_modules(self) -> list[list[hlo.Instruction]]:
        return [hlo.instructions(text) for text in self.modules.values()]

    @cached_property
    def xla_instructions(self) -> list[hlo.Instruction]:
        """Every instruction of every module."""
        return [instruction for module in self._parsed_modules for instruction in module]

    @cached_property
    def xla_kernels(self) -> list[hlo.Instruction]:
        """The instructions of every module that run individually."""
        return [kernel for module in self._parsed_modules for kernel in hlo.kernels(module)]
