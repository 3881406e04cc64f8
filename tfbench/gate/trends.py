"""Judge the series of a history: change points, drift since the last release, and the exit code of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tfbench import __version__
from tfbench.errors import HistoryError
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.stats.change_points import Trend, TrendState, judge
from tfbench.storage.baselines import now
from tfbench.storage.history import AcceptedChange
from tfbench.storage.history_index import HistoryIndex, IndexedSeries, SeriesPoint, json_digest
from tfbench.untrusted import some

FOUND, UNREADABLE = 1, 5
"""Exit codes: a case is slower than before, or a file cannot be read."""


class Trends:
    """The trends of a history.

    Args:
        place: Its folder, or the URL of its database.
        rebuild: Whether to read all files again, instead of the new ones.
    """

    def __init__(self, place: str | Path, policy: Policy, *, rebuild: bool = False) -> None:
        self.index = HistoryIndex(place, rebuild=rebuild)
        self._policy = policy
        key = json_digest({"version": __version__, "policy": policy.as_json()})
        known, new = self.index.trends(key), dict[int, JSON]()
        self.all: list[Trend] = []
        """Every series, see `HistoryIndex.series`."""
        for series in self.index.series():
            if series.id not in known:
                known[series.id] = new[series.id] = self._judge(series).as_json()
            self.all.append(Trend.of_json(series, known[series.id]))
        if new:
            self.index.keep_trends(key, new)
        self.problems = self.index.problems()
        self._by_case: dict[str, list[Trend]] = defaultdict(list)
        for trend in self.all:
            self._by_case[trend.series.case].append(trend)
        self._followed = {case: _followed(trends) for case, trends in self._by_case.items()}

    def _judge(self, series: IndexedSeries) -> Trend:
        return judge(series, self.index.points(series), self.index.accepted(series.case), self._policy)

    @property
    def followed(self) -> list[Trend]:
        """One trend per case: relative to the newest anchor, or the floor on the newest machine without one.

        A new anchor is followed as soon as it has enough runs. Until then, the one before it is.
        """
        return list(self._followed.values())

    @property
    def exit_code(self) -> int:
        """1 if a case is slower or drifted, else 5 if a file is unreadable, else 0."""
        if any(trend.state in (TrendState.SLOWER, TrendState.DRIFT) for trend in self.followed):
            return FOUND
        return UNREADABLE if self.problems else 0

    def named(self, text: str) -> list[Trend]:
        """Return the followed trends of the cases that a name selects: the whole name, its end, or a part of it.

        Raises:
            HistoryError: There is none.
        """
        cases = self.followed
        for matches in (str.__eq__, str.endswith, str.__contains__):
            if found := [trend for trend in cases if matches(trend.series.case, text)]:
                return found
        folder = self.index.history.place
        if not cases:
            raise HistoryError(f"no run in {folder}; add one with pytest --benchmark --against SPEC --history {folder}")
        raise HistoryError(f"no case in {folder} has {text!r} in its name; `tfbench history` lists all")

    def of_case(self, case: str) -> list[Trend]:
        """Return every trend of a case, the followed one first."""
        followed = self._followed[case]
        return [followed, *(trend for trend in self._by_case[case] if trend is not followed)]

    def points(self, trend: Trend) -> list[SeriesPoint]:
        """Return the points of a trend in time order."""
        return self.index.points(trend.series)

    def accept(self, name: str, reason: str) -> AcceptedChange:
        """Accept the newest change of a case: its window restarts with the first run of the new level.

        Without a change point, as after a drift, it restarts with the newest run.

        Raises:
            HistoryError: The name selects no case, or several.
        """
        found = self.named(name)
        if len(found) > 1:
            cases = some([trend.series.case for trend in found], 3)
            raise HistoryError(f"{name!r} names {len(found)} cases: {cases}")
        (trend,) = found
        points = self.points(trend)
        first = trend.open_change.index if trend.open_change else len(points) - 1
        accepted = AcceptedChange(trend.series.case, reason, now(), points[first].run.session)
        self.index.history.accept(accepted)
        return accepted

    def close(self) -> None:
        """Close the index."""
        self.index.close()


def _followed(trends: Sequence[Trend]) -> Trend:
    """Choose among the trends of a case; the first has the newest anchor, if any."""
    alike = (trend for trend in trends if trend.series.metric == trends[0].series.metric)
    return next((trend for trend in alike if trend.state is not TrendState.SHORT), trends[0])
