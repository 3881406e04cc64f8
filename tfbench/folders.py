"""Folders that several processes want: filled beside their place and renamed there, by one process at a time."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(place: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``place`` if nothing fails in between, and is gone if something does.

    Raises:
        OSError: It cannot be made, or ``place`` is there by now.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=".half-", dir=place.parent))
    try:
        yield half
        half.rename(place)
    finally:
        shutil.rmtree(half, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock of one that has died is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
