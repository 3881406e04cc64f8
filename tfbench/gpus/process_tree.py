"""Find the processes of a run in /proc: this one and all its descendants."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path


def family(root: Path = Path("/proc"), first: int | None = None) -> set[int]:
    """Return the ids of a process and of its descendants.

    Args:
        root: Path of /proc.
        first: Process id, by default of this process.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for stat in root.glob("[0-9]*/stat"):
        try:
            # The name in parentheses may contain anything, even parentheses.
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            children[int(fields[1])].append(int(stat.parent.name))
        except (OSError, ValueError, IndexError):
            continue  # the process has ended
    found, open_ = set(), [first if first is not None else os.getpid()]
    while open_:
        pid = open_.pop()
        if pid not in found:
            found.add(pid)
            open_ += children[pid]
    return found
