"""The page of a history: what changed first, then any case as a line over its runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tfbench.model import JSON, RATIO, SeriesPoint
from tfbench.report.html.page import DataGrid, case_data, render_page
from tfbench.report.trends import TrendLine, change, commit, describe, environment_changes, when
from tfbench.stats.change_points import TrendState

RUNS = 100
"""Newest runs of each series on a page."""
_STEP = 1e-3
"""Resolution of values, as a log-ratio."""
_SECTIONS = {"overview": "Overview", "changes": "Changes", "case": "One case", "all": "All cases"}


def render(cases: Iterable[Sequence[TrendLine]], runs: int, problems: Sequence[str]) -> str:
    """Render the page.

    Args:
        cases: The series of each case, the followed one first.
        runs: Number of runs of the history.
        problems: One line per unreadable part of its files.

    Raises:
        UsageError: The chart library is not installed.
    """
    sessions: dict[str, SeriesPoint] = {}
    followed = list[TrendLine]()
    contents = list[list[JSON]]()
    for lines in cases:
        followed.append(lines[0])
        contents.append([_series(one, sessions) for one in lines])
    numbers = {session: place for place, session in enumerate(sorted(sessions))}
    for one in (one for content in contents for one in content):
        one["runs"] = [numbers[session] for session in one["runs"]]
    points = [sessions[session] for session in sorted(sessions)]
    names = [line.trend.series.case for line in followed]
    gravest = min(followed, key=lambda line: list(TrendState).index(line.trend.state), default=None)
    shown = case_data(names, [{"series": one} for one in contents], gravest.trend.series.case if gravest else "")
    changes = _changes(followed)
    counts = Counter(line.trend.state for line in followed)
    subtitle = ", ".join(f"{counts[state]} {state}" for state in TrendState if counts[state])
    return render_page(
        "history.html", _SECTIONS, {"runs": _runs(points), "changes": changes, "all": _all(followed), **shown},
        scripts=("history.js",), title="Performance history", subtitle=f"{runs} runs; {subtitle}",
        slower=counts[TrendState.SLOWER], drifted=counts[TrendState.DRIFT], changed=bool(changes.rows),
        period=f" Its runs are from {when(points[0])} to {when(points[-1])}." if points else "",
        notes=environment_changes(points), problems=problems,
    )  # fmt: skip


def _series(line: TrendLine, sessions: dict[str, SeriesPoint]) -> JSON:
    """Return the newest runs of a series: values as differences of rounded logarithms, which compress well."""
    trend, points = line.trend, line.points[-RUNS:]
    sessions.update((point.run.session, point) for point in points)
    offset = len(line.points) - len(points)
    steps = [round(math.log(point.value) / _STEP) for point in points]
    ratio = trend.series.metric == RATIO
    widths = [_half_width(point) for point in points] if ratio else []
    changes = [
        {"at": one.index - offset, "text": f"{change(one.effect)} with {commit(line.points[one.index])}"}
        for one in trend.changes
        if one.index >= offset
    ]
    return {
        "label": f"ratio to {trend.series.anchor}" if ratio else f"floor on {trend.series.machine}", "ratio": ratio,
        "text": describe(line), "runs": [point.run.session for point in points], "changes": changes,
        "steps": [step - before for step, before in zip(steps, [0, *steps], strict=False)],
        "widths": [width - before for width, before in zip(widths, [0, *widths], strict=False)],
    }  # fmt: skip


def _half_width(point: SeriesPoint) -> int:
    """Return half the interval's width in steps, 0 if it is unbounded."""
    bounded = 0 < point.low <= point.high < math.inf
    return round(math.log(point.high / point.low) / 2 / _STEP) if bounded else 0


def _runs(points: Sequence[SeriesPoint]) -> dict[str, list[str]]:
    return {
        "time": [when(point) for point in points],
        "commit": [commit(point) for point in points],
        "release": [", ".join(point.run.releases) for point in points],
        "side": [point.run.side for point in points],
        "machine": [point.run.machine for point in points],
    }


def _changes(followed: Sequence[TrendLine]) -> DataGrid:
    rows = []
    for line in followed:
        for one in line.trend.changes:
            ends = [math.exp(one.effect + side * one.margin) for side in (-1, 0, 1)]
            before, at, last = (line.points[max(0, place)] for place in (one.low - 1, one.index, one.high))
            notes = "; ".join(environment_changes(line.points[max(0, one.low - 1) : one.high + 1]))
            rows.append(
                [line.trend.series.case, ends, when(at), commit(at), f"{commit(before)} to {commit(last)}", notes]
            )
    columns = [
        ("case", "case"), ("change", "interval"), ("run", "text"), ("commit", "text"), ("between commits", "text"), ("also changed", "text"),
    ]  # fmt: skip
    caption = "Changes of level: the ratio of the new level to the old one, and the commits between which it happened."
    return DataGrid(caption, columns, rows, sort=(1, True))


def _all(followed: Sequence[TrendLine]) -> DataGrid:
    rows = []
    for line in followed:
        drift = line.trend.drift
        newest = line.points[-1].value if line.points else None
        values = (newest, None) if line.trend.series.metric == RATIO else (None, newest)
        moved = math.exp(drift.effect) if drift else None
        rows.append([line.trend.series.case, line.trend.state, len(line.points), *values, moved, line.trend.release])
    columns = [
        ("case", "case"), ("state", "choice"), ("runs", "number"), ("newest ratio", "ratio"), ("newest floor", "seconds"),
        ("since the release", "heat"), ("release", "text"),
    ]  # fmt: skip
    return DataGrid("All cases. Without a release, the change is since the first run.", columns, rows)
