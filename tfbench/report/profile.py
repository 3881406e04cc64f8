"""Render the sections of a profile for a terminal, and as CSV files, Markdown and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.model import JSON
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, TEXT, Cell, Column, Section, Table
from tfbench.report.style import add_row, table
from tfbench.report.units import percent, size, time

_ROWS = 12
"""Rows per table on a terminal or in Markdown. The CSV files have all rows."""
_WORDS = (TEXT, NAME)
_LONGEST = 72
"""Characters of a name in a table. The CSV files have full names."""


_FORMATS: dict[str, Callable[[float], str]] = {
    SECONDS: time,
    BYTES: size,
    SHARE: lambda value: percent(value) if value else "0",
    COUNT: "{:,.0f}".format,
}


def _cell(value: Cell, unit: str) -> str:
    """Format a value with its unit. A long name keeps both ends, since stages and ops differ at their ends."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, str):
        return _FORMATS.get(unit, "{:g}".format)(value)
    if unit != NAME or len(value) <= _LONGEST:
        return value
    return f"{value[: _LONGEST // 3]}…{value[-(_LONGEST - _LONGEST // 3 - 1) :]}"


def render(title: str, sections: Sequence[Section]) -> RenderableType:
    """Render the sections for a terminal."""
    parts: list[RenderableType] = [Text(title, "bold")]
    for section in sections:
        parts += [Text(), Text(section.title, "bold cyan")]
        if section.absent:
            parts.append(Text(f"no result: {section.absent}", "yellow"))
        parts += [Text(note) for note in section.notes]
        parts += [_table(one) for one in section.tables if one.rows]
    return Group(*parts)


def _table(content: Table) -> Group:
    made = table(content.title)
    columns, rows, more = _excerpt(content)
    for column in columns:
        made.add_column(column.name, justify="left" if column.unit in _WORDS else "right", overflow="fold")
    for row in rows:
        add_row(made, *row)
    return Group(made, *(Text(line, "dim") for line in more))


def _excerpt(content: Table) -> tuple[list[Column], list[list[str]], list[str]]:
    """Return the columns and the first rows of a table, and a line that counts the other rows if there are any.

    Columns of zeros and blanks are left out, except for the first, which names the rows.
    """
    columns = [
        (number, column)
        for number, column in enumerate(content.columns)
        if number == 0 or any(row[number] not in (None, "", 0, 0.0) for row in content.rows)
    ]
    rows = [[_cell(row[number], column.unit) for number, column in columns] for row in content.rows[:_ROWS]]
    more = len(content.rows) - _ROWS
    return [column for _, column in columns], rows, [f"… and {more} more"] if more > 0 else []


def csv_files(sections: Sequence[Section]) -> dict[str, str]:
    """Render each table as CSV, keyed by file name. The first line has the units."""
    return {f"{section.tool}-{one.name}.csv": _csv(one) for section in sections for one in section.tables}


def _csv(content: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([one.name if one.unit in _WORDS else f"{one.name} ({one.unit})" for one in content.columns])
    writer.writerows([_guarded(value) for value in row] for row in content.rows)
    return text.getvalue()


def _guarded(value: Cell) -> Cell:
    """Quote text that spreadsheets would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Render the sections as Markdown."""
    parts = [f"# {_plain(title)}"]
    for section in sections:
        parts.append(f"## {_plain(section.title)}")
        if section.absent:
            parts.append(f"No result: {_plain(section.absent)}")
        if section.notes:
            parts.append("\n".join(f"- {_plain(note)}" for note in section.notes))
        parts += [_markdown(one) for one in section.tables if one.rows]
    return "\n\n".join(parts) + "\n"


def _markdown(content: Table) -> str:
    columns, rows, more = _excerpt(content)
    marks = ["---" if column.unit in _WORDS else "---:" for column in columns]
    lines = [[_plain(column.name) for column in columns], marks, *([_plain(text) for text in row] for row in rows)]
    rest = ["", *more] if more else []
    return "\n".join([f"### {_plain(content.title)}", "", *(f"| {' | '.join(line)} |" for line in lines), *rest])


def _plain(text: str) -> str:
    """Escape Markdown: names of ops contain special characters."""
    return " ".join(re.sub(r"[\\|*_`<\[]", r"\\\g<0>", text).split())


def as_text(content: JSON) -> str:
    """Render JSON as the text of a file."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_json(case: str, side: str, sections: Sequence[Section], why: Sequence[str] = ()) -> JSON:
    """Build the JSON of the sections of one side of a case, with the causes of its slowdown."""
    return {
        "schema": "tfbench-profile/1",
        "case": case,
        "side": side,
        "why": list(why),
        "sections": [section.as_json() for section in sections],
    }
