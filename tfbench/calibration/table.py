"""A calibration as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tfbench.model import Rate, RateRow
from tfbench.report import style

WIDE = 100
"""Characters of a line below which headings are broken: every column must fit into 80."""
_HEADINGS = ("false positives", "inconclusive", "min. detectable")
_BROKEN_HEADINGS = ("false\npositives", "incon-\nclusive", "min.\ndetect-\nable")


def table(title: str, rows: Sequence[RateRow], width: int) -> Table:
    """One line per row: false positives with their interval, reported slowdowns, cost.

    Args:
        width: Characters of a line.
    """
    false_positives, inconclusive, detectable = _HEADINGS if width >= WIDE else _BROKEN_HEADINGS
    slowdowns = sorted({slowdown for row in rows for slowdown in row.detected})
    made = style.table(title)
    made.add_column("workload", overflow="fold", min_width=13)
    made.add_column(false_positives, justify="right", no_wrap=True)
    made.add_column(inconclusive, justify="right", no_wrap=True)
    for slowdown in slowdowns:
        made.add_column(f"+{slowdown:.0%}", justify="right", no_wrap=True)
    made.add_column(detectable, justify="right", no_wrap=True)
    made.add_column("s", justify="right", no_wrap=True)
    for row in rows:
        made.add_row(
            row.name,
            _short(row.false_alarms),
            percent(row.inconclusive),
            *(percent(row.detected[s]) if s in row.detected else "" for s in slowdowns),
            "-" if row.smallest_found is None else f"{row.smallest_found:.0%}",
            "-" if row.seconds is None else f"{row.seconds:.1f}",
        )
    return made


def _short(rate: Rate) -> str:
    return f"{rate.hits}/{rate.trials} ≤{rate.high:.1%}" if rate.trials else "-"


def of(rate: Rate) -> str:
    """``1/500, at most 1.1%``: the upper end at 95% confidence."""
    return f"{rate.hits}/{rate.trials}, at most {rate.high:.1%}" if rate.trials else "-"


def percent(rate: Rate) -> str:
    """``97%``, or a dash where nothing was tried."""
    return f"{rate.value:.1%}".replace(".0%", "%") if rate.trials else "-"
