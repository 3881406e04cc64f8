"""The modules that XLA compiles, from its own dump."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tfbench.model import JSON
from tfbench.worker.probes import MetricUnavailable, Probe

FOLDER = "xla"
_ENDING = "_after_optimizations.txt"


class Xla(Probe):
    """Lists the files of the modules that are compiled in any call, below the launch's folder.

    All calls count, because XLA compiles its automatic clusters at the second call.
    The probe must be created before the first op, because XLA reads its flags only once.
    """

    name = "xla"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        given = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{given} --xla_dump_to={self._folder} --xla_dump_hlo_as_text".strip()
        self._known: set[str] = set()
        self._after: set[str] = set()

    def before(self) -> None:
        self._known = self._modules()

    def after(self, calls: int) -> None:
        self._after = self._modules()

    def found(self) -> JSON:
        if new := sorted(self._after - self._known):
            return {"modules": new}
        raise MetricUnavailable("XLA compiled no module")

    def _modules(self) -> set[str]:
        return {file.name for file in self._folder.glob(f"*{_ENDING}")}


def of_module(file: str) -> str:
    """Return the function of a module from its file name, without the counters and hashes that XLA adds."""
    name = file.partition(".")[2].partition("__XlaMustCompile")[0].removesuffix(_ENDING)
    return re.sub(r"^a_inference_|_\d+$", "", name) or file
