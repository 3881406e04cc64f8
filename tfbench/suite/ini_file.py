"""Find pytest's configuration file of a source tree that lies below another one."""

from __future__ import annotations

import os
from pathlib import Path

from _pytest.config.findpaths import load_config_dict_from_file  # pytest offers it nowhere else

_NAMES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""In pytest's order of preference."""


def ini_file(root: Path, top: Path) -> str:
    """Return the configuration file of ``root``, or a file without settings if its tree has none.

    The trees of other commits lie below the working tree, whose configuration pytest would use and whose code it would
    import.

    Args:
        top: Top folder of the tree. The folders above it do not count.
    """
    root, top = root.resolve(), top.resolve()
    for folder in (one for one in (root, *root.parents) if one.is_relative_to(top)):
        for file in (folder / name for name in _NAMES):
            if file.is_file() and load_config_dict_from_file(file) is not None:
                return str(file)
    return os.devnull
