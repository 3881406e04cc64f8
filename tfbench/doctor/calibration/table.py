"""Print a calibration as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tfbench.doctor.calibration.journal import slowdown_text
from tfbench.model import Rate, RateRow
from tfbench.report import style

WIDE = 100
"""On lines with fewer characters, headings are broken, so that all columns fit into 80."""
ROOMY = 130
"""The same with a column of coverage, which then has its interval."""
_HEADINGS = ("false positives", "inconclusive", "min. detectable", "coverage of ")
_BROKEN_HEADINGS = ("false\npositives", "in-\nconclu-\nsive", "min.\nde-\ntect-\nable", "cov-\nerage\nof\n")


def table(title: str, rows: Sequence[RateRow], width: int) -> Table:
    """Make a table of so many characters: false positives with their upper bound, detected slowdowns, cost.

    Journals with intervals have a column of their coverage. Its heading has the nominal one.
    """
    nominal = _nominal(rows)
    wide = width >= (WIDE if nominal is None else ROOMY)
    false_positives, inconclusive, detectable, covering = _HEADINGS if wide else _BROKEN_HEADINGS
    slowdowns = sorted({slowdown for row in rows for slowdown in row.detected})
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.tails))
    headings = [kind if wide else kind.replace(" ", "\n") for kind in kinds]
    made = style.table(title)
    made.add_column("workload", overflow="fold", min_width=13)
    injected = [f"+{slowdown_text(slowdown)}" for slowdown in slowdowns]
    coverage = [] if nominal is None else [f"{covering}{nominal:.1%}".replace(".0%", "%")]
    for name in (false_positives, inconclusive, *coverage, *injected, *headings, detectable, "s"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(
            row.name,
            of(row.false_alarms, " ≤"),
            percent(row.inconclusive),
            *([_coverage(row.coverage, wide)] if coverage else []),
            *(percent(row.detected[s]) if s in row.detected else "" for s in slowdowns),
            *(percent(row.tails[kind]) if kind in row.tails else "" for kind in kinds),
            "-" if row.smallest_found is None else slowdown_text(row.smallest_found),
            "-" if row.seconds is None else f"{row.seconds:.1f}",
        )
    return made


def _nominal(rows: Sequence[RateRow]) -> float | None:
    """Return the mean confidence of all intervals of the rows, ``None`` if they have none."""
    told = [(row.nominal, row.coverage.trials) for row in rows if row.nominal is not None and row.coverage]
    return sum(nominal * trials for nominal, trials in told) / sum(trials for _, trials in told) if told else None


def _coverage(rate: Rate | None, with_interval: bool) -> str:
    if rate is None:
        return "-"
    return f"{percent(rate)} ({rate.low:.1%} to {rate.high:.1%})" if with_interval else percent(rate)


def costs(row: RateRow) -> str:
    """Format the median seconds of a verdict: ``2.4 s on unchanged code, 19.0 s at +2%``; ``""`` without trials."""
    same = [] if row.seconds is None else [f"{row.seconds:.1f} s on unchanged code"]
    slowed = [f"{took:.1f} s at +{slowdown_text(slowdown)}" for slowdown, took in sorted(row.seconds_detected.items())]
    tails = [f"{took:.1f} s at {kind}" for kind, took in row.seconds_tails.items()]
    return ", ".join([*same, *slowed, *tails])


def of(rate: Rate, bound: str = ", at most ") -> str:
    """Format a rate with its upper bound at 95% confidence: ``1/500, at most 1.1%``."""
    return f"{rate.hits}/{rate.trials}{bound}{rate.high:.1%}" if rate.trials else "-"


def percent(rate: Rate) -> str:
    """Format a rate as ``97%``, or as a dash without trials."""
    return f"{rate.value:.1%}".replace(".0%", "%") if rate.trials else "-"
