"""Read files of the TensorFlow Profiler into typed results. Nothing here measures or prints.

The results of a profile are sections: tables of numbers with units, independent of the output format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from tfbench.model import JSON

Cell = str | float | int | bool | None

SECONDS, BYTES, SHARE, COUNT, TEXT, NAME = "s", "B", "1", "count", "", "name"
"""Units of a column. A share is a fraction of 1. A name, such as that of an op, may be very long."""

SHORT = 20
"""Rows per table in a report of many profiles."""

TITLES = {
    "errors": "Errors of the profiler",
    "overview": "Overview",
    "input": "Input pipeline analyzer",
    "tf_data": "tf.data bottleneck analysis",
    "ops": "TensorFlow stats",
    "kernels": "Kernel stats",
    "memory": "Memory profile",
}
"""Name of a tool -> title of its section, in reading order."""


@dataclass(frozen=True, slots=True)
class Column:
    """Heading and unit of a column."""

    name: str
    unit: str = TEXT


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a section, with the most important rows first."""

    name: str
    """Unique within its section and part of a file name: letters, digits and ``_``."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def parts_table(name: str, title: str, parts: Mapping[str, float], whole: float) -> Table:
    """Build a table of seconds by part, each with its share of the whole."""
    columns = (Column("part"), Column("time", SECONDS), Column("share", SHARE))
    return Table(name, title, columns, tuple((part, time, time / (whole or math.inf)) for part, time in parts.items()))


@dataclass(frozen=True, slots=True)
class Section:
    """The results of one tool, or the reason for their absence."""

    tool: str
    """A key of `TITLES`."""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """Findings as sentences, the most important first."""
    absent: str = ""
    """Why the section is empty, with the fix. ``""`` if it is not."""

    @property
    def title(self) -> str:
        return TITLES[self.tool]

    def short(self) -> Section:
        """Keep only the first `SHORT` rows of each table, for a report of many profiles."""
        tables = tuple(replace(table, rows=table.rows[:SHORT]) for table in self.tables)
        return replace(self, tables=tables)

    def as_json(self) -> JSON:
        return {**asdict(self), "title": self.title}
