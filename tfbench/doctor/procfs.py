"""Read small files of /proc and /sys, which may be missing, forbidden or malformed."""

from __future__ import annotations

import re
from pathlib import Path


def text(file: Path) -> str | None:
    """Return the stripped content of a file; ``None`` if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def match(file: Path, pattern: str) -> str | None:
    """Return the first group of a pattern's first match, where ``^`` matches at each line; ``None`` without one."""
    found = re.search(pattern, text(file) or "", re.MULTILINE)
    return found[1] if found else None


def number(file: Path, name: str = "") -> int | None:
    """Return the integer that begins a file, or the line with this name; ``None`` if there is none."""
    found = match(file, rf"^{name}:?\s+(\d+)" if name else r"\A(-?\d+)")
    return None if found is None else int(found)


def processors(words: str) -> tuple[int, ...]:
    """Parse the kernel's lists of processors, such as ``0,2-3``; empty if malformed."""
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return ()
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
