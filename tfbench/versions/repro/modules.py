"""Read the modules of a project as syntax trees: what each top-level name is bound to, and where imports lead."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.fs import read_text

AVAILABLE = {"tensorflow", "numpy", "keras", *sys.stdlib_module_names}
"""Packages that a file for a bug report may import. Keras comes with TensorFlow."""
TFBENCH, PYTEST = "tfbench", "pytest"
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Imported:
    """A name that is bound by an import from outside the project."""

    module: str
    attribute: str = ""
    """``""`` if the name is the module itself."""

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def statement(self, name: str) -> str:
        """Return the statement that binds this name."""
        if not self.attribute:
            return f"import {self.module}" + (f" as {name}" if name != self.module else "")
        alias = f" as {name}" if name != self.attribute else ""
        return f"from {self.module} import {self.attribute}{alias}"


@dataclass(frozen=True)
class Definition:
    """A name that a top-level statement of a module defines."""

    module: Module
    name: str
    statement: ast.stmt


Binding = Imported | Definition
"""What a name means, or `Module` if it is a module of the project."""


@dataclass(eq=False)
class Module:
    """A module of the project.

    Args:
        search: Folders that the project's modules are imported from.
    """

    path: Path
    search: Sequence[Path]
    known: dict[Path, Module] = field(default_factory=dict)
    """All modules that were read, by path."""

    def __post_init__(self) -> None:
        self.known[self.path] = self

    @cached_property
    def text(self) -> str:
        return read_text(self.path)

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise UsageError(f"{self.path}: {error}") from None

    @cached_property
    def statements(self) -> dict[str, ast.stmt]:
        """Name -> the last top-level statement that binds it."""
        return {name: statement for statement in self.tree.body for name in bound_names(statement)}

    def find(self, name: str) -> Binding | Module | None:
        """Return what a top-level name means, ``None`` if the module does not bind it.

        Raises:
            UsageError: The name comes from an import that cannot be followed.
        """
        if (statement := self.statements.get(name)) is None:
            self._refuse_stars(name)
            return None
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if name == (alias.asname or alias.name.partition(".")[0]):
                    return self._imported(alias.name if alias.asname else name, statement)
        if isinstance(statement, ast.ImportFrom):
            alias = next(one for one in statement.names if name == (one.asname or one.name))
            return self._imported_from(statement, alias.name)
        return Definition(self, name, statement)

    def _refuse_stars(self, name: str) -> None:
        """Refuse a name that may come from ``from … import *``."""
        stars = [one for one in self.tree.body if isinstance(one, ast.ImportFrom) and one.names[0].name == "*"]
        if stars and not hasattr(builtins, name):
            raise UsageError(f"{self.path}:{stars[0].lineno}: import {name} by its name instead of *")

    def _imported(self, name: str, statement: ast.stmt) -> Imported | Module:
        if name.partition(".")[0] in (*AVAILABLE, TFBENCH, PYTEST):
            return Imported(name)
        return self._module(name, statement)

    def _imported_from(self, statement: ast.ImportFrom, name: str) -> Binding | Module:
        if not statement.level and (statement.module or "").partition(".")[0] in (*AVAILABLE, TFBENCH, PYTEST):
            return Imported(statement.module or "", name)
        folder = self.path.parent
        for _ in range(statement.level - 1):
            folder = folder.parent
        bases = [folder] if statement.level else [self.path.parent, *self.search]
        if found := _file(bases, f"{statement.module or ''}.{name}".strip(".")):
            return self._read(found)
        module = _file(bases, statement.module or "")
        if module is None:
            raise _foreign(self.path, statement, statement.module or name)
        binding = self._read(module).find(name)
        if binding is None:
            raise UsageError(f"{self.path}:{statement.lineno}: {module} does not define {name}")
        return binding

    def _module(self, name: str, statement: ast.stmt) -> Module:
        if (found := _file([self.path.parent, *self.search], name)) is None:
            raise _foreign(self.path, statement, name)
        return self._read(found)

    def attribute(self, name: str) -> Binding | Module | None:
        """Return what ``module.name`` means."""
        if (binding := self.find(name)) is not None:
            return binding
        found = _file([self.path.parent], name) if self.path.name == "__init__.py" else None
        return self._read(found) if found else None

    def _read(self, path: Path) -> Module:
        return self.known.get(path) or Module(path, self.search, self.known)


def _foreign(path: Path, statement: ast.stmt, name: str) -> UsageError:
    return UsageError(
        f"{path}:{statement.lineno}: it needs {name}, and the file may need only TensorFlow, NumPy and the standard library"
    )


def _file(bases: Sequence[Path], name: str) -> Path | None:
    """Return the file of a module below one of these folders."""
    relative = Path(*name.split(".")) if name else Path()
    for base in bases:
        if any(part in _INSTALLED for part in base.parts):
            continue
        for place in ((base / relative).with_suffix(".py") if name else None, base / relative / "__init__.py"):
            if place is not None and place.is_file():
                return place.resolve()
        if name and (base / relative).is_dir() and any((base / relative).glob("*.py")):
            return None  # a namespace package: its modules are found by their own names
    return None


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in its scope, without those of nested functions and classes."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            continue
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        stack += ast.iter_child_nodes(node)
