"""What a series of a history shows since its last accepted change."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from tfbench.model import JSON
from tfbench.model.thresholds.history import HistoryThresholds
from tfbench.stats.change_points import ChangePoint, Drift, change_points, drift, half_widths
from tfbench.storage.history import AcceptedChange
from tfbench.storage.history_index import TIME, IndexedSeries, SeriesPoint

_STEP = 2 / 3
"""Share of a drift that one step must have to explain it."""
_AROUND = 2
"""Runs on either side of a release whose mean is its level."""


class TrendState(str, enum.Enum):
    """What a series shows, the gravest first."""

    SLOWER = "slower"
    DRIFT = "drift"
    FASTER = "faster"
    STEADY = "steady"
    SHORT = "too few runs"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Trend:
    """A series and what it shows since its window started."""

    series: IndexedSeries
    runs: int
    """Number of its runs."""
    start: int
    """First run of the window: after the last accepted change, or 0."""
    changes: tuple[ChangePoint, ...]
    """Of the window; positions count all runs of the series."""
    since: int | None
    """The run of the last release in the window, else the window's first run; ``None`` with too few runs."""
    release: str
    drift: Drift | None
    state: TrendState

    def as_json(self) -> JSON:
        """Return everything but the series."""
        content = {name: getattr(self, name) for name in ("runs", "start", "since", "release")}
        changes = [asdict(change) for change in self.changes]
        return {**content, "state": self.state.value, "changes": changes, "drift": self.drift and asdict(self.drift)}

    @staticmethod
    def of_json(series: IndexedSeries, content: JSON) -> Trend:
        """Parse the result of `as_json`, which only the index of this version holds."""
        drifted = Drift(**content["drift"]) if content["drift"] else None
        changes = tuple(ChangePoint(**change) for change in content["changes"])
        kept = {name: content[name] for name in ("runs", "start", "since", "release")}
        return Trend(series, changes=changes, drift=drifted, state=TrendState(content["state"]), **kept)

    @property
    def open_change(self) -> ChangePoint | None:
        """The last change, if it made the case slower."""
        return self.changes[-1] if self.changes and self.state is TrendState.SLOWER else None


def judge(
    series: IndexedSeries, points: Sequence[SeriesPoint], accepted: Sequence[AcceptedChange], policy: HistoryThresholds
) -> Trend:
    """Find the changes of a series since its last accepted one."""
    restart = max((one.session for one in accepted), default="")
    start = next((index for index, point in enumerate(points) if point.run.session >= restart), len(points))
    window = points[start:]
    values = np.log([point.value for point in window])
    least = half_widths([(point.low, point.high) for point in window]) / 2 if series.metric == TIME else 0.0
    # Later runs may show that the level hardly changed.
    fence = max(least, policy.history_effect) / 2
    found = [one for one in change_points(values, policy, least) if abs(one.effect) >= fence]
    changes = tuple(
        replace(one, **{name: getattr(one, name) + start for name in ("index", "low", "high", "found")})
        for one in found
    )
    empty = Trend(series, len(points), start, changes, None, "", None, TrendState.SHORT)
    if len(window) < policy.history_before + policy.history_after:
        return empty
    marked = [index for index, point in enumerate(window[: -policy.history_after]) if point.run.releases]
    since = marked[-1] if marked else 0
    # The release's level is that of the runs around it, between the changes on either side.
    first = max((one.index for one in found if one.index <= since), default=0)
    last = min((one.index for one in found if one.index > since), default=len(window) - policy.history_after)
    around = slice(max(first, since - _AROUND), max(since + 1, min(last, since + _AROUND + 1)))
    moved = drift(values, around, policy)
    steepest = max((one.effect for one in found if one.index > since), default=0.0)
    drifted = moved.effect > 0 and moved.exceeds(policy.history_drift)
    if drifted and (steepest < _STEP * moved.effect or found[-1].effect < 0):
        state = TrendState.DRIFT
    elif found:
        state = TrendState.SLOWER if found[-1].effect > 0 else TrendState.FASTER
    else:
        state = TrendState.STEADY
    release = window[since].run.releases[0] if marked else ""
    return replace(empty, since=start + since, release=release, drift=moved, state=state)
