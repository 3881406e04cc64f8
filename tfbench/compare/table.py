"""Print two result files side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.compare.contrast import FileComparison
from tfbench.model import TIME, Outcome, Report, Verdict
from tfbench.report.style import COLOURS, add_columns, add_row, table
from tfbench.report.units import duration, times

LIMITS = (
    "Intervals (95%) cover the scatter within the two runs only. Runs of the same code differ more than that: "
    "a third of unchanged cases moves by more than 5% between sessions. So this comparison is no verdict. "
    "For a verdict, run pytest --benchmark with --against SPEC or --baseline NAME."
)

NO_TIMES = (
    "it holds no times, because a race against another side measures ratios; "
    "a report of pytest --benchmark without --against and --baseline has times"
)


def contrasts(rows: Sequence[FileComparison], comparable: bool) -> RenderableType:
    """Make a table of cases, largest slowdown first. Files of one machine and environment are comparable."""
    made = table("times")
    add_columns(made, "case", fold=True)
    add_columns(made, "first", "second", "second / first", right=True)
    add_columns(made, "", fold=True)
    for row in sorted(rows, key=lambda row: (row.interval is None, -(row.ratio or 0))):
        ratio = times(row.interval) if row.interval else f"{row.ratio:.3f}" if row.ratio else "-"
        reason = row.reason.message if comparable or row.ratio is None else "incomparable"
        medians = (duration(timing.median) if timing else "-" for timing in (row.first, row.second))
        add_row(made, row.case, *medians, ratio, reason)
    return Group(made, Text(LIMITS, "dim"))


def verdicts(first: Report | None, second: Report | None, every: bool = False) -> RenderableType:
    """Make a table of the verdicts of the reports, each against its own baseline.

    Args:
        every: Also list metrics that are unchanged or new in each report.
    """
    columns = {name: _by_case(report) for name, report in (("first", first), ("second", second)) if report}
    made = table("verdicts, each against its own baseline")
    add_columns(made, "case", fold=True)
    for name in columns:
        add_columns(made, name)
        add_columns(made, "ratio", right=True)
    rows = {row: None for column in reversed(columns.values()) for row in column}
    shown = [row for row in rows if every or any(_moved(column.get(row)) for column in columns.values())]
    for row in shown:
        add_row(made, row, *(cell for column in columns.values() for cell in _cells(column.get(row))))
    parts: list[RenderableType] = [made] if shown else []
    if hidden := len(rows) - len(shown):
        parts.append(Text(f"{hidden} unchanged or new verdicts are not listed: add --all", "dim"))
    return Group(*parts)


def _moved(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.outcome not in (Outcome.UNCHANGED, Outcome.NEW)


def _by_case(report: Report) -> dict[str, Verdict]:
    return {one.case.name + f" {one.metric}" * (one.metric != TIME): one for one in report.verdicts}


def _cells(verdict: Verdict | None) -> tuple[str | Text, str]:
    if verdict is None:
        return "-", "-"
    return Text(str(verdict.outcome), COLOURS[verdict.outcome]), times(verdict.ratio) if verdict.ratio else "-"
