"""A table of numbers with units, as a tool that reads profiles made it, before anybody prints it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tfbench.model import JSON

Cell = str | float | int | bool | None

SECONDS, BYTES, SHARE, COUNT, TEXT, NAME = "s", "B", "1", "count", "", "name"
"""Units of a column; a share is a fraction of one, a name that of an op or the like, which may be very long."""

SHORT = 20
"""Rows of a table in a report of many profiles."""


@dataclass(frozen=True, slots=True)
class Column:
    """What stands in a column, and in which unit."""

    name: str
    unit: str = TEXT


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a tool: rows in the order in which they matter."""

    name: str
    """Unique within its tool: letters, digits and ``_``, since it becomes a file's name."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def as_json(self) -> JSON:
        return {
            "name": self.name,
            "title": self.title,
            "columns": [{"name": column.name, "unit": column.unit} for column in self.columns],
            "rows": [list(row) for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class Section:
    """What one tool found in a profile, or why it found nothing."""

    tool: str
    title: str
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """What the tool says in words, most important first."""
    absent: str = ""
    """Why there is nothing to show, with the fix; empty if there is."""

    def short(self) -> Section:
        """The same with the first rows of its tables, for a report of many."""
        tables = tuple(replace(table, rows=table.rows[:SHORT]) for table in self.tables)
        return replace(self, tables=tables)

    def as_json(self) -> JSON:
        return {
            "tool": self.tool,
            "title": self.title,
            "sheets": [table.as_json() for table in self.tables],
            "notes": list(self.notes),
            "absent": self.absent,
        }
