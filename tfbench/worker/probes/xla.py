"""What XLA compiles, as it writes it down itself when told to in time."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tfbench.model import JSON
from tfbench.worker.probes import MetricUnavailable, Probe

FOLDER = "xla"
_ENDING = "_after_optimizations.txt"


class Xla(Probe):
    """Names of the files that hold the modules compiled in all calls, below the launch's folder.

    Not in the first one alone: what XLA clusters by itself is compiled at the second call.

    Made before anything has run: XLA reads its flags once.
    """

    name = "xla"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        given = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{given} --xla_dump_to={self._folder} --xla_dump_hlo_as_text".strip()
        self._known: set[str] = set()
        self._new: list[str] = []

    def before(self) -> None:
        self._known = self._modules()

    def after(self, calls: int) -> None:
        self._new = sorted(self._modules() - self._known)

    def found(self) -> JSON:
        if not self._new:
            raise MetricUnavailable("XLA compiled nothing")
        return {"modules": self._new}

    def _modules(self) -> set[str]:
        return {file.name for file in self._folder.glob(f"*{_ENDING}")}


def of_module(file: str) -> str:
    """What a module was made of, from the name of its file: without the counters and hashes that XLA adds."""
    name = file.partition(".")[2].partition("__XlaMustCompile")[0].removesuffix(_ENDING)
    return re.sub(r"^a_inference_|_\d+$", "", name) or file
