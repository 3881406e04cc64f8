"""Redirect imports from the working tree to another source tree.

An editable installation or an entry of PYTHONPATH would otherwise import the working tree on both sides, and every
comparison of commits would find them equal.
"""

from __future__ import annotations

import os
import sys
import types

OWN = "tfbench"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
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
    """Return packages that were imported from the working tree nevertheless, without tfbench and installed ones."""
    found = set()
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType):
            continue
        # Attribute access would load a lazy module here in the zygote, on one side only.
        file, package = object.__getattribute__(module, "__dict__").get("__file__"), name.partition(".")[0]
        if isinstance(file, str) and _moved(file, there, here) != file and not _below(os.path.realpath(file), _PACKAGE):
            found.add(package)
    return sorted(found)


def _moved(path: str, there: str, here: str) -> str:
    real = os.path.realpath(path)
    # An environment often lies inside the working tree.
    environments = (sys.prefix, sys.base_prefix)
    installed = "site-packages" in path.split(os.sep) or any(_below(path, root) for root in environments)
    if installed or not _below(real, there) or _below(real, here):
        return path
    return os.path.join(here, os.path.relpath(real, there))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
