"""Find change points of a history, and say what they mean.

This is the window-limited generalized likelihood ratio test (Lai 1995, J. R. Statist. Soc. B 57; Siegmund & Venkatraman
1995, Ann. Statist. 23), see docs/history.md. Later runs move a change point by refinement only. The position's
confidence set holds the splits whose likelihood is near the best one's (Siegmund 1988, Ann. Statist. 16).

Values are natural logarithms, one per run, in time order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from tfbench.model import RATIO, AcceptedChange, Series, SeriesPoint, Word
from tfbench.stats.interval import Array, Floats

HISTORY_EFFECT = 0.01
"""Smallest change of level that a history reports: the minimum effect of a single run."""
HISTORY_ALPHA = 3e-6
"""Level of the test of each position of a change after each run. Positions and runs are many: simulated with the noise
of recorded races, it leads to fewer than one false change in 1,000 runs of a series."""
HISTORY_PRIOR = 10.0
"""Weight of `HISTORY_DEVIATION`, in runs. The series' own scatter outweighs it from then on."""
HISTORY_DEVIATION = 0.005
"""Deviation between runs of the same code to expect, as a log-ratio: thirteen workloads in forty races each moved by
0.2 to 0.6%."""
HISTORY_CLIP = 2.0
"""A run further from the runs around it than this many deviations counts as if it were there. A race has hundreds of
rounds and clips later, at `clip`; the newest level of a history has four runs."""
HISTORY_WINDOW = 200
"""Newest runs that a new level is compared with. Older ones were measured in another environment."""
HISTORY_BEFORE = 8
"""Fewest runs before a change. With fewer, their deviation is unknown."""
HISTORY_AFTER = 4
"""Fewest runs of a new level. Two outliers in succession are then no change."""
HISTORY_LAG = 50
"""Most runs of a new level before it is found. Steps of the minimum effect need ten."""
HISTORY_DRIFT = 0.02
"""Change since the last release that is reported although no step was: the tolerance of a single run."""

# Find the runs of a history in which the level of a series changed


_MEDIAN_DIFFERENCE = 1 / (math.sqrt(2) * float(special.ndtri(0.75)))
"""Deviation of a normal value by the median absolute difference of two."""
_NEAR = 20
"""Differences whose median is the scale of outliers."""
_SIDE = 3
"""Runs on either side of a run whose median is the centre of outliers. Four runs of a new level are the majority."""
_EFFICIENCY = 0.605
"""Degrees of freedom that each difference adds to a deviation estimated from the differences' mean."""
CONFIDENCE = 0.95
_SET = -2 * math.log(1 - math.sqrt(CONFIDENCE))
"""Drop of twice the log-likelihood within which a position belongs to the confidence set: on either side of a small
step, the largest excess of the log-likelihood over its value at the true position is exponential."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level between two runs. Positions count runs from 0."""

    index: int
    """First run of the new level."""
    low: int
    high: int
    """First and last position of the 95% confidence set."""
    effect: float
    """Difference of the levels, as a log-ratio: positive if slower."""
    margin: float
    """Half-width of the effect's 95% interval."""


def change_points(values: Floats, effect: float = 0.0) -> tuple[ChangePoint, ...]:
    """Return the change points of a series of log-ratios or log-seconds, oldest first.

    ``effect`` is the smallest difference of levels that counts, if larger than `HISTORY_EFFECT`.
    """
    x = np.asarray(values, float)
    least = max(effect, HISTORY_EFFECT)
    starts = [0]
    while (split := _first_alarm(x[starts[-1] :], least)) is not None:
        starts.append(starts[-1] + split)
    ends = [*starts, len(x)][2:]
    return tuple(_located(x[before:after], before) for before, after in zip(starts, ends, strict=False))


@cache
def _limits() -> Array:
    """Return the critical value of Student's t by the number of runs before the change."""
    before = np.arange(HISTORY_WINDOW + 1)
    return np.asarray(special.stdtrit(HISTORY_PRIOR + np.maximum(0, before - 1), 1 - HISTORY_ALPHA / 2))


def _first_alarm(x: Array, least: float) -> int | None:
    """Return the split of the first alarm; ``None`` without one."""
    fewest, shortest = HISTORY_BEFORE, HISTORY_AFTER
    if len(x) < fewest + shortest:
        return None
    looks = np.arange(fewest + shortest - 1, len(x))
    after = np.arange(shortest, HISTORY_LAG + 1)
    shift, spread, before = _statistics(x, looks, after)
    beyond = np.abs(shift) / spread / _limits()[before]
    beyond[np.abs(shift) < least] = 0.0
    (alarms,) = np.nonzero(np.nanmax(beyond, axis=1, initial=0.0) > 1)
    if not len(alarms):
        return None
    first = alarms[0]
    return int(looks[first]) + 1 - int(after[np.nanargmax(beyond[first])])


def _statistics(x: Array, looks: Array, after: Array) -> tuple[Array, Array, Array]:
    """Compare the newest ``after`` runs with the runs before them, at each look.

    Returns:
        Difference of means, NaN where too few runs come before; its standard error; and the number of runs before. All
        have the shape (looks, after).
    """
    scale, centre = _scales(x), _centres(x)
    clean = _clipped(x, centre, scale)
    total, squares = (np.concatenate([[0.0], np.cumsum(power)]) for power in (clean, clean**2))
    # At a look, no later run is known: the newest ones have the centre of the one before them.
    ends = [_clipped(x[looks - back], centre[looks - _SIDE], scale[looks]) for back in range(_SIDE)]
    newest = np.sum(ends, axis=0)[:, None] + total[looks - _SIDE + 1][:, None]
    split = looks[:, None] + 1 - after
    first = np.maximum(0, looks + 1 - HISTORY_WINDOW)[:, None]
    enough = split - first >= HISTORY_BEFORE
    split = np.where(enough, split, first + 1)
    before = split - first
    earlier = (total[split] - total[first]) / before
    shift = np.where(enough, (newest - total[split]) / after - earlier, np.nan)
    scatter = np.maximum(0.0, squares[split] - squares[first] - before * earlier**2)
    freedom = HISTORY_PRIOR + before - 1
    variance = (HISTORY_PRIOR * HISTORY_DEVIATION**2 + scatter) / freedom
    return shift, np.sqrt(variance * (1 / after + 1 / before)), before


def _scales(x: Array) -> Array:
    """Return the deviation of a run from the differences up to it, at first with the policy's as prior."""
    known = np.full(_NEAR, HISTORY_DEVIATION / _MEDIAN_DIFFERENCE)
    near = sliding_window_view(np.concatenate([known, np.abs(np.diff(x))]), _NEAR)
    return np.asarray(np.maximum(np.median(near, axis=1) * _MEDIAN_DIFFERENCE, HISTORY_DEVIATION))


def _centres(x: Array) -> Array:
    """Return the median of the seven runs around each run, or of the first and last seven near the ends."""
    if len(x) <= 2 * _SIDE:
        return np.full(len(x), np.median(x) if len(x) else 0.0)
    return np.pad(np.median(sliding_window_view(x, 2 * _SIDE + 1), axis=1), _SIDE, mode="edge")


def _clipped(x: Array, centre: Array, scale: Array) -> Array:
    """Limit outliers (Hampel 1974, J. Am. Statist. Assoc. 69): a single odd run must not decide."""
    return np.asarray(np.clip(x, centre - HISTORY_CLIP * scale, centre + HISTORY_CLIP * scale))


def _located(x: Array, offset: int) -> ChangePoint:
    """Locate the one change of a segment, given that there is one."""
    clean = _clipped(x, _centres(x), _scales(x))
    splits = np.arange(1, len(x))
    total, squares = np.cumsum(clean), float(np.sum(clean**2))
    left, right = total[splits - 1] / splits, (total[-1] - total[splits - 1]) / (len(x) - splits)
    weight = splits * (len(x) - splits) / len(x)
    explained = weight * (right - left) ** 2
    best = int(np.argmax(explained))
    freedom = HISTORY_PRIOR + len(x) - 2
    scatter = max(0.0, squares - total[-1] ** 2 / len(x) - float(explained[best]))
    variance = (HISTORY_PRIOR * HISTORY_DEVIATION**2 + scatter) / freedom
    inside = splits[explained >= explained[best] - _SET * variance]
    margin = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance / weight[best])
    low, at, high = (offset + int(index) for index in (inside[0], splits[best], inside[-1]))
    return ChangePoint(at, low, high, float(right[best] - left[best]), margin)


@dataclass(frozen=True, slots=True)
class Drift:
    """The change of a level between two stretches of runs."""

    effect: float
    """Log-ratio: positive if slower."""
    margin: float
    """Half-width of its interval, at the level of the history's test."""


def drift(values: Floats, reference: slice) -> Drift:
    """Compare the newest runs of a series with some earlier ones, at least one, by the scatter of successive runs."""
    x = np.asarray(values, float)
    clean = _clipped(x, _centres(x), _scales(x))
    before, now = clean[reference], clean[-HISTORY_AFTER:]
    # A drift does not widen the differences of successive runs. Their mean is 2 / sqrt(pi) deviations.
    differences = np.abs(np.diff(clean)) * math.sqrt(math.pi) / 2
    known = _EFFICIENCY * len(differences)
    freedom = HISTORY_PRIOR + known
    scatter = known * float(np.mean(differences)) ** 2 if len(differences) else 0.0
    variance = (HISTORY_PRIOR * HISTORY_DEVIATION**2 + scatter) / freedom
    critical = float(special.stdtrit(freedom, 1 - HISTORY_ALPHA / 2))
    margin = critical * math.sqrt(variance * (1 / len(before) + 1 / len(now)))
    return Drift(float(now.mean() - before.mean()), margin)


def half_widths(intervals: Sequence[tuple[float, float]]) -> float:
    """Return the median half-width of runs' intervals, as log-ratios; 0 without a bounded one."""
    margins = [(math.log(high) - math.log(low)) / 2 for low, high in intervals if 0 < low <= high < math.inf]
    return float(np.median(margins)) if margins else 0.0


# What a series of a history shows since its last accepted change


_STEP = 2 / 3
"""Share of a drift that one step must have to explain it."""
_AROUND = 2
"""Runs on either side of a release whose mean is its level."""


class TrendState(Word):
    """What a series shows, the gravest first."""

    SLOWER = "slower"
    DRIFT = "drift"
    FASTER = "faster"
    STEADY = "steady"
    SHORT = "too few runs"


@dataclass(frozen=True, slots=True)
class Trend:
    """A series and what it shows since its window started."""

    series: Series
    start: int
    """First run of the window: after the last accepted change, or 0."""
    changes: tuple[ChangePoint, ...]
    """Of the window; positions count all runs of the series."""
    since: int | None
    """The run of the last release in the window, else the window's first run; ``None`` with too few runs."""
    release: str
    drift: Drift | None
    state: TrendState

    @property
    def points(self) -> tuple[SeriesPoint, ...]:
        """The runs of the series."""
        return self.series.points


def judge(series: Series, accepted: Sequence[AcceptedChange]) -> Trend:
    """Find the changes of a series since its last accepted one."""
    points = series.points
    restart = max((acceptance.session for acceptance in accepted), default="")
    start = next((index for index, point in enumerate(points) if point.run.session >= restart), len(points))
    window = points[start:]
    values = np.log([point.value for point in window])
    least = half_widths([(point.low, point.high) for point in window]) / 2 if series.metric == RATIO else 0.0
    # Later runs may show that the level hardly changed.
    fence = max(least, HISTORY_EFFECT) / 2
    kept = [point for point in change_points(values, least) if abs(point.effect) >= fence]
    changes = tuple(
        replace(point, **{name: getattr(point, name) + start for name in ("index", "low", "high")}) for point in kept
    )
    empty = Trend(series, start, changes, None, "", None, TrendState.SHORT)
    if len(window) < HISTORY_BEFORE + HISTORY_AFTER:
        return empty
    marked = [index for index, point in enumerate(window[:-HISTORY_AFTER]) if point.run.releases]
    since = marked[-1] if marked else 0
    # The release's level is that of the runs around it, between the changes on either side.
    first = max((point.index for point in kept if point.index <= since), default=0)
    last = min((point.index for point in kept if point.index > since), default=len(window) - HISTORY_AFTER)
    around = slice(max(first, since - _AROUND), max(since + 1, min(last, since + _AROUND + 1)))
    moved = drift(values, around)
    steepest = max((point.effect for point in kept if point.index > since), default=0.0)
    drifted = moved.effect >= HISTORY_DRIFT and moved.effect > moved.margin
    if drifted and (steepest < _STEP * moved.effect or kept[-1].effect < 0):
        state = TrendState.DRIFT
    elif kept:
        state = TrendState.SLOWER if kept[-1].effect > 0 else TrendState.FASTER
    else:
        state = TrendState.STEADY
    release = window[since].run.releases[0] if marked else ""
    return replace(empty, since=start + since, release=release, drift=moved, state=state)
