"""The common style of all tables on the terminal."""

from __future__ import annotations

import re

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tfbench.model import Outcome

COLOURS = {
    Outcome.UNCHANGED: "green", Outcome.IMPROVED: "bold green", Outcome.REGRESSED: "bold red", Outcome.ERROR: "red",
    Outcome.INCONCLUSIVE: "yellow", Outcome.INCOMPARABLE: "yellow", Outcome.MISSING: "yellow", Outcome.NEW: "cyan",
}  # fmt: skip


def table(title: str) -> Table:
    """Create a table without columns."""
    return Table(
        title=Text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )


def add_columns(made: Table, *headings: str, right: bool = False, fold: bool = False) -> None:
    """Add columns that never wrap, or that fold long cells on a narrow terminal.

    Args:
        right: Align to the right, as for numbers.
    """
    for heading in headings:
        made.add_column(
            heading, justify="right" if right else "left", no_wrap=not fold, overflow="fold" if fold else "ellipsis"
        )


def add_row(made: Table, *cells: str | Text) -> None:
    """Add a row whose cells are plain text: no markup of rich is interpreted."""
    made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))


def break_name(name: str, width: int) -> str:
    """Break the name of a case into lines of this width, after its file and between its levels."""
    lines = [""]
    for part in re.split(r"(?<=::|.[\[,/])", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
