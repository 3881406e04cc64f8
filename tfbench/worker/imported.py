"""List the project's files that a benchmark imports, by the import statements in them.

A zygote imports the files of all benchmarks, so what its process has imported says little about one of them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import tfbench

_DYNAMIC = {"__import__", "import_module", "importlib", "runpy", "exec", "eval", "pytest_plugins"}
"""Names in a file that may import or run others, which its import statements then do not show."""
_GENERATED = "__autograph_generated_file"
"""Start of the names of TensorFlow's modules for converted functions, whose sources count already."""


def imported_files(module: str) -> dict[str, str]:
    """Return path -> digest of the content, of each file of the project that a module imports, directly or not.

    Each ``conftest.py`` that pytest has loaded counts as well. If a file may import others without a statement, every
    file counts that this process has imported.

    Raises:
        OSError: A file cannot be read.
        SyntaxError, ValueError: A file is not the Python that runs.
    """
    files = dict(_project())
    todo = [name for name, path in files.items() if name == module or os.path.basename(path) == "conftest.py"]
    found: set[str] = set()
    while todo:
        if (name := todo.pop()) in found:
            continue
        found.add(name)
        wanted = _imports(name, files[name])
        if wanted is None:
            found = set(files)
            break
        todo += [one for one in wanted if one in files]
    return {files[name]: _digest(files[name]) for name in found}


def _project() -> Iterator[tuple[str, str]]:
    """Yield the modules of this process with their files, apart from the environment's and tfbench's own."""
    places = [sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()]
    places += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += tfbench.__path__
    others = tuple(os.path.join(os.path.realpath(place), "") for place in places)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # Most modules are the environment's. Looking up the real path of each would take most of the time.
        if not isinstance(file, str) or name.startswith(_GENERATED) or file.startswith(others):
            continue
        if os.path.isfile(file) and not os.path.realpath(file).startswith(others):
            yield name, os.path.abspath(file)


def _imports(name: str, path: str) -> set[str] | None:
    """Return the names that the statements of a module import, with their packages; ``None`` if others are possible."""
    if not path.endswith(".py"):
        return None
    package = getattr(sys.modules[name], "__package__", None) or name
    found = set()
    for node in ast.walk(ast.parse(Path(path).read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, (ast.Name, ast.Attribute)):
            if (node.id if isinstance(node, ast.Name) else node.attr) in _DYNAMIC:
                return None
            continue
        else:
            continue
        for one in names:
            parts = one.split(".")
            found |= {".".join(parts[: end + 1]) for end in range(len(parts))}
    return found if not found & _DYNAMIC else None


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
