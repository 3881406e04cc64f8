"""A stub in place of TensorFlow, with which benchmarks are collected.

Collection needs the names and decorators of a module, not the work of its functions. So during
collection, ``tensorflow`` and the packages that import it are modules whose attributes only know
their path. Code can call them, decorate with them and subclass them. Using the value of one raises
an error that names the fix. A plain pytest-benchmark test runs in the controller, after collection.
The same names then refer to the real TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import re
import sys
import unittest
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeGuard

from tfbench.errors import DeclarationError

# Name the fix of an import that fails


_MISSING = re.compile(r"No module named '(\w+)'$", re.MULTILINE)
_HIDDEN = re.compile(r"from '(\w+)\.[\w.]+' \(unknown location\)")
"""A package without a file, which pytest makes of folders under --import-mode=importlib."""
_SOURCES = (".", "src")
"""Folders below the root in which projects keep their modules."""


def fix_of(error: str, root: Path) -> str:
    """Return how to make a module importable whose import failed, ``""`` if the error is of no known kind."""
    for name in set(_HIDDEN.findall(error)) & set(PACKAGES):
        if (root / name).is_dir() and not (root / name / "__init__.py").exists():
            return f"the folder {name}/ is imported in place of the installed package of that name: rename the folder"
    if not (names := _MISSING.findall(error)):
        return ""
    name = names[-1]
    if name == "tensorflow":
        return "install TensorFlow in this environment: pip install tensorflow"
    for folder in _SOURCES:
        module = root / folder / name
        if module.with_suffix(".py").is_file() or module.is_dir():
            shown = f"{(Path(folder) / name).as_posix()}{'/' if module.is_dir() else '.py'}"
            return f"pytest does not import from the folder of {shown}: add `pythonpath = {folder}` to pytest.ini"
    return ""


# Replace TensorFlow by a stub while the controller collects, so that benchmark modules import quickly


PACKAGES = (
    "tensorflow", "keras", "tf_keras", "tensorflow_model_optimization", "tensorflow_probability", "tensorflow_addons",
)  # fmt: skip
"""Top-level packages that take seconds to import and are not needed for collection."""
REAL = False
"""Whether this process collects with the real TensorFlow instead of the stub."""
_collecting = False


class StubError(DeclarationError):
    """A module needs a value of TensorFlow while it is imported, which the stub does not have."""


def _is_of_python(name: str) -> bool:
    """Tell whether Python asks for a special attribute, which a stub lacks. ``tf.__internal__`` is a module."""
    return name.startswith("__") and name.endswith("__") and name != "__internal__"


class TfTestBenchmark:
    """Stands for ``tf.test.Benchmark`` as a base of classes."""


class LazyAttribute:
    """An attribute of TensorFlow of which only the path is known."""

    def __init__(self, path: str) -> None:
        self.__dict__["_path"] = path

    def __getattr__(self, name: str) -> Any:
        if _is_of_python(name):
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
            return arguments[0]  # used as a decorator: pytest collects the function itself
        return LazyAttribute(f"{self._path}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        name = self._path.rpartition(".")[2]
        kinds = {"TestCase": unittest.TestCase, "Benchmark": TfTestBenchmark}  # pytest collects the tests of a TestCase
        known = (kinds[name],) if name in kinds else ()
        return (type(name or "Base", known, {}),)  # a new class each time, since bases must differ

    def __eq__(self, other: object) -> bool:
        """Two attributes of the same path are one: ``{tf.float32: 4}[tf.float32]``. All else depends on the values."""
        results = self._is_result or (is_lazy(other) and other._is_result)
        if other is self or (is_lazy(other) and other._path == self._path and not results):
            return True
        if _collecting:
            self._refuse()
        return not results and bool(_real(self._path) == (_real(other._path) if is_lazy(other) else other))

    def __hash__(self) -> int:
        if _collecting and self._is_result:  # ``keras.backend.backend() in {"tensorflow"}``
            raise TypeError(f"the stub does not know the hash of {self._path}")  # pytest takes this error of parameters
        return hash(self._path)

    @property
    def _is_result(self) -> bool:
        return "(" in self._path

    def __instancecheck__(self, instance: object) -> bool:
        """``isinstance(SPEC, tf.TensorSpec)``: what this class was called for is an instance of it, and nothing else is known."""
        if not _collecting:
            return isinstance(instance, _real(self._path))
        return type(instance) is LazyAttribute and instance.__dict__["_path"] == f"{self._path}()"

    def __subclasscheck__(self, subclass: type) -> bool:
        if _collecting:
            self._refuse()
        return issubclass(subclass, _real(self._path))

    def __repr__(self) -> str:
        return f"<{self._path}, not loaded>"

    def __str__(self) -> str:
        if _collecting:
            self._refuse()
        return repr(self)

    def _refuse(self, *_: Any) -> NoReturn:
        raise StubError(
            f"the module uses the value of {self._path} at import; move that into the benchmark, "
            "a fixture, or a level's requires="
        )

    __bool__ = __len__ = __iter__ = __int__ = __float__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __contains__ = __enter__ = _refuse


def _real(path: str) -> Any:
    """Return the object at a path, and import TensorFlow if necessary."""
    if "(" in path:
        raise StubError(f"{path} was called at import; move the call into the test")
    head, *rest = path.split(".")
    part: Any = importlib.import_module(head)
    for depth, name in enumerate(rest, start=1):
        part = getattr(part, name, None) or importlib.import_module(".".join([head, *rest[:depth]]))
    return part


class _Stub(ModuleType):
    """A stub module that creates attributes on demand."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return _version(self.__name__.partition(".")[0])
        if _is_of_python(name):
            raise AttributeError(name)
        return LazyAttribute(f"{self.__name__}.{name}") if _collecting else getattr(_real(self.__name__), name)


def _version(package: str) -> str:
    for distribution in importlib.metadata.packages_distributions().get(package, ()):
        return importlib.metadata.version(distribution)
    raise AttributeError("__version__")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of `PACKAGES` that is installed, and creates a stub for it.

    Without TensorFlow, as on a machine that only plans runs, the finder takes all of them for installed elsewhere.
    """

    def __init__(self) -> None:
        self.packages: list[str] = []
        """The packages that were imported, in this order."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        package = fullname.partition(".")[0]
        if package not in PACKAGES or (self._is_installed("tensorflow") and not self._is_installed(package)):
            return None  # `pytest.importorskip` skips the module, and `except ImportError` defines its own cases
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def _is_installed(self, package: str) -> bool:
        others = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        return any(find(package, None) is not None for find in others if find is not None)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if spec.name in PACKAGES:
            self.packages.append(spec.name)
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stub has no code."""


def is_lazy(value: object) -> TypeGuard[LazyAttribute]:
    """Tell whether a value of a module is a part of the stub. It answers to any attribute, so ask for nothing else."""
    return type(value) is LazyAttribute


def tf_test_classes(module: ModuleType) -> list[str]:
    """Return the names of the classes of ``tf.test.Benchmark`` that a module defines, which pytest does not collect."""

    def is_one(value: object) -> bool:
        if is_lazy(value):  # made by its metaclass
            return ".ParameterizedBenchmark()" in repr(value)
        return isinstance(value, type) and issubclass(value, TfTestBenchmark) and value.__module__ == module.__name__

    return [name for name, value in vars(module).items() if is_one(value)]


@contextmanager
def stub_tensorflow() -> Iterator[list[str]]:
    """Make imports of TensorFlow yield stubs inside the block, unless this process has or wants the real one.

    The value of the block is a list that gets the name of each package that is imported.
    """
    global _collecting
    if REAL:
        yield []
        return
    if known := [package for package in PACKAGES if package in sys.modules]:
        yield known
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    _collecting = True
    try:
        yield finder.packages
    finally:
        _collecting = False
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _Stub)]:
            del sys.modules[name]
