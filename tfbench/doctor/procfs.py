"""Small files of /proc and /sys, which may be missing, forbidden or odd."""

from __future__ import annotations

from pathlib import Path


def text(file: Path) -> str | None:
    """What the file says, stripped, or ``None`` if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(file: Path) -> int | None:
    """The whole number that the file holds, or ``None``."""
    try:
        return int(text(file) or "")
    except ValueError:
        return None


def processors(words: str) -> tuple[int, ...]:
    """Processors from a list of the kernel's, as ``0,2-3``; empty if it is no such list."""
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return ()
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
