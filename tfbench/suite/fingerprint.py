"""The code of a benchmark as a digest, by which both wings see that it has changed."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from pathlib import Path


def digest(function: object) -> str:
    """Of a benchmark's own code, comments and layout left out; ``""`` where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.name = ""  # what is called differently is the same
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def line_of(root: Path, name: str) -> int | None:
    """Where a benchmark begins in its file, ``None`` if it is not there.

    Args:
        root: What the file of the name is relative to; nothing outside of it is read.
        name: Of a case.
    """
    file, _, function = name.partition("::")
    place = (root / file).resolve()
    if not place.is_relative_to(root.resolve()) or not place.is_file():
        return None
    try:
        tree = ast.parse(place.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    wanted = function.partition("[")[0].rpartition("::")[2]
    found = (node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == wanted)
    return next(found, None)
