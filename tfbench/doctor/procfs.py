"""Read small files of /proc and /sys, which may be missing, forbidden or malformed."""

from __future__ import annotations

from pathlib import Path


def text(file: Path) -> str | None:
    """Return the stripped content of a file; ``None`` if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(file: Path) -> int | None:
    """Return the integer in a file; ``None`` if there is none."""
    try:
        return int(text(file) or "")
    except ValueError:
        return None


def processors(words: str) -> tuple[int, ...]:
    """Parse the kernel's lists of processors, such as ``0,2-3``; empty if malformed."""
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return ()
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
