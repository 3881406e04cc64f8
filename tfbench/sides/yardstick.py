"""One yardstick: the benchmarks of the working tree judge both sides of a race (docs/decisions/10-sides.md).

It consists of the files in the benchmark folders, the benchmark files elsewhere, the conftest.py files from there up to
pytest's root, and pytest's configuration. Everything else is measured code, which comes from its side.
"""

from __future__ import annotations

import ast
import os
import posixpath
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from _pytest.config.findpaths import load_config_dict_from_file  # pytest offers it nowhere else

from tfbench.fs import file_digest
from tfbench.model import YardstickChange
from tfbench.sides.source_tree import Grafts, checkout, differing_files, materialise
from tfbench.untrusted import printable

PATHS, DEFAULT_PATHS = "tfbench_paths", ["benchmarks"]
"""The ini option with the benchmark folders and files, and its default."""
SETTINGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""In pytest's order of preference."""
_CONFTEST = "conftest.py"
_PYTESTS_OWN = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
"""Configuration files that hold nothing but pytest's settings."""
_COPY = ".tfbench-yardstick"
"""Name without suffix of the copy of a configuration file that other tools read as well."""


@dataclass(frozen=True)
class Yardstick:
    """The benchmark folders and files of the working tree, and pytest's configuration file, relative to pytest's root."""

    paths: tuple[str, ...] = ()
    inifile: str = ""
    """``""`` if pytest has none."""


@dataclass(frozen=True)
class JudgedTree:
    """Another source tree that the yardstick judges."""

    root: Path
    """The counterpart of pytest's root in the tree that has the yardstick."""
    tree_redirect: tuple[str, str]
    """See `Side.tree_redirect`."""
    own_root: Path
    """The counterpart in the tree as it was committed."""
    own_redirect: tuple[str, str]
    inifile: str
    """The configuration file of the processes that measure this tree."""
    pythonpath: tuple[str, ...]
    """pytest's option of that name, where the configuration files of both trees differ in it; its own folders come first."""
    tree: str
    """git's hash of the tree as it was committed."""


def judged_tree(root: Path, tree: str, yardstick: Yardstick, cache: Path, kept: Collection[str] = ()) -> JudgedTree:
    """Write a tree into a folder below ``cache``, once as it is and once with the yardstick of the working tree.

    Raises as `materialise`.

    Args:
        root: pytest's root in the working tree.
        kept: Files of the yardstick, relative to the root, that stay as the other tree has them.
    """
    own_root, own_redirect = materialise(root, tree, cache)
    # A project that the change adds has the configuration of no other project above it.
    theirs = ini_file(own_root, Path(own_redirect[1])) if own_root.is_dir() else os.devnull
    files = YardstickFiles.of(root, yardstick, own_root, _words(theirs, PATHS) or DEFAULT_PATHS)
    start = files.start
    left = {posixpath.normpath(posixpath.join(start, name)) for name in kept}
    inifile = posixpath.normpath(posixpath.join(start, yardstick.inifile)) if yardstick.inifile else ""
    copies, whole = {}, ""
    if inifile.startswith(("..", "/")):  # it lies outside of the checkout
        inifile = os.path.normpath(root / yardstick.inifile)
    elif posixpath.basename(inifile) in _PYTESTS_OWN:
        whole = inifile
    elif inifile:
        source, suffix = inifile, posixpath.splitext(inifile)[1]
        inifile = posixpath.join(posixpath.dirname(source), f"{_COPY}{suffix}")
        copies[inifile] = source
    grafts = Grafts(lambda name: (name == whole or files.has(name)) and name not in left, copies)
    there, redirect = materialise(root, tree, cache, grafts)
    used = os.path.join(redirect[1], inifile) if inifile else os.devnull
    if not os.path.exists(used):  # git ignores it
        used = ini_file(there, Path(redirect[1]))
    ours = [_folder(entry, used) for entry in _words(used, "pythonpath")]
    places = (os.path.relpath(_folder(entry, theirs), own_redirect[1]) for entry in _words(theirs, "pythonpath"))
    before = [os.path.normpath(os.path.join(redirect[1], place)) for place in places]
    search = tuple(dict.fromkeys((*before, *ours))) if before and before != ours else ()
    return JudgedTree(there, redirect, own_root, own_redirect, used, search, tree)


def _words(inifile: str, option: str) -> list[str]:
    """Return the words of an option of a configuration file; none if that cannot be read, as its pytest will say."""
    value = _settings(inifile).get(option, [])
    return shlex.split(value) if isinstance(value, str) else list(map(str, value))


def _folder(entry: str, inifile: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(inifile), entry))


def ini_file(root: Path, top: Path) -> str:
    """Return the configuration file of ``root``, or a file without settings if its tree has none.

    The trees of other commits lie below the working tree, whose configuration pytest would use and whose code it would
    import. So the folders above ``top``, the top of the tree, do not count.
    """
    root, top = root.resolve(), top.resolve()
    for folder in (folder for folder in (root, *root.parents) if folder.is_relative_to(top)):
        for file in (folder / name for name in SETTINGS):
            if file.is_file() and load_config_dict_from_file(file) is not None:
                return str(file)
    return os.devnull


@dataclass(frozen=True)
class YardstickFiles:
    """Tells which files of a checkout belong to its yardstick, by their paths from its top."""

    start: str
    """pytest's root."""
    folders: frozenset[str]
    files: frozenset[str]

    @classmethod
    def of(
        cls, root: Path, yardstick: Yardstick, own_root: Path | None = None, known: Iterable[str] = ()
    ) -> YardstickFiles:
        """Return the files of the working tree's yardstick.

        pytest's root itself is no benchmark folder, and neither is a folder that only the working tree calls one although the
        other tree has it, see `Yardstick`: measured code must not become a part of the yardstick in the change that it judges.

        Args:
            own_root: pytest's root in the other tree, as it was committed.
            known: The benchmark folders and files that this tree itself names.
        """
        top = checkout(root).resolve()
        start = root.resolve().relative_to(top).as_posix()
        folders, files = set(), set()
        before = {os.path.normpath(path) for path in known}
        for path in yardstick.paths:
            place = os.path.normpath(os.path.join(root.resolve(), path))
            names = {os.path.relpath(found, top) for found in (place, os.path.realpath(place))}
            names = {name for name in names if not name.startswith("..") and name != "."}
            if not os.path.isdir(place):
                files |= names
            elif not root.resolve().is_relative_to(place):
                called = any(f"{os.path.normpath(path)}/".startswith(f"{other}/") for other in before - {"."})
                if own_root is None or called or not (own_root / path).exists():
                    folders |= names
        above = [parent for name in (*folders, *files) for parent in _above(name, start)]
        files |= {posixpath.normpath(posixpath.join(parent, _CONFTEST)) for parent in above}
        return cls(start, frozenset(folders), frozenset(files))

    def has(self, name: str) -> bool:
        """Tell whether a file belongs to the yardstick."""
        return name in self.files or any(f"{name}/".startswith(f"{folder}/") for folder in self.folders)


def _above(name: str, start: str) -> Iterator[str]:
    """Yield the folders from that of a file up to pytest's root."""
    for folder in map(str, PurePosixPath(name).parents):
        if start == "." or f"{folder}/".startswith(f"{start}/"):
            yield folder


# Name what a change edits in the yardstick itself


_MOST = 1000
"""More changes of one run are left out."""
_LONGEST = 100
"""Characters of a line that a change quotes."""


def changes_of(tree: JudgedTree) -> list[YardstickChange]:
    """Return the definitions and files of the yardstick that the other tree has otherwise."""
    before, now = (Path(top) for _, top in (tree.own_redirect, tree.tree_redirect))
    changes: list[YardstickChange] = []
    for name in (one for one in differing_files(now, tree.tree) if "__pycache__" not in one.split("/")):
        old, new = before / name, now / name
        if posixpath.basename(name).startswith(_COPY):
            if (theirs := ini_file(tree.own_root, before)) != os.devnull and _settings(theirs) == _settings(str(new)):
                continue
            name = "pytest's configuration"
        old_parts, new_parts = _definitions(old), _definitions(new)
        for part in dict.fromkeys((*new_parts, *old_parts)):
            if old_parts.get(part) != new_parts.get(part):
                lines = _first_difference(old_parts.get(part, ""), new_parts.get(part, ""))
                changes.append(YardstickChange(*map(printable, (name, part, *lines))))
    return changes[:_MOST]


def _settings(inifile: str) -> dict[str, Any]:
    with suppress(pytest.UsageError, OSError):
        return {
            name: getattr(value, "value", value)  # since pytest 9
            for name, value in (load_config_dict_from_file(Path(inifile)) or {}).items()
        }
    return {}


def _definitions(file: Path) -> dict[str, str]:
    """Return name -> code of the definitions of a Python file, ``""`` -> a digest of another one; empty without the file."""
    if not file.is_file():
        return {}
    try:
        if file.suffix != ".py":
            return {"": file.read_text("utf-8")}
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {"": file_digest(file)}
    parts = defaultdict[str, list[str]](list)
    for node in body:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            parts[_called(node)].append(ast.unparse(node))
    return {name: "\n".join(texts) for name, texts in parts.items()}


def _called(node: ast.stmt) -> str:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return "its imports"
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return getattr(node, "name", "") or ", ".join(names) or "its other statements"


def _first_difference(before: str, now: str) -> list[str]:
    """Return the first line of each of two texts that differs, ``""`` for none."""
    lines = list(unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm=""))[3:]  # without the head
    first = list(takewhile(lambda line: not line.startswith("@@"), lines))
    return [next((line[1:] for line in first if line.startswith(sign)), "").strip()[:_LONGEST] for sign in "-+"]


# Tell whether a file of the other side may stand for the working tree's, which its side cannot run


def same_but_imports(before: Path, now: Path, function: str = "") -> bool:
    """Tell whether two files have the same code apart from their imports.

    For a ``function``, which may be a method, the test functions beside it do not count either.
    """
    try:
        texts = [path.read_bytes() for path in (before, now)]
        first, second = (ast.dump(_Compared(function).visit(ast.parse(text))) for text in texts)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return first == second


def own_files(tree: JudgedTree, root: Path, functions: Mapping[str, Collection[str]]) -> list[str]:
    """Return the Python files of the yardstick that the other tree may have as its own, relative to pytest's root.

    They differ in their imports alone, or in that and in test functions beside one of ``functions``: file -> names.
    """

    def may_stay(name: str) -> bool:
        before, now = tree.own_root / name, root / name
        alike = any(same_but_imports(before, now, function) for function in ("", *functions.get(name, ())))
        return name.endswith(".py") and before.is_file() and alike

    top, there = map(Path, tree.tree_redirect)
    names = (os.path.relpath(top / name, root.resolve()) for name in differing_files(there, tree.tree))
    return sorted(filter(may_stay, names))


class _Compared(ast.NodeTransformer):
    """Leaves out imports, and test functions other than one."""

    def __init__(self, function: str) -> None:
        self._function = function

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        return None

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        other = self._function and node.name != self._function and node.name.startswith(("test", "benchmark"))
        return None if other else self.generic_visit(node)
