"""Tell which files of a pull request are part of the gate, so that a reader does not trust a gate that it has changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

_FOLDERS = (".github", "tfbench")
_NAMES = frozenset(
    {"action.yml", "action.yaml", "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", "pyproject.toml", "tox.ini",
     "setup.cfg", "setup.py", "Makefile", "requirements.txt", "sitecustomize.py", "usercustomize.py"}
)  # fmt: skip
_ENDINGS = ("-accepted.toml", ".pth")


def own_files(changed: Iterable[str]) -> list[str]:
    """Select the workflows, the settings of pytest and of the environment, and the accepted regressions, sorted."""
    return sorted({name for name in changed if _is_own(PurePosixPath(name))})


def _is_own(path: PurePosixPath) -> bool:
    inside = bool(path.parts) and path.parts[0] in _FOLDERS
    return inside or path.name in _NAMES or path.name.endswith(_ENDINGS)
