"""Series of a history: one case followed over runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

RATIO, FLOOR = "ratio", "floor"
"""Metrics of a series: time relative to the anchor's in the same race, and seconds of the fastest block."""


@dataclass(frozen=True, slots=True)
class IndexedSeries:
    """A case followed in one way: relative to one anchor on any machine, or in seconds on one machine."""

    id: int
    case: str
    metric: str
    """`RATIO` or `FLOOR`."""
    anchor: str
    """Specification of the anchor, ``""`` for floors."""
    machine: str
    """Label of the machine, ``""`` for ratios."""


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run of a history."""

    session: str
    commit: str
    dirty: bool
    releases: tuple[str, ...]
    side: str
    """Version of TensorFlow."""
    machine: str


class SeriesPoint(NamedTuple):
    """A run of a series: a ratio, or seconds."""

    run: IndexedRun
    value: float
    low: float
    """Lower end of the interval, 0 if unbounded or unknown."""
    high: float
    outcome: str


@dataclass(frozen=True)
class AcceptedChange:
    """An accepted change of level; the history of the case restarts there."""

    case: str
    reason: str
    when: str
    session: str
    """The first run that counts again."""
