"""Import time of TensorFlow, measured by a finder of the import system."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULE = "tensorflow"


class ImportTimer(MetaPathFinder):
    """Times the first import of TensorFlow. It must come before all other finders."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        """``None`` until the import is done."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            vars(spec.loader)["exec_module"] = partial(self._timed, spec.loader.exec_module)
        return spec

    def _timed(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        began = time.perf_counter()
        execute(module)
        self.seconds = time.perf_counter() - began
