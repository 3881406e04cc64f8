"""Import time of TensorFlow, measured by a finder of the import system."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

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
            spec.loader = _Timed(spec.loader, self)
        return spec


class _Timed(Loader):
    def __init__(self, loader: Any, timer: ImportTimer) -> None:
        self._loader = loader
        self._timer = timer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        began = time.perf_counter()
        self._loader.exec_module(module)
        self._timer.seconds = time.perf_counter() - began
