"""The functions of benchmarks: a digest of their code, their lines, and the functions that stand for methods of ``tf.test``."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfbench.model import function_name

if TYPE_CHECKING:
    import pytest

DIGEST = "tfbench_digest"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest(function: object) -> str:
    """Return a digest of a function's code without name, decorators, docstrings, comments and layout; ``""`` without source.

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
    return hashlib.sha256(dump(tree).encode()).hexdigest()[:16]


def dump(code: ast.AST) -> str:
    """Return code as text without layout, comments and docstrings."""
    for node in ast.walk(code):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(code)


def line_of(root: Path, name: str) -> int | None:
    """Return the line number of a benchmark's function, ``None`` if it is not found.

    The case's file is relative to ``root``; files outside of it are not read.
    """
    file, function = name.partition("::")[0], function_name(name)
    try:  # the name may come from a report, and be no name of a file at all
        place = (root / file).resolve()
        if not place.is_relative_to(root.resolve()) or not place.is_file():
            return None
        tree = ast.parse(place.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = (node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    return next(lines, None)


TF_TEST_FILES = "tfbench_tf_test_benchmarks"
"""The ini option: files and patterns of files with such classes, relative to the root."""
TF_TEST_ERROR = "error"


def is_listed(config: pytest.Config, path: Path) -> bool:
    """Tell whether the ini option names this file."""
    root = config.rootpath
    return path.suffix == ".py" and path.is_relative_to(root) and path in listed(config)


def listed(config: pytest.Config) -> list[Path]:
    """Return the files that the ini option names, sorted."""
    files = {
        path for pattern in config.getini(TF_TEST_FILES) for path in config.rootpath.glob(pattern) if path.is_file()
    }
    return sorted(files)


def function_of(run: Callable[[Any], None], code: str, fixture: str = "bench") -> Callable[..., None]:
    """Return the function of a benchmark: it takes the fixture ``bench`` or ``benchmark`` and passes it on.

    ``code`` is the digest of its code.
    """

    def ours(bench: Any) -> None:
        run(bench)

    def theirs(benchmark: Any) -> None:
        run(benchmark)

    function = theirs if fixture == "benchmark" else ours
    setattr(function, DIGEST, code)
    return function
