"""A calibration as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tfbench.model import Rate, RateRow
from tfbench.report import style


def table(title: str, rows: Sequence[RateRow]) -> Table:
    """One line a row: false alarms with their interval, what was found, what it cost."""
    slowdowns = sorted({slowdown for row in rows for slowdown in row.detected})
    made = style.table(title)
    made.add_column("workload", overflow="fold", min_width=14)
    made.add_column("accused", justify="right", no_wrap=True)
    made.add_column("open", justify="right")
    for slowdown in slowdowns:
        made.add_column(f"+{slowdown:.0%}", justify="right", no_wrap=True)
    made.add_column("finds", justify="right", no_wrap=True)
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
