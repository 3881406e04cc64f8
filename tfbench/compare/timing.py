"""The times of a case in a result file."""

from __future__ import annotations

from typing import NamedTuple


class Timing(NamedTuple):
    """The times of a case in a result file, in seconds per iteration."""

    median: float
    launches: tuple[tuple[float, ...], ...] = ()
    """The rounds of each process; empty if the file has no raw times."""
