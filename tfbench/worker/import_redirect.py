"""Another source tree in the place of the working tree: what is imported from the one comes from the other.

A package that is installed editable, or named in PYTHONPATH, would otherwise be the working tree's on both sides, and
every comparison of commits would find them equal.
"""

from __future__ import annotations

import os
import sys
import types

OWN = "tfbench"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
"""This package is the same on both sides, though it may lie in the working tree: it measures."""


def redirect_imports(there: str, here: str) -> None:
    """Have imports that would read ``there``, the working tree, read ``here`` instead.

    Reads what setuptools leaves for editable installations: entries of the path, or a finder with a ``MAPPING`` from
    packages to folders. Others are found by `leaked_packages`.
    """
    sys.path[:] = [_moved(entry, there, here) for entry in sys.path]
    for finder in sys.meta_path:
        mapping = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", None)
        if isinstance(mapping, dict):
            mapping.update({name: _moved(str(path), there, here) for name, path in mapping.items() if name != OWN})
    sys.path_importer_cache.clear()


def leaked_packages(there: str, here: str) -> list[str]:
    """Packages that were imported from the working tree all the same; this one and installed ones left out."""
    found = set()
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType):
            continue
        # Not asked for as an attribute: a lazy module would load, here in the zygote and so for one side alone.
        file, package = object.__getattribute__(module, "__dict__").get("__file__"), name.partition(".")[0]
        if isinstance(file, str) and _moved(file, there, here) != file and not _below(os.path.realpath(file), _PACKAGE):
            found.add(package)
    return sorted(found)


def _moved(path: str, there: str, here: str) -> str:
    real = os.path.realpath(path)
    if not _below(real, there) or _below(real, here) or _installed(path):
        return path
    return os.path.join(here, os.path.relpath(real, there))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _installed(path: str) -> bool:
    """In an environment, which often lies within the working tree."""
    return "site-packages" in path.split(os.sep) or any(_below(path, root) for root in {sys.prefix, sys.base_prefix})
