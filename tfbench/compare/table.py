"""Print two result files side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.compare.timing import FileComparison, Timing
from tfbench.model import TIME, Report, Verdict
from tfbench.report.style import COLOURS, table
from tfbench.report.units import duration, times

LIMITS = (
    "Intervals (95%) cover the scatter within the two runs only. Runs of the same code differ more than that: "
    "a third of unchanged cases moves by more than 5% between sessions. So this comparison is no verdict. "
    "For a verdict, run pytest --benchmark with --against SPEC or --baseline NAME."
)


def contrasts(rows: Sequence[FileComparison], comparable: bool) -> RenderableType:
    """Make a table with one line per case, largest slowdown first.

    Args:
        comparable: Whether both files come from one machine and environment.
    """
    made = table("times")
    made.add_column("case", overflow="fold")
    for name in ("first", "second", "second / first"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("", overflow="fold")
    for row in sorted(rows, key=lambda row: (row.interval is None, -(row.ratio or 0))):
        ratio = times(row.interval) if row.interval else f"{row.ratio:.3f}" if row.ratio else "-"
        reason = row.reason.message if comparable or row.ratio is None else "incomparable"
        made.add_row(Text(row.case), _median(row.first), _median(row.second), Text(ratio), Text(reason))
    return Group(made, Text(LIMITS, "dim"))


def _median(timing: Timing | None) -> Text:
    return Text("-" if timing is None else duration(timing.median))


def verdicts(first: Report | None, second: Report | None) -> Table:
    """Make a table of the verdicts of two reports, each against its own baseline."""
    made = table("verdicts, each against its own baseline")
    made.add_column("case", overflow="fold")
    for name in ("first", "second"):
        made.add_column(name, no_wrap=True)
        made.add_column("ratio", justify="right", no_wrap=True)
    before, after = _by_case(first), _by_case(second)
    for row in dict.fromkeys((*after, *before)):
        made.add_row(Text(" ".join(row)), *_cells(before.get(row)), *_cells(after.get(row)))
    return made


def _by_case(report: Report | None) -> Mapping[tuple[str, ...], Verdict]:
    found: Iterable[Verdict] = report.verdicts if report else ()
    return {(v.case.name, *([v.metric] if v.metric != TIME else [])): v for v in found}


def _cells(verdict: Verdict | None) -> tuple[Text, Text]:
    if verdict is None:
        return Text("-"), Text("-")
    return Text(str(verdict.outcome), COLOURS[verdict.outcome]), Text(times(verdict.ratio) if verdict.ratio else "-")
