"""The console that everything is printed with, and the style of its tables.

The console shows text of unknown origin without effect on terminals and runners.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from tfbench.model import Outcome
from tfbench.untrusted import harmless

COLOURS = {
    Outcome.UNCHANGED: "green", Outcome.IMPROVED: "bold green", Outcome.REGRESSED: "bold red", Outcome.ERROR: "red",
    Outcome.INCONCLUSIVE: "yellow", Outcome.INCOMPARABLE: "yellow", Outcome.MISSING: "yellow", Outcome.NEW: "cyan",
    Outcome.UNGATED: "magenta",
}  # fmt: skip


Column = tuple[str, Mapping[str, Any]]
"""The heading of a column, and how rich shows it."""


def right(*headings: str, **how: Any) -> list[Column]:
    """Make columns of numbers."""
    return [(heading, {"justify": "right", **how}) for heading in headings]


def folded(*headings: str, **how: Any) -> list[Column]:
    """Make columns whose long cells fold on a narrow terminal."""
    return [(heading, {"no_wrap": False, "overflow": "fold", **how}) for heading in headings]


def table(title: str, *columns: str | Column) -> Table:
    """Create a table. Its columns never wrap, unless they are `folded`."""
    made = Table(
        title=Text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for heading, how in ((column, {}) if isinstance(column, str) else column for column in columns):
        made.add_column(heading, **{"no_wrap": True, **how})
    return made


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


# The console


CUT_OFF = 141
"""Exit code of a command whose reader, such as head, wants no more: as a shell reports SIGPIPE."""
_WIDTH = 80
"""Columns of a console that states none."""


class Screen(Console):
    """A console on which only the styles of this program act: every piece of text passes through `harmless`."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **how})
        if self.width < 1:  # as COLUMNS=0 asks for
            self.width = _WIDTH

    def on_broken_pipe(self) -> NoReturn:
        """End silently, with an exit code of its own."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(CUT_OFF)

    def print(self, *objects: Any, crop: bool = False, **how: Any) -> None:
        """Print as `rich` does, and cut no line: a terminal breaks those of wide tables."""
        super().print(*objects, crop=crop, **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `rich` does, and replace the text of each piece; codes for the cursor come from `rich` alone.

        A table gets `_WIDTH` columns on a narrower terminal, where cells and headings would be cut.
        """
        if isinstance(renderable, Table):
            options = options or self.options
            options = options.update(width=max(_WIDTH, options.max_width))
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    def status(self, status: RenderableType, **how: Any) -> Status:
        """Show an activity on a terminal, without markup in its text."""
        return _Activity(_text(status), console=self, **how)


QUIET = 60.0
"""Seconds after which a log, which shows no activity, gets a line about it."""


class _Activity(Status):
    _told = float("inf")

    def update(self, status: RenderableType | None = None, **how: Any) -> None:
        super().update(None if status is None else _text(status), **how)
        self._told = min(self._told, now := time.monotonic())  # from the first activity on
        if not self.console.is_terminal and now - self._told >= QUIET:
            self._told = now
            say(f"tfbench: {self.status}", error=True)


def _text(status: RenderableType) -> RenderableType:
    return Text(status) if isinstance(status, str) else status


def say(text: str, *, error: bool = False) -> None:
    """Print a line, or print it as an error, without `rich`'s folding."""
    print(harmless(text), file=sys.stderr if error else sys.stdout)
