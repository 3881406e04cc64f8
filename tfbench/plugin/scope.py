"""Identify a benchmark by its code and all that the code uses in its modules, so that a renamed one is known again."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import pytest

from tfbench.suite.fingerprint import DIGEST
from tfbench.worker.import_redirect import PACKAGE, is_below, is_installed

_DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "__import__", "importlib", "import_module"}
"""Names by which code may use any definition of its module."""
_ALWAYS = {"pytestmark", "pytest_plugins"}
"""Names that pytest reads."""
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def scope_of(item: pytest.Function) -> str:
    """Return a digest of a benchmark's function and fixtures, with what they use in their modules; ``""`` if unknown.

    In a module it follows names to definitions, assignments and imports, and counts all other statements. An import
    counts by its text and the place of the imported file in the suite. The function's name does not count.
    """
    place = f"{item.cls.__qualname__}." if item.cls else ""
    fixtures = {one.func for found in item._fixtureinfo.name2fixturedefs.values() for one in found}
    root = str(item.config.rootpath)
    try:
        plain = inspect.unwrap(item.function)
        own = os.path.samefile(inspect.getsourcefile(plain) or "", item.path)
        if getattr(item.function, DIGEST, "") or not own or plain.__qualname__ != f"{place}{item.originalname}":
            return ""  # it stands for code elsewhere
        parts = [_used(plain, root, renamed=True), *sorted(_used(inspect.unwrap(one), root) for one in fixtures)]
    except (OSError, TypeError, AttributeError, SyntaxError, RecursionError):
        return ""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


@cache
def _used(function: Callable[..., object], root: str, renamed: bool = False) -> str:
    """Return a digest of a function and of what it uses in its module; its name if that is installed.

    Raises:
        OSError, TypeError, AttributeError, SyntaxError: There is no source, or another function has made it.
    """
    file = inspect.getsourcefile(function) or ""
    names = function.__qualname__
    if not renamed and (is_installed(file) or is_below(os.path.realpath(file), PACKAGE)):
        return f"{function.__module__}.{names}"
    if "<" in names:
        raise TypeError(f"{names} depends on the arguments of the function that has made it")
    module = _parsed(file, os.stat(file).st_mtime_ns)
    wanted = {*names.split(".")[:1], *_ALWAYS}
    bound: dict[str, set[int]] = defaultdict(set)
    chosen: set[int] = set()
    for number, node in enumerate(module.body):
        found = set(_bound(node))
        for name in found:
            bound[name].add(number)
        if "*" in found or not (found or _is_text(node)):
            chosen.add(number)
    todo, seen = [*wanted, *(name for number in chosen for name in _names(module.body[number]))], set[str]()
    while todo:
        if (name := todo.pop()) in seen:
            continue
        seen.add(name)
        added = set(range(len(module.body))) if name in _DYNAMIC else bound[name]
        for number in added - chosen:
            todo += _names(module.body[number])
        chosen |= added
    own = names if renamed else ""
    statements = dict.fromkeys(_text(module.body[number], own, file, root) for number in sorted(chosen))
    text = "\n".join(statements)  # an import that is repeated counts once
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _parsed(file: str, changed: int) -> ast.Module:
    with open(file, "rb") as source:
        return ast.parse(source.read())


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a definition, an assignment or an import binds; none for other statements."""
    if isinstance(node, _Definition):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement uses, the arguments of functions included: they may be fixtures."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr if one.attr in _DYNAMIC else ""
        elif isinstance(one, ast.arg):
            yield one.arg


def _text(node: ast.stmt, own: str, file: str, root: str) -> str:
    """Return a statement without layout and comments, and where the own files that it imports lie.

    Args:
        own: Qualified name of the function whose name does not count.
    """
    text = ast.dump(_Unnamed(own.split(".")).visit(node) if own else node)
    if isinstance(node, ast.ImportFrom) and node.level:
        return f"{text} from {os.path.relpath(os.path.dirname(file), root)}"
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        named = [alias.name for alias in node.names]
        base = getattr(node, "module", "") or ""
        found = {base, *(f"{base}.{name}" if base else name for name in named)}
        files = (vars(sys.modules[name]).get("__file__") for name in found if name in sys.modules)
        places = sorted(_place(one, root) for one in files if isinstance(one, str) and not is_installed(one))
        return f"{text} from {places}"
    return text


def _place(file: str, root: str) -> str:
    """Return the path of a file of the suite, and the content of another one, whose path may depend on the tree."""
    if is_below(file, root):
        return os.path.relpath(file, root)
    with suppress(OSError), open(file, "rb") as content:
        return hashlib.sha256(content.read()).hexdigest()
    return ""


class _Unnamed(ast.NodeTransformer):
    """Copies a definition without the name of one function in it, which is given by the names that lead to it."""

    def __init__(self, path: list[str]) -> None:
        self._path = path

    def visit(self, node: ast.AST) -> ast.AST:
        if not (isinstance(node, _Definition) and self._path and node.name == self._path[0]):
            return node
        last = len(self._path) == 1
        inner = _Unnamed(self._path[1:])
        fields = {key: getattr(node, key) for key in node._fields if hasattr(node, key)}
        fields |= {
            "name": "" if last else node.name,
            "body": node.body if last else [inner.visit(one) for one in node.body],
        }
        return type(node)(**fields)
