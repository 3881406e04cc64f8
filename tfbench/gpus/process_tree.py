"""The processes of a run: this one, those that it has started, and theirs, as /proc tells it."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path


def family(root: Path = Path("/proc"), first: int | None = None) -> set[int]:
    """Process ids of the first one, this one by itself, and of all that descend from it by now.

    Args:
        root: Where /proc is.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for stat in root.glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything, parentheses too.
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            children[int(fields[1])].append(int(stat.parent.name))
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
    found, open_ = set(), [first if first is not None else os.getpid()]
    while open_:
        pid = open_.pop()
        if pid not in found:
            found.add(pid)
            open_ += children[pid]
    return found
