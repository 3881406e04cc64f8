"""Series of a history: one case followed over runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tfbench.model.formats import Name, Text

RATIO, FLOOR = "ratio", "floor"
"""Metrics of a series: time relative to the anchor's in the same race, and seconds of the fastest block."""


@dataclass(frozen=True, slots=True)
class Series:
    """A case followed in one way: relative to one anchor on any machine, or in seconds on one machine."""

    case: str
    metric: str
    """`RATIO` or `FLOOR`."""
    anchor: str
    """Specification of the anchor, ``""`` for floors."""
    machine: str
    """Label of the machine, ``""`` for ratios."""
    points: tuple[SeriesPoint, ...] = field(default=(), repr=False)
    """In time order."""


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """A run of a history, as far as its series tell."""

    session: str
    commit: str
    dirty: bool
    releases: tuple[str, ...]
    side: str
    """Version of TensorFlow."""
    machine: str


class SeriesPoint(NamedTuple):
    """A run of a series: a ratio, or seconds."""

    run: SeriesRun
    value: float
    low: float
    """Lower end of the interval, 0 if unbounded or unknown."""
    high: float
    outcome: str


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """An accepted change of level; the history of the case restarts there."""

    case: Name
    reason: Text
    when: Text
    session: Name
    """The first run that counts again."""
