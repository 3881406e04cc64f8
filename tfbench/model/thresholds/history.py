"""The thresholds of histories, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HistoryThresholds:
    """What counts as a change in the history of a case. Effects and deviations are log-ratios of runs."""

    history_effect: float = 0.01
    """Smallest change of level that a history reports: the minimum effect of a single run."""
    history_alpha: float = 3e-6
    """Level of the test of each position of a change after each run. Positions and runs are many: simulated with the
    noise of recorded races, it leads to fewer than one false change in 1,000 runs of a series."""
    history_prior: float = 10.0
    """Weight of `history_deviation`, in runs. The series' own scatter outweighs it from then on."""
    history_deviation: float = 0.005
    """Deviation between runs of the same code to expect, as a log-ratio: thirteen workloads in forty races each moved by
    0.2 to 0.6%."""
    history_clip: float = 2.0
    """A run further from the runs around it than this many deviations counts as if it were there. A race has hundreds of
    rounds and clips later, at `clip`; the newest level of a history has four runs."""
    history_window: int = 200
    """Newest runs that a new level is compared with. Older ones were measured in another environment."""
    history_before: int = 8
    """Fewest runs before a change. With fewer, their deviation is unknown."""
    history_after: int = 4
    """Fewest runs of a new level. Two outliers in succession are then no change."""
    history_lag: int = 50
    """Most runs of a new level before it is found. Steps of the minimum effect need ten."""
    history_drift: float = 0.02
    """Change since the last release that is reported although no step was: the tolerance of a single run."""
