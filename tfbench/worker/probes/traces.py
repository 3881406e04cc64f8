"""Traces of Python functions into graphs: their number, and the arguments that cause a retrace."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import Probe

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_LONGEST = 60


class Traces(Probe):
    """Counts traces that are not nested in another trace: those of the first call, and later ones with their cause."""

    name = "traces"

    def __init__(self) -> None:
        self.graphs: dict[str, Any] = {}
        """Function -> its last graph of the first call."""
        self._first: list[str] = []
        self._later: list[str] = []
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
            self._first.append(name)
            self.graphs[name] = graph
        else:
            self._later.append(f"{name}: {_cause(before, signature)}")

    def found(self) -> JSON:
        return {"first": self._first, "later": self._later}


def _signature(graph: Any) -> list[str]:
    """Describe every argument: tensors by type and shape, Python values by their representation."""
    positional, named = graph.structured_input_signature or ((), {})
    arguments = [*enumerate(positional), *sorted(named.items())]
    return [f"{place}: {_words(value)}" for place, value in arguments]


def _words(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{getattr(dtype, 'name', dtype)}{_shape(shape)}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_words, value))})"[:_LONGEST]
    text = _ADDRESS.sub("…", repr(value))
    return f"the Python value {text[:_LONGEST]}"


def _shape(shape: Any) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]" if shape.rank is not None else "[…]"


def _cause(before: list[str] | None, now: list[str]) -> str:
    if before is None:
        return "first called after the first call of the step"
    changed = [(old, new) for old, new in zip(before, now, strict=False) if old != new]
    if len(before) != len(now):
        return f"called with {len(before)} arguments, then with {len(now)}"
    if not changed:
        return "traced again for the same arguments: a new tf.function is made for each call"
    (old, new), *_ = changed
    fix = "; pass it as a tensor" if "Python value" in new else "; give it an input_signature or reduce_retracing"
    place, _, was = old.partition(": ")
    return f"argument {place} was {was}, then {new.partition(': ')[2]}{fix}"
