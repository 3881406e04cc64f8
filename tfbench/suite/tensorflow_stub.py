"""A stand-in for TensorFlow while the controller collects: benchmark modules import it for nothing.

Collecting needs the names and decorators of a module, not what its functions do. So ``tensorflow``
and the packages that import it are, during collection, modules whose attributes remember only
their path. They can be called, decorated with and subclassed; asking one for a value is an error
that names the fix. A plain pytest-benchmark test, which runs in the controller, finds the real
TensorFlow behind the same names once collection is over.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from tfbench.errors import DeclarationError

PACKAGES = (
    "tensorflow",
    "keras",
    "tf_keras",
    "tensorflow_model_optimization",
    "tensorflow_probability",
    "tensorflow_addons",
)
"""Top-level packages that cost seconds to import and are never needed to collect."""
_DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly"),
    "tf_keras": ("tf-keras",),
    "tensorflow_model_optimization": ("tensorflow-model-optimization",),
}
_collecting = False


class LazyAttribute:
    """Something of TensorFlow that is known by its path alone."""

    def __init__(self, path: str) -> None:
        self.__dict__["_path"] = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return LazyAttribute(f"{self._path}.{name}") if _collecting else getattr(_real(self._path), name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if not _collecting:
            return _real(self._path)(*arguments, **keywords)
        if (
            len(arguments) == 1
            and not keywords
            and callable(arguments[0])
            and not isinstance(arguments[0], LazyAttribute)
        ):
            return arguments[0]  # a decorator: the function is collected as it is written
        return LazyAttribute(f"{self._path}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (type(self._path.rpartition(".")[2] or "Base", (), {}),)  # each its own, as bases must differ

    def __repr__(self) -> str:
        return f"<{self._path}, not loaded>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise DeclarationError(
            f"the module uses the value of {self._path} while it is imported; move that into the benchmark, "
            "a fixture, or a level's requires="
        )

    __bool__ = __len__ = __iter__ = __int__ = __float__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __contains__ = __enter__ = _refuse


def _real(path: str) -> Any:
    """The object behind a path, TensorFlow being imported now."""
    if "(" in path:
        raise DeclarationError(f"{path} was called while the module was imported; move the call into the test")
    head, *rest = path.split(".")
    found: Any = importlib.import_module(head)
    for depth, name in enumerate(rest, start=1):
        found = getattr(found, name, None) or importlib.import_module(".".join([head, *rest[:depth]]))
    return found


class _StandIn(ModuleType):
    """A module of the packages, empty but for what is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return _version(self.__name__.partition(".")[0])
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return LazyAttribute(f"{self.__name__}.{name}") if _collecting else getattr(_real(self.__name__), name)


def _version(package: str) -> str:
    for distribution in _DISTRIBUTIONS.get(package, (package,)):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise AttributeError("__version__")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the packages, and makes a stand-in for it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


@contextmanager
def stub_tensorflow() -> Iterator[None]:
    """Inside, importing TensorFlow gives the stand-in, unless this process has the real one already."""
    global _collecting
    if any(package in sys.modules for package in PACKAGES):
        yield
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    _collecting = True
    try:
        yield
    finally:
        _collecting = False
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]
