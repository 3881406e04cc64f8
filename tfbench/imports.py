"""Imports from another source tree than the working tree, and pytest's settings of such a tree."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from _pytest.config.findpaths import load_config_dict_from_file  # pytest offers it nowhere else

OWN = "tfbench"
PACKAGE = os.path.dirname(os.path.realpath(__file__))
"""tfbench measures both sides with the same code, even if it lies in the working tree."""


def redirect_imports(there: str, here: str) -> None:
    """Make imports from ``there``, the working tree, read ``here`` instead.

    Handles the editable installations of setuptools: entries of the path, and finders with a ``MAPPING`` from packages
    to folders. `leaked_packages` finds the others.
    """
    sys.path[:] = [_moved(entry, there, here) for entry in sys.path]
    for finder in sys.meta_path:
        mapping = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", None)
        if isinstance(mapping, dict):
            mapping.update({name: _moved(str(path), there, here) for name, path in mapping.items() if name != OWN})
    sys.path_importer_cache.clear()


def leaked_packages(there: str, here: str) -> list[str]:
    """Return packages that were imported from the working tree nevertheless, without tfbench and installed ones.

    A package that was installed from the working tree as a copy (``pip install .``) is one of them: both sides would
    import that copy.
    """
    leaks, copies = set(), _copies(there)
    for name, file in module_files():
        package = name.partition(".")[0]
        leaked = _moved(file, there, here) != file or (package in copies and is_installed(file))
        # pytest makes a module of each folder above a conftest.py that lies outside of its root.
        if leaked and not is_below(os.path.realpath(file), PACKAGE) and not os.path.isdir(file):
            leaks.add(package)
    return sorted(leaks)


def module_files() -> Iterator[tuple[str, str]]:
    """Yield the name and the file of each imported module that has one."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType):
            # Attribute access would load a lazy module here in the zygote, on one side only.
            file = object.__getattribute__(module, "__dict__").get("__file__")
            if isinstance(file, str):
                yield name, file


def _copies(there: str) -> set[str]:
    """Return the packages of which an installed distribution holds a copy from this folder.

    pip and uv record where a distribution came from (PEP 610).
    """
    copies: set[str] = set()
    for distribution in metadata.distributions():
        try:
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")
            folder = os.path.realpath(unquote(urlsplit(origin.get("url", "")).path))
            copied = not origin.get("dir_info", {}).get("editable")
        except (OSError, ValueError, AttributeError):
            continue
        if origin and copied and is_below(folder, there):
            copies |= {file.parts[0].removesuffix(".py") for file in distribution.files or ()}
    return copies - {OWN}


def _moved(path: str, there: str, here: str) -> str:
    if is_installed(path):  # most are, and to follow the links of each takes 0.2 s in all
        return path
    real = os.path.realpath(path)
    if not is_below(real, there) or is_below(real, here):
        return path
    return os.path.join(here, os.path.relpath(real, there))


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def is_installed(path: str) -> bool:
    """Return whether the path is in an environment, which often lies inside the working tree."""
    return f"{os.sep}site-packages{os.sep}" in f"{path}{os.sep}" or any(
        is_below(path, root) for root in (sys.prefix, sys.base_prefix)
    )


_SETTINGS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""In pytest's order of preference."""


def ini_file(root: Path, top: Path) -> str:
    """Return the configuration file of ``root``, or a file without settings if its tree has none.

    The trees of other commits lie below the working tree, whose configuration pytest would use and whose code it would
    import.

    Args:
        top: Top folder of the tree. The folders above it do not count.
    """
    root, top = root.resolve(), top.resolve()
    for folder in (folder for folder in (root, *root.parents) if folder.is_relative_to(top)):
        for file in (folder / name for name in _SETTINGS):
            if file.is_file() and load_config_dict_from_file(file) is not None:
                return str(file)
    return os.devnull
