"""Tensors that stay alive from call to call."""

from __future__ import annotations

import gc

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import Probe


class Live(Probe):
    """Counts the eager tensors that are alive after the first call and after the later ones."""

    name = "live"

    def __init__(self) -> None:
        self._before: tuple[int, int] = (0, 0)
        self._after: tuple[int, int] = (0, 0)
        self._calls = 1

    def settled(self) -> None:
        """Count once the first calls have filled the caches. Any later growth repeats with every call."""
        self._before = _alive()

    def after(self, calls: int) -> None:
        self._after = _alive()
        self._calls = calls

    def found(self) -> JSON:
        tensors, size = (after - before for before, after in zip(self._before, self._after, strict=True))
        return {"tensors": tensors / self._calls, "bytes": size / self._calls}


def _alive() -> tuple[int, int]:
    """Return the number and bytes of eager tensors after a garbage collection."""
    gc.collect()
    eager = tf_internals.eager_tensor_type()
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), eager)]
    return len(found), sum(tf_internals.tensor_bytes(tensor) for tensor in found)
