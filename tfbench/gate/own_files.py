"""Tell which files of a pull request are part of the gate, so that a reader does not trust a gate that it has changed.

Some files are known by their names. Others are named by a file of the gate: the ``accepted:`` file and the scripts of a
workflow, and plugins of pytest. Those are read in the trusted tree, because a change of the naming file is flagged itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from tfbench.errors import ReportError
from tfbench.fs import DATA_FOLDER, read_text

_FOLDERS = (".github", "tfbench", "pytest", "_pytest")
"""Of the root. A package there comes before the installed one."""
_NAMES = frozenset(
    {"action.yml", "action.yaml", "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml",
     "tox.ini", "setup.cfg", "setup.py", "Makefile", "makefile", "GNUmakefile", "noxfile.py", "sitecustomize.py",
     "usercustomize.py", "pytest.py", "tfbench.py", "entry_points.txt", ".gitmodules", ".gitattributes", "Pipfile", "uv.toml",
     "pixi.toml", "pip.conf", ".python-version", ".tool-versions"}
)  # fmt: skip
_ENVIRONMENT = re.compile(
    r".*\.(lock|pth)|.*\baccepted\.toml|pylock(\..+)?\.toml|.*(requirements|constraints).*\.(txt|in)|Pipfile\.lock"
    r"|(environment|conda-lock).*\.ya?ml"
)
_SETTINGS = (
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
    "setup.py",
)
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*")
_MODULES = (
    (re.compile(r"""(?<![\w-])-p[\s"',=]*([\w.]+)"""), re.compile(r"[\w.]+")),
    (re.compile(r"""\bPYTEST_PLUGINS["']?\s*[:=]\s*["']?([\w.,]+)"""), re.compile(r"[\w.]+")),
    (re.compile(r"\bpytest_plugins\b[^=\n]*=\s*(\[[^]]*\]|\([^)]*\)|[^\n]*)"), re.compile(r"""["']([\w.]+)["']""")),
    (re.compile(r"\bpytest11\b(.*?)(?:\n\s*\[|\n\n|\Z)", re.DOTALL), re.compile(r"""=\s*["']?([\w.]+)""")),
)
"""What names plugins of pytest: options, an environment variable, modules and entry points; and each name in it."""
_PROSE = (".md", ".rst")
"""Endings of files that workflows name to leave them out."""


def own_files(changed: Iterable[str], root: Path) -> list[str]:
    """Select the workflows, settings, environments, baselines, accepted regressions, and files that those name; sorted.

    Args:
        changed: Paths relative to the root of the repository.
        root: A tree of the repository that the pull request has not changed.
    """
    paths, modules = _named(root)
    return sorted({name for name in changed if name and _is_own(PurePosixPath(name), paths, modules)})


def _is_own(path: PurePosixPath, paths: set[str], modules: set[str]) -> bool:
    if path.parts[0] in _FOLDERS or DATA_FOLDER in path.parts:
        return True
    if path.suffix in (".txt", ".in") and not {"requirements", "constraints"}.isdisjoint(path.parts):
        return True
    if path.name in _NAMES or _ENVIRONMENT.fullmatch(path.name) or str(path) in paths:
        return True
    parts = path.with_suffix("").parts if path.suffix == ".py" else ()
    parts = parts[:-1] if parts[-1:] == ("__init__",) else parts
    return any(".".join(parts[first:]) in modules for first in range(len(parts)))


def _named(root: Path) -> tuple[set[str], set[str]]:
    """Return the paths and the modules of plugins that files of the gate name."""
    paths, modules = set(), set()
    for file in _gate(root):
        try:
            text = read_text(file)
        except (ReportError, OSError, ValueError):
            continue
        modules |= {
            name for pattern, each in _MODULES for found in pattern.findall(text) for name in each.findall(found)
        }
        if not file.name.endswith(".py") and file.name not in _SETTINGS:
            paths |= {name for name in _PATH.findall(text.replace("./", " ")) if not name.endswith(_PROSE)}
    return paths, modules


def _gate(root: Path) -> Iterator[Path]:
    yield from (root / name for name in (*_SETTINGS, "action.yml", "action.yaml"))
    yield from (root / ".github").glob("**/*.y*ml")
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("node_modules", "venv")]
        if "conftest.py" in names:
            yield Path(folder, "conftest.py")
