"""What tools found in a profile, as tables for a terminal, CSV files, Markdown and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.model import JSON
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, TEXT, Cell, Column, Section, Table
from tfbench.report.style import table
from tfbench.report.units import duration, percent, size

SCHEMA = "tfbench-profile/1"
_ROWS = 12
"""Of a table on a terminal or in Markdown; the CSV files have all of them."""
_WORDS = (TEXT, NAME)
_LONGEST = 72
"""Characters of a name in a table; the CSV files have the rest."""


def cell(value: Cell, unit: str) -> str:
    """A value as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == SECONDS:
        return duration(value) if value > 0 else "0"
    if unit == BYTES:
        return size(value)
    if unit == SHARE:
        return percent(value) if value else "0"
    return f"{value:g}" if unit != COUNT else f"{value:,.0f}"


def render(title: str, sections: Sequence[Section]) -> RenderableType:
    """The sections for a terminal."""
    parts: list[RenderableType] = [Text(title, "bold")]
    for section in sections:
        parts += [Text(), Text(section.title, "bold cyan")]
        if section.absent:
            parts.append(Text(f"nothing to show: {section.absent}", "yellow"))
        parts += [Text(note) for note in section.notes]
        parts += [_table(profile_table) for profile_table in section.tables if profile_table.rows]
    return Group(*parts)


def _table(profile_table: Table) -> RenderableType:
    made = table(profile_table.title)
    columns = [
        number for number, column in enumerate(profile_table.columns) if _says_something(profile_table, number, column)
    ]
    for number in columns:
        column = profile_table.columns[number]
        made.add_column(column.name, justify="left" if column.unit in _WORDS else "right", overflow="fold")
    for row in profile_table.rows[:_ROWS]:
        made.add_row(*(Text(_short(row[number], profile_table.columns[number].unit)) for number in columns))
    if (more := len(profile_table.rows) - _ROWS) > 0:
        return Group(made, Text(f"… and {more} more", "dim"))
    return made


def _says_something(profile_table: Table, number: int, column: Column) -> bool:
    """Whether a column holds anything but zeros and blanks, or names the rows."""
    return number == 0 or any(row[number] not in (None, "", 0, 0.0) for row in profile_table.rows)


def _short(value: Cell, unit: str) -> str:
    """A value; of a long name both ends are kept: stages and ops differ at their ends."""
    text = cell(value, unit)
    return (
        text
        if unit != NAME or len(text) <= _LONGEST
        else f"{text[: _LONGEST // 3]}…{text[-(_LONGEST - _LONGEST // 3 - 1) :]}"
    )


def csv_files(sections: Sequence[Section]) -> dict[str, str]:
    """Every table as the text of a CSV file, by the file's name; units stand in the first line."""
    return {
        f"{section.tool}-{profile_table.name}.csv": _csv(profile_table)
        for section in sections
        for profile_table in section.tables
    }


def _csv(profile_table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [column.name if column.unit in _WORDS else f"{column.name} ({column.unit})" for column in profile_table.columns]
    )
    writer.writerows([_guarded(value) for value in row] for row in profile_table.rows)
    return text.getvalue()


def _guarded(value: Cell) -> Cell:
    """Spreadsheets run a text that begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def markdown(title: str, sections: Sequence[Section]) -> str:
    """The sections as Markdown."""
    parts = [f"# {_plain(title)}"]
    for section in sections:
        parts.append(f"## {_plain(section.title)}")
        if section.absent:
            parts.append(f"Nothing to show: {_plain(section.absent)}")
        if section.notes:
            parts.append("\n".join(f"- {_plain(note)}" for note in section.notes))
        for profile_table in section.tables:
            if profile_table.rows:
                parts.append(_markdown(profile_table))
    return "\n\n".join(parts) + "\n"


def _markdown(profile_table: Table) -> str:
    columns = [
        number for number, column in enumerate(profile_table.columns) if _says_something(profile_table, number, column)
    ]
    lines = [f"### {_plain(profile_table.title)}", ""]
    lines.append(f"| {' | '.join(_plain(profile_table.columns[number].name) for number in columns)} |")
    lines.append(f"| {' | '.join('---' if profile_table.columns[n].unit in _WORDS else '---:' for n in columns)} |")
    for row in profile_table.rows[:_ROWS]:
        lines.append(f"| {' | '.join(_plain(_short(row[n], profile_table.columns[n].unit)) for n in columns)} |")
    if (more := len(profile_table.rows) - _ROWS) > 0:
        lines += ["", f"… and {more} more"]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """As words: names of ops hold what Markdown would take for marks."""
    escaped = text.replace("\\", "\\\\")
    for mark in "|*_`<[":
        escaped = escaped.replace(mark, f"\\{mark}")
    return " ".join(escaped.split())


def as_text(content: JSON) -> str:
    """JSON as it stands in a file."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_json(case: str, side: str, sections: Sequence[Section], why: Sequence[str] = ()) -> JSON:
    """The sections of one side of a case, with what its profiles say of a slowdown."""
    return {
        "schema": SCHEMA,
        "case": case,
        "side": side,
        "why": list(why),
        "sections": [section.as_json() for section in sections],
    }
