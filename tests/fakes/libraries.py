"""Native libraries for tests, without a compiler."""

from __future__ import annotations

import shutil
from pathlib import Path


def library(place: Path) -> Path:
    """Copy a small library of the system to this place, and return the place."""
    maps = Path("/proc/self/maps").read_text()
    known = (line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libm" in line or "/libc.so" in line)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sorted(known)[-1], place)  # the copy has an inode of its own, so it is loaded as another library
    return place
