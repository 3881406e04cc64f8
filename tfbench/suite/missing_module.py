"""Name the fix of an import that fails."""

from __future__ import annotations

import re
from pathlib import Path

_MISSING = re.compile(r"No module named '(\w+)'$", re.MULTILINE)
_SOURCES = (".", "src")
"""Folders below the root in which projects keep their modules."""


def fix_of(error: str, root: Path) -> str:
    """Return how to make the missing module of an error importable, ``""`` if the error names none that is known.

    Args:
        root: pytest's root directory.
    """
    if not (found := _MISSING.findall(error)):
        return ""
    name = found[-1]
    if name == "tensorflow":
        return "install TensorFlow in this environment: pip install tensorflow"
    for folder in _SOURCES:
        module = root / folder / name
        if module.with_suffix(".py").is_file() or module.is_dir():
            shown = f"{(Path(folder) / name).as_posix()}{'/' if module.is_dir() else '.py'}"
            return f"pytest does not import from the folder of {shown}: add `pythonpath = {folder}` to pytest.ini"
    return ""
