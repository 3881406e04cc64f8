"""The result of the first call as arrays, which the controller compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe

Array = np.ndarray[Any, Any]

FILE = "outputs.npz"
LARGEST = 1 << 28
"""Upper limit in bytes, since the controller holds the results of all variants of a workload at once."""


class Outputs(Probe):
    """Writes the numbers of the result, and no Python objects, to a file in the launch's folder."""

    name = "outputs"

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._arrays: list[Array] = []

    def between(self, result: object) -> None:
        self._arrays = tf_internals.flattened(result)

    def found(self) -> JSON:
        if not self._arrays:
            raise MetricUnavailable("the step returns no numbers")
        if (size := sum(array.nbytes for array in self._arrays)) > LARGEST:
            raise MetricUnavailable(f"the step returns {size >> 20} MiB, more than the limit of {LARGEST >> 20} MiB")
        np.savez(self._file, *map(_portable, self._arrays))
        return {"file": FILE}


def _portable(array: Array) -> Array:
    """Return the array in a type that every version of numpy reads."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array
