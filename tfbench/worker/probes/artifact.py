"""Size of the artifact that a benchmark makes for deployment: a model file, a folder, or bytes."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfbench.model import JSON
from tfbench.worker.probes import MetricUnavailable, Probe


class Artifact(Probe):
    """Counts the bytes of ``bench(..., artifact=)``, raw and gzipped.

    Args:
        artifact: Bytes, or the path of a file or folder; ``None`` if the benchmark makes none.
    """

    name = "artifact"

    def __init__(self, artifact: Any) -> None:
        self._artifact = artifact

    def found(self) -> JSON:
        if self._artifact is None:
            raise MetricUnavailable("the benchmark names no artifact")
        raw = zipped = 0
        for content in _contents(self._artifact):
            raw += len(content)
            zipped += len(gzip.compress(content, mtime=0))
        return {"bytes": raw, "gzipped": zipped}


def _contents(artifact: Any) -> Iterator[bytes]:
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        yield bytes(artifact)
        return
    path = Path(os.fspath(artifact))
    if not path.exists():
        raise MetricUnavailable(f"the artifact {path} does not exist")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        yield file.read_bytes()
