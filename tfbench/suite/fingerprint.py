"""Identify a benchmark's own code by a digest, and find its line; used by controller and workers."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from pathlib import Path

DIGEST = "tfbench_digest"


def digest(function: object) -> str:
    """Return a digest of a function's code without its name, decorators, comments and layout; ``""`` without source.

    Decorators are left out because they are marks, such as a threshold, or variants, which a case's name states. Those
    of the functions of a module count.

    A function that stands for code elsewhere has the digest of that code as its attribute `DIGEST`.
    """
    if known := getattr(function, DIGEST, ""):
        return str(known)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.name = ""  # a renamed benchmark has the same code
            if not inspect.ismodule(function):
                node.decorator_list = []
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def line_of(root: Path, name: str) -> int | None:
    """Return the line number of a benchmark's function, ``None`` if it is not found.

    Args:
        root: Folder that the case's file is relative to; files outside of it are not read.
        name: Name of a case.
    """
    file, _, function = name.partition("::")
    try:  # the name may come from a report, and be no name of a file at all
        place = (root / file).resolve()
        if not place.is_relative_to(root.resolve()) or not place.is_file():
            return None
        tree = ast.parse(place.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    wanted = function.partition("[")[0].rpartition("::")[2]
    lines = (node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == wanted)
    return next(lines, None)
