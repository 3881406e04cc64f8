"""How tables look, all of them alike."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tfbench.model import Outcome

COLOURS = {
    Outcome.UNCHANGED: "green", Outcome.IMPROVED: "bold green", Outcome.REGRESSED: "bold red", Outcome.ERROR: "red",
    Outcome.INCONCLUSIVE: "yellow", Outcome.INCOMPARABLE: "yellow", Outcome.MISSING: "yellow", Outcome.NEW: "cyan",
}  # fmt: skip


def table(title: str) -> Table:
    """An empty table."""
    return Table(
        title=Text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
