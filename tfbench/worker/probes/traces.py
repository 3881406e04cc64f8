"""Traces of Python functions into graphs: number, arguments that cause a retrace, floating-point operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_LONGEST = 60


class Traces(Probe):
    """Counts traces that are not nested in another trace: those of the first call, and later ones with their cause."""

    name = "traces"

    def __init__(self) -> None:
        self.graphs: dict[str, Any] = {}
        """Function -> its last graph of the first call."""
        self._found: JSON = {"first": [], "later": []}
        self._signatures: dict[str, list[str]] = {}
        self._stop: Callable[[], None] = lambda: None
        self._in_first = True

    def before(self) -> None:
        self._stop = tf_internals.on_trace(self._traced)

    def between(self, result: object) -> None:
        self._in_first = False

    def after(self, calls: int) -> None:
        self._stop()

    def _traced(self, name: str, graph: Any, seconds: float) -> None:
        signature = _signature(graph)
        before, self._signatures[name] = self._signatures.get(name), signature
        if self._in_first:
            self._found["first"].append(name)
            self.graphs[name] = graph
        else:
            self._found["later"].append(f"{name}: {_cause(before, signature)}")

    def found(self) -> JSON:
        return self._found


class Flops(Probe):
    """Counts the floating-point operations of the graphs that were traced in the first call.

    TensorFlow has statistics of its ops. Ops without them count as 0.
    """

    name = "flops"

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def found(self) -> JSON:
        if graphs := self._traces.graphs:
            return {"flops": sum(map(tf_internals.flops, graphs.values()))}
        raise MetricUnavailable("the first call traced no function")


def _signature(graph: Any) -> list[str]:
    """Describe every argument: tensors by type and shape, Python values by their representation."""
    positional, named = graph.structured_input_signature or ((), {})
    return [f"{place}: {_words(value)}" for place, value in [*enumerate(positional), *sorted(named.items())]]


def _words(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        sizes = "…" if shape.rank is None else ", ".join("?" if size is None else str(size) for size in shape)
        return f"{getattr(dtype, 'name', dtype)}[{sizes}]"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_words, value))})"[:_LONGEST]
    return f"the Python value {_ADDRESS.sub('…', repr(value))[:_LONGEST]}"


def _cause(before: list[str] | None, now: list[str]) -> str:
    if before is None:
        return "first called after the first call of the step"
    if len(before) != len(now):
        return f"called with {len(before)} arguments, then with {len(now)}"
    for old, new in zip(before, now, strict=True):
        if old != new:
            fix = "pass it as a tensor" if "Python value" in new else "give it an input_signature or reduce_retracing"
            place, _, was = old.partition(": ")
            return f"argument {place} was {was}, then {new.partition(': ')[2]}; {fix}"
    return "traced again for the same arguments: a new tf.function is made for each call"
