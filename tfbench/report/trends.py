"""Follow the cases of a history: which are slower, at once or by drift since the last release.

Trends are rendered for the terminal, and as a page: what changed first, then any case as a line over its runs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.errors import HistoryError
from tfbench.model import JSON, RATIO, AcceptedChange, Series, SeriesPoint, short_name
from tfbench.model.formats import uncollected
from tfbench.model.words import counted
from tfbench.report.page import DataGrid, case_data, render_page
from tfbench.report.screen import add_row, break_name, folded, table
from tfbench.stats.change_points import Trend, TrendState, judge
from tfbench.storage.baselines import now
from tfbench.storage.history import History, series_of
from tfbench.untrusted import plural, some

COLOURS = {
    TrendState.SLOWER: "bold red", TrendState.DRIFT: "red", TrendState.FASTER: "green", TrendState.STEADY: "",
    TrendState.SHORT: "dim",
}  # fmt: skip
SHOWN = (TrendState.SLOWER, TrendState.DRIFT, TrendState.FASTER)
"""States of which each case is shown in an overview."""
_COMMIT = 10


def render_overview(trends: Sequence[Trend], runs: int, width: int) -> RenderableType:
    """Render each case that is not steady, the gravest first, and the number of the others."""
    parts = [Text(f"history: {plural(runs, 'run')}, {plural(len(trends), 'case')}", "bold")]
    shown = [trend for trend in trends if trend.state in SHOWN]
    for trend in sorted(shown, key=_gravity):
        name = break_name(short_name(trend.series.case), max(20, width - 1))
        parts += [Text(f"\n{name}"), Text(f"  {trend.state}: {describe(trend)}", COLOURS[trend.state])]
    summary = _counted(trends)
    return Group(*parts, Text(f"\n{summary}" if shown else summary))


def _counted(trends: Sequence[Trend]) -> str:
    counts = Counter(trend.state for trend in trends)
    return counted({str(state): counts[state] for state in TrendState})


def _gravity(trend: Trend) -> tuple[int, float]:
    return list(TrendState).index(trend.state), -abs(trend.changes[-1].effect if trend.changes else 0.0)


def describe(trend: Trend) -> str:
    """Say in one sentence what a trend shows."""
    points = trend.points
    if trend.state is TrendState.DRIFT:
        assert trend.drift is not None
        largest = max((step.effect for step in trend.changes), default=None)
        steps = "without a step" if largest is None else f"in steps of at most {change(largest)}"
        return f"{change(trend.drift.effect)} since {_reference(trend)}, {steps}"
    if trend.state is TrendState.SHORT:
        return f"too few to tell since {commit(points[trend.start])}" if trend.start else "too few to tell"
    if not trend.changes:
        return "steady"
    last = trend.changes[-1]
    text = f"{change(last.effect)} with {commit(points[last.index])}, {plural(len(points) - last.index, 'run')} ago"
    return f"{text}; {change(trend.drift.effect)} since {_reference(trend)}" if trend.drift else text


def _reference(trend: Trend) -> str:
    """Name the run that the drift refers to: the last release, or the first run of the window."""
    return trend.release or commit(trend.points[trend.since or 0])


def change(effect: float) -> str:
    """Format a log-ratio as a signed percentage."""
    return f"{math.expm1(effect):+.1%}"


def commit(point: SeriesPoint) -> str:
    """Return the short commit of a run, marked if there were uncommitted changes."""
    return f"{point.run.commit[:_COMMIT] or 'unknown'}{'+' if point.run.dirty else ''}"


# One case


def render_case(trends: Sequence[Trend]) -> RenderableType:
    """Render all series of a case, each with its changes."""
    parts: list[RenderableType] = [Text(trends[0].series.case, "bold")]
    for trend in trends:
        runs = plural(len(trend.points), "run")
        parts.append(Text.assemble(f"\n{_label(trend)}, {runs}: ", (describe(trend), COLOURS[trend.state])))
        if trend.changes:
            parts.append(made := table("changes", *folded("first run", "commit", "change", "first run between")))
            for (low, effect, high), at, between, notes in _changes(trend):
                size = f"{change(effect)} ({change(low)} to {change(high)})"
                add_row(made, when(at), commit(at), size, "; ".join([" and ".join(between), *notes]))
    return Group(*parts)


def _label(trend: Trend) -> str:
    series = trend.series
    return f"ratio to {series.anchor}" if series.metric == RATIO else f"floor on {series.machine}"


def _changes(trend: Trend) -> Iterator[tuple[list[float], SeriesPoint, list[str], list[str]]]:
    """Yield each change: its effect between both ends of the interval, its first run, the commits it lies between, and notes."""
    for step in trend.changes:
        around = trend.points[max(0, step.low - 1) : step.high + 1]
        effects = [step.effect + side * step.margin for side in (-1, 0, 1)]
        yield effects, trend.points[step.index], [commit(around[0]), commit(around[-1])], environment_changes(around)


def environment_changes(points: Sequence[SeriesPoint]) -> list[str]:
    """Name changes of version and machine among successive runs, which may explain a change of level."""
    known = {"version": [point.run.side for point in points], "machine": [point.run.machine for point in points]}
    steps = {what: [value for value, _ in groupby(values)] for what, values in known.items()}
    return [f"the {what} changed: {' → '.join(values)}" for what, values in steps.items() if len(values) > 1]


def when(point: SeriesPoint) -> str:
    """Return the date and time of a run, to the minute."""
    return point.run.session[:16].replace("T", " ")


# The page of a history


RUNS = 100
"""Newest runs of each series on a page."""
_SECTIONS = {"overview": "Overview", "changes": "Changes", "case": "One case", "all": "All cases"}


def render_history(cases: Iterable[Sequence[Trend]], runs: int, problems: Sequence[str]) -> str:
    """Render the page of a history. Raises `UsageError` if the chart library is not installed.

    Args:
        cases: The series of each case, the followed one first.
        problems: One line per unreadable part of its files.
    """
    every = [list(trends) for trends in cases]
    followed = [trends[0] for trends in every]
    gravest = min(followed, key=_gravity, default=None)
    contents = [{"parts": [], "charts": list(map(_chart, trends))} for trends in every]
    shown = case_data([trend.series.case for trend in followed], contents, gravest.series.case if gravest else "")
    changes = _changes_grid(followed)
    return render_page(
        "history.html", _SECTIONS, {"changes": changes, "all": _cases_grid(followed), **shown},
        scripts=("history.js",), title="Performance history", subtitle=f"{plural(runs, 'run')}; {_counted(followed)}",
        changed=bool(changes.rows), problems=problems,
    )  # fmt: skip


def _chart(trend: Trend) -> JSON:
    """Return the newest runs of a series as the script of the page draws them."""
    points, label, ratio = trend.points[-RUNS:], _label(trend), trend.series.metric == RATIO
    offset = len(trend.points) - len(points)
    lines: list[tuple[str, float, str]] = [
        (f"release {', '.join(one.run.releases)}", at, "quiet") for at, one in enumerate(points, 1) if one.run.releases
    ]
    lines += [
        (f"{change(step.effect)} with {commit(trend.points[step.index])}", step.index - offset + 0.5, "bad")
        for step in trend.changes
        if step.index >= offset
    ]
    told = [(when(one), commit(one), ", ".join(one.run.releases), one.run.side, one.run.machine) for one in points]
    return {
        "caption": f"{label}: {describe(trend)}. Dashed lines across are changes of level and releases.", "height": 320,
        "series": [{
            "name": label, "x": list(range(1, len(points) + 1)), "y": [_rounded(point.value) for point in points],
            "low": [_rounded(point.low) for point in points if ratio], "high": [_rounded(point.high) for point in points if ratio],
            "style": "points", "colour": "first", "labels": [", ".join(filter(None, words)) for words in told],
        }],
        "limits": [{"name": name, "value": at, "axis": "x", "colour": colour} for name, at, colour in lines],
        "x": {"label": "run", "unit": "", "scale": "linear"},
        "y": {"label": "ratio" if ratio else "floor", "unit": "ratio" if ratio else "s", "scale": "log"},
    }  # fmt: skip


def _rounded(value: float) -> float | None:
    """Round to what a chart shows; ``None`` for the open end of an interval."""
    return float(f"{value:.4g}") if 0 < value < math.inf else None


def _changes_grid(followed: Sequence[Trend]) -> DataGrid:
    rows = [
        [trend.series.case, list(map(math.exp, effects)), when(at), commit(at), " to ".join(between), "; ".join(notes)]
        for trend in followed
        for effects, at, between, notes in _changes(trend)
    ]
    columns = [
        ("case", "case"), ("change", "interval"), ("run", "text"), ("commit", "text"), ("between commits", "text"), ("also changed", "text"),
    ]  # fmt: skip
    caption = "Changes of level: the ratio of the new level to the old one, and the commits between which it happened."
    return DataGrid(caption, columns, rows, sort=(1, True))


def _cases_grid(followed: Sequence[Trend]) -> DataGrid:
    rows = []
    for trend in followed:
        drift = trend.drift
        newest = trend.points[-1].value if trend.points else None
        values = (newest, None) if trend.series.metric == RATIO else (None, newest)
        moved = math.exp(drift.effect) if drift else None
        rows.append([trend.series.case, trend.state, len(trend.points), *values, moved, trend.release])
    columns = [
        ("case", "case"), ("state", "choice"), ("runs", "number"), ("newest ratio", "ratio"), ("newest floor", "seconds"),
        ("since the release", "heat"), ("release", "text"),
    ]  # fmt: skip
    return DataGrid("All cases. Without a release, the change is since the first run.", columns, rows)


# Judge all series of a history


FOUND, UNREADABLE = 1, 5
"""Exit codes: a case is slower than before, or a file cannot be read."""


class Trends:
    """The trends of a history. A trend is computed when it is asked for.

    Raises `OSError` if the folder cannot be listed.

    Args:
        folder: Its folder.
        about: A part of the names of the cases that matter, so that others need not be read; empty for all.
    """

    def __init__(self, folder: Path, about: str = "") -> None:
        self.history = History(folder)
        with uncollected():
            content = self.history.content(about)
            runs = content.once()
            every = series_of(runs)
        self.problems = content.problems
        self.runs = len(runs)
        self._by_case: dict[str, list[Series]] = defaultdict(list)
        for series in every:
            self._by_case[series.case].append(series)
        self._accepted: dict[str, dict[AcceptedChange, None]] = defaultdict(dict)
        """Case -> its accepted changes, each once."""
        for change in content.accepted:
            self._accepted[change.case][change] = None
        self._judged: dict[int, Trend] = {}

    def _judge(self, series: Series) -> Trend:
        if id(series) not in self._judged:
            accepted = tuple(self._accepted[series.case])
            self._judged[id(series)] = judge(series, accepted)
        return self._judged[id(series)]

    @property
    def followed(self) -> list[Trend]:
        """One trend per case: relative to the newest anchor, or the floor on the newest machine without one.

        A new anchor is followed as soon as it has enough runs. Until then, the one before it is.
        """
        return [self._followed(case) for case in self._by_case]

    def _followed(self, case: str) -> Trend:
        first, *others = self._by_case[case]
        alike = (series for series in (first, *others) if series.metric == first.metric)
        enough = (trend for trend in map(self._judge, alike) if trend.state is not TrendState.SHORT)
        return next(enough, self._judge(first))

    def exit_code(self, name: str = "") -> int:
        """Return 1 if a case that the name selects is slower or drifted, else 5 if a file is unreadable, else 0."""
        shown = self.named(name) if name else self.followed
        if any(trend.state in (TrendState.SLOWER, TrendState.DRIFT) for trend in shown):
            return FOUND
        return UNREADABLE if self.problems else 0

    def named(self, text: str) -> list[Trend]:
        """Return the followed trends of the cases that a name selects: the whole name, its end, or a part of it.

        Raises `HistoryError` if there is none.
        """
        for matches in (str.__eq__, str.endswith, str.__contains__):
            if cases := [case for case in self._by_case if matches(case, text)]:
                return list(map(self._followed, cases))
        folder = self.history.folder
        if not (self.runs and text):
            raise HistoryError(f"no run in {folder}; add one with pytest --benchmark --against SPEC --history {folder}")
        raise HistoryError(f"no case in {folder} has {text!r} in its name; `tfbench history` lists all")

    def of_case(self, case: str) -> list[Trend]:
        """Return every trend of a case, the followed one first."""
        followed = self._followed(case)
        return [followed, *(trend for trend in map(self._judge, self._by_case[case]) if trend is not followed)]

    def accept(self, name: str, reason: str) -> AcceptedChange:
        """Accept the newest change of a case: its window restarts with the first run of the new level.

        After a drift, it restarts with the newest run.
        Raises `HistoryError` if the name selects no case, or several, or its case has not changed.
        """
        names = self.named(name)
        if len(names) > 1:
            cases = some([trend.series.case for trend in names], 3)
            raise HistoryError(f"{name!r} names {len(names)} cases: {cases}")
        (trend,) = names
        if trend.state not in SHOWN:
            raise HistoryError(f"{trend.series.case} has no change to accept, its state is: {trend.state}")
        first = -1 if trend.state is TrendState.DRIFT else trend.changes[-1].index
        accepted = AcceptedChange(trend.series.case, reason, now(), trend.points[first].run.session)
        self.history.accept(accepted)
        return accepted
