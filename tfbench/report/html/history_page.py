"""Render the page of a history: what changed first, then any case as a line over its runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tfbench.model import JSON, RATIO, SeriesPoint
from tfbench.report.html.page import (
    DataGrid,
    PageSection,
    case_section,
    number,
    paragraph,
    render_page,
    table_place,
    text,
)
from tfbench.report.trends import TrendLine, change, commit, describe, environment_changes, when
from tfbench.stats.change_points import TrendState
from tfbench.untrusted import printable

RUNS = 100
"""Newest runs of each series on a page."""
_STEP = 1e-3
"""Resolution of values, as a log-ratio."""


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
    contents = list[JSON]()
    for lines in cases:
        followed.append(lines[0])
        contents.append(
            {"name": printable(lines[0].trend.series.case), "series": [_series(one, sessions) for one in lines]}
        )
    numbers = {session: place for place, session in enumerate(sorted(sessions))}
    for content in contents:
        for one in content["series"]:
            one["runs"] = _places([numbers[session] for session in one["runs"]])
    points = [sessions[session] for session in sorted(sessions)]
    data: dict[str, Any] = {"runs": _runs(points)}
    shown = min(followed, key=_gravity, default=None)
    first = printable(shown.trend.series.case) if shown else ""
    one_case = case_section([content["name"] for content in contents], contents, first, data)
    sections = [_overview(followed, points, problems), *_changes(followed, data), one_case, _all(followed, data)]
    counts = Counter(line.trend.state for line in followed)
    subtitle = ", ".join(f"{counts[state]} {state}" for state in TrendState if counts[state])
    return render_page(
        "Performance history", sections, data, scripts=("history.js",), subtitle=f"{runs} runs; {subtitle}"
    )


def _gravity(line: TrendLine) -> int:
    return list(TrendState).index(line.trend.state)


# Data


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
        "label": printable(f"ratio to {trend.series.anchor}" if ratio else f"floor on {trend.series.machine}"),
        "ratio": ratio, "state": str(trend.state), "text": printable(describe(line)), "runs": [point.run.session for point in points],
        "steps": [step - before for step, before in zip(steps, [0, *steps], strict=False)],
        "widths": [width - before for width, before in zip(widths, [0, *widths], strict=False)],
        "changes": changes,
    }  # fmt: skip


def _half_width(point: SeriesPoint) -> int:
    """Return half the interval's width in steps, 0 if it is unbounded."""
    bounded = 0 < point.low <= point.high < math.inf
    return round(math.log(point.high / point.low) / 2 / _STEP) if bounded else 0


def _places(numbers: Sequence[int]) -> list[list[int]]:
    """Return increasing numbers as ranges of first and length."""
    ranges = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    return [[found[0][1], len(found)] for found in (list(one) for _, one in ranges)]


def _runs(points: Sequence[SeriesPoint]) -> Mapping[str, list[str]]:
    return {
        "time": [when(point) for point in points],
        "commit": [printable(commit(point)) for point in points],
        "release": [printable(", ".join(point.run.releases)) for point in points],
        "side": [printable(point.run.side) for point in points],
        "machine": [printable(point.run.machine) for point in points],
    }


# Sections


def _overview(followed: Sequence[TrendLine], points: Sequence[SeriesPoint], problems: Sequence[str]) -> PageSection:
    counts = Counter(line.trend.state for line in followed)
    period = f" Its runs are from {when(points[0])} to {when(points[-1])}." if points else ""
    parts = [
        paragraph(
            f"Cases that are slower than before: {counts[TrendState.SLOWER]}; that drifted without a step: "
            f"{counts[TrendState.DRIFT]}.{period}"
        ),
        paragraph("A case is followed by its ratio to an anchor that raced in the same run, else by its floor."),
    ]
    if notes := environment_changes(points):
        parts.append(paragraph(f"In these runs {'; '.join(notes)}."))
    if problems:
        items = "".join(f"<li>{text(one)}</li>" for one in problems)
        parts.append(f'<p class="warning">{len(problems)} parts of the history cannot be read.</p><ul>{items}</ul>')
    return PageSection("overview", "Overview", "".join(parts))


def _changes(followed: Sequence[TrendLine], data: dict[str, Any]) -> list[PageSection]:
    rows = []
    for line in followed:
        for one in line.trend.changes:
            ends = [math.exp(one.effect + side * one.margin) for side in (-1, 0, 1)]
            before, at, last = (line.points[max(0, place)] for place in (one.low - 1, one.index, one.high))
            notes = "; ".join(environment_changes(line.points[max(0, one.low - 1) : one.high + 1]))
            rows.append(
                [line.trend.series.case, ends, when(at), commit(at), f"{commit(before)} to {commit(last)}", notes]
            )
    if not rows:
        return [PageSection("changes", "Changes", paragraph("No level changed since it was accepted."))]
    columns = [
        ("case", "case"), ("change", "interval"), ("run", "text"), ("commit", "text"), ("between commits", "text"), ("also changed", "text"),
    ]  # fmt: skip
    caption = "Changes of level: the ratio of the new level to the old one, and the commits between which it happened."
    data["changes"] = DataGrid(caption, columns, rows, sort=(1, True)).as_json()
    return [PageSection("changes", "Changes", table_place("changes"))]


def _all(followed: Sequence[TrendLine], data: dict[str, Any]) -> PageSection:
    rows = []
    for line in followed:
        moved = line.trend.drift
        newest = line.points[-1].value if line.points else None
        is_ratio = line.trend.series.metric == RATIO
        rows.append([
            line.trend.series.case, str(line.trend.state), len(line.points), newest if is_ratio else None,
            None if is_ratio else newest, number(math.exp(moved.effect)) if moved else None, line.trend.release,
        ])  # fmt: skip
    columns = [
        ("case", "case"), ("state", "text"), ("runs", "number"), ("newest ratio", "ratio"), ("newest floor", "seconds"),
        ("since the release", "heat"), ("release", "text"),
    ]  # fmt: skip
    caption = "All cases. Without a release, the change is since the first run."
    data["all"] = DataGrid(caption, columns, rows).as_json()
    return PageSection("all", "All cases", table_place("all"))
