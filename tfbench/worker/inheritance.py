"""What a zygote inherits from its ancestor, and whether its benchmarks would have imported the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

from tfbench.worker.import_redirect import OWN

_PREFIXES = (
    "TF_", "XLA_", "KERAS_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "CUDA_", "NVIDIA_", "CUBLAS_",
    "CUDNN_", "NCCL_", "MALLOC_", "GLIBC_", "LD_",
)  # fmt: skip
_TENSORFLOW = "tensorflow"


@dataclass(frozen=True)
class Inheritance:
    """The state of a process that has imported TensorFlow for others."""

    variables: Mapping[str, str]
    path: tuple[str, ...]
    finders: tuple[object, ...]
    """Those of ``sys.meta_path``."""
    modules: frozenset[str]
    """Names of the imported top-level modules."""

    @classmethod
    def of_this_process(cls) -> Inheritance:
        modules = frozenset(name for name in sys.modules if "." not in name)
        return cls(library_variables(os.environ), tuple(sys.path), tuple(sys.meta_path), modules)

    def conflict(self) -> str:
        """Return why this process, which was forked in that state, would have imported something else by itself.

        ``""`` if it would not: no variable that libraries read has changed since, and no new entry in the path and no new
        finder would provide a module that was imported already.
        """
        now = library_variables(os.environ)
        if changed := sorted(name for name in {*self.variables, *now} if self.variables.get(name) != now.get(name)):
            return f"{', '.join(changed)} is set while the benchmarks are imported"
        for finder in sys.meta_path:
            if finder not in self.finders and _finds(finder, _TENSORFLOW):
                return f"the benchmarks add {type(finder).__name__} to sys.meta_path, which decides about {_TENSORFLOW}"
        for entry in sys.path:
            if entry in self.path:
                continue
            for name in sorted(self.modules & _modules_in(entry) - {OWN}):
                if (where := _origin(name)) != getattr(sys.modules[name], "__file__", None):
                    return f"the benchmarks change the path, and {name} would come from {where}"
        return ""


def library_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that libraries read while they are imported or loaded."""
    return {name: value for name, value in variables.items() if name.startswith(_PREFIXES)}


def _finds(finder: Any, name: str) -> bool:
    """Whether a finder provides this module, or refuses to."""
    try:
        return finder.find_spec(name, None) is not None
    except Exception:
        return True


def _modules_in(folder: str) -> set[str]:
    try:
        return {name.partition(".")[0] for name in os.listdir(folder or ".")}
    except OSError:
        return set()


def _origin(name: str) -> str | None:
    """Return the file that an import of this top-level module would run now."""
    try:
        spec = PathFinder.find_spec(name, sys.path)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None and spec.has_location else getattr(sys.modules[name], "__file__", None)
