"""What tools found in a profile, as tables for a terminal, CSV files, Markdown and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.model import JSON
from tfbench.profiles.tables import BYTES, COUNT, NAME, SECONDS, SHARE, TEXT, Cell, Column, Section, Sheet
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
        parts += [_table(sheet) for sheet in section.sheets if sheet.rows]
    return Group(*parts)


def _table(sheet: Sheet) -> RenderableType:
    made = table(sheet.title)
    columns = [number for number, column in enumerate(sheet.columns) if _says_something(sheet, number, column)]
    for number in columns:
        column = sheet.columns[number]
        made.add_column(column.name, justify="left" if column.unit in _WORDS else "right", overflow="fold")
    for row in sheet.rows[:_ROWS]:
        made.add_row(*(Text(_short(row[number], sheet.columns[number].unit)) for number in columns))
    if (more := len(sheet.rows) - _ROWS) > 0:
        return Group(made, Text(f"… and {more} more", "dim"))
    return made


def _says_something(sheet: Sheet, number: int, column: Column) -> bool:
    """Whether a column holds anything but zeros and blanks, or names the rows."""
    return number == 0 or any(row[number] not in (None, "", 0, 0.0) for row in sheet.rows)


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
    return {f"{section.tool}-{sheet.name}.csv": _csv(sheet) for section in sections for sheet in section.sheets}


def _csv(sheet: Sheet) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [column.name if column.unit in _WORDS else f"{column.name} ({column.unit})" for column in sheet.columns]
    )
    writer.writerows([_guarded(value) for value in row] for row in sheet.rows)
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
        for sheet in section.sheets:
            if sheet.rows:
                parts.append(_markdown(sheet))
    return "\n\n".join(parts) + "\n"


def _markdown(sheet: Sheet) -> str:
    columns = [number for number, column in enumerate(sheet.columns) if _says_something(sheet, number, column)]
    lines = [f"### {_plain(sheet.title)}", ""]
    lines.append(f"| {' | '.join(_plain(sheet.columns[number].name) for number in columns)} |")
    lines.append(f"| {' | '.join('---' if sheet.columns[n].unit in _WORDS else '---:' for n in columns)} |")
    for row in sheet.rows[:_ROWS]:
        lines.append(f"| {' | '.join(_plain(_short(row[n], sheet.columns[n].unit)) for n in columns)} |")
    if (more := len(sheet.rows) - _ROWS) > 0:
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
