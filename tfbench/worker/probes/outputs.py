"""The result of the first call as arrays, which the controller compares, and the size of the benchmark's artifact."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe

FILE = "outputs.npz"
LARGEST = 1 << 28
"""Upper limit in bytes, since the controller holds the results of all variants of a workload at once."""
MOST = 4096
"""Upper limit of arrays, because each of them is written and read on its own."""


class Outputs(Probe):
    """Writes the numbers of the result, and no Python objects, to a file in the launch's folder. Sends names and types."""

    name = "outputs"

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._arrays: list[tuple[str, np.ndarray[Any, Any]]] = []

    def between(self, result: object) -> None:
        self._arrays = tf_internals.flattened(result)

    def found(self) -> JSON:
        if not self._arrays:
            raise MetricUnavailable("the step returns no numbers")
        if (count := len(self._arrays)) > MOST:
            raise MetricUnavailable(f"the step returns {count:,} arrays, more than the limit of {MOST:,}")
        if (size := sum(array.nbytes for _, array in self._arrays)) > LARGEST:
            raise MetricUnavailable(f"the step returns {size >> 20} MiB, more than the limit of {LARGEST >> 20} MiB")
        # Not every version of numpy reads extension types, such as bfloat16.
        portable = (array.astype(np.float32) if array.dtype.kind == "V" else array for _, array in self._arrays)
        np.savez(self._file, *portable)
        names, dtypes = [name for name, _ in self._arrays], [array.dtype.name for _, array in self._arrays]
        return {"file": FILE, "names": names, "dtypes": dtypes}


class Artifact(Probe):
    """Counts the bytes of ``bench(..., artifact=)``, raw and gzipped: of bytes, or of the file or folder at a path."""

    name = "artifact"

    def __init__(self, artifact: Any) -> None:
        self._artifact = artifact

    def found(self) -> JSON:
        if self._artifact is None:
            raise MetricUnavailable("the benchmark names no artifact")
        sizes = [(len(content), len(gzip.compress(content, mtime=0))) for content in _contents(self._artifact)]
        return {"bytes": sum(raw for raw, _ in sizes), "gzipped": sum(zipped for _, zipped in sizes)}


def _contents(artifact: Any) -> Iterator[bytes]:
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        yield bytes(artifact)
        return
    path = Path(os.fspath(artifact))
    if not path.exists():
        raise MetricUnavailable(f"the artifact {path} does not exist")
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            yield file.read_bytes()
