"""Count the compiled modules of a package without importing it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tfbench.doctor.model import Bytecode

_FOLDERS = (".", "python", "python/eager", "python/framework", "python/ops")
"""A sample of TensorFlow: about 300 of the 2,000 modules that an import loads."""
_HEADER = 16
_HASHED = 1


def look_at(package: str) -> Bytecode | None:
    """Inspect a top-level package; ``None`` if this interpreter does not have it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return count(Path(next(iter(spec.submodule_search_locations))))


def count(folder: Path) -> Bytecode:
    """Count the sampled modules in a package's folder, and those whose bytecode this interpreter would use."""
    sources = [source for part in _FOLDERS for source in sorted((folder / part).glob("*.py"))]
    return Bytecode(str(folder), len(sources), sum(map(is_compiled, sources)))


def is_compiled(source: Path) -> bool:
    """Return whether bytecode exists for this interpreter's version and the current source (PEP 552)."""
    try:
        with open(importlib.util.cache_from_source(str(source)), "rb") as file:
            header = file.read(_HEADER)
        status = source.stat()
    except (OSError, NotImplementedError):
        return False
    if len(header) < _HEADER or header[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags, changed, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if flags & _HASHED:
        return True
    return changed == int(status.st_mtime) & 0xFFFFFFFF and size == status.st_size & 0xFFFFFFFF
