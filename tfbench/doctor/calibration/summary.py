"""Summarize trials as rates with intervals. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from statistics import median

from scipy.special import betaincinv

from tfbench.doctor.calibration.journal import CalibrationTrial
from tfbench.model import Outcome, Rate, RateRow

CONFIDENCE = 0.95
DETECTABLE = 0.95
"""A slowdown counts as detectable if at least this share of its trials has regressed."""

_CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
"""Outcomes that are false on unchanged code."""


def rate(hits: int, trials: int) -> Rate:
    """Compute a rate with its exact binomial interval (Clopper and Pearson 1934, Biometrika 26)."""
    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return Rate(hits, trials, low, high)


def tally(name: str, method: str, trials: Sequence[CalibrationTrial]) -> RateRow:
    """Summarize trials of one method in a row."""
    same = [trial for trial in trials if trial.slowdown == 0]
    slowdowns = sorted({trial.slowdown for trial in trials if trial.slowdown > 0})
    slowed = {slowdown: [t for t in trials if t.slowdown == slowdown] for slowdown in slowdowns}
    detected = {slowdown: _rate(those, Outcome.REGRESSED) for slowdown, those in slowed.items()}
    # A slowdown counts only if every larger one is detected too.
    reliable = takewhile(lambda slowdown: detected[slowdown].value >= DETECTABLE, reversed(slowdowns))
    return RateRow(
        name=name,
        method=method,
        false_alarms=_rate(same, *_CHANGES),
        inconclusive=_rate(same, Outcome.INCONCLUSIVE),
        detected=detected,
        smallest_found=min(reliable, default=None),
        seconds=median(trial.seconds for trial in same) if same else None,
        seconds_detected={slowdown: median(trial.seconds for trial in those) for slowdown, those in slowed.items()},
        launches=median(trial.launches for trial in same) if same else None,
    )


def by_workload(method: str, trials: Sequence[CalibrationTrial]) -> list[RateRow]:
    """Summarize each workload in a row, in the order of their first trials."""
    names = dict.fromkeys(trial.workload for trial in trials if trial.method == method)
    return [tally(name, method, [t for t in trials if t.method == method and t.workload == name]) for name in names]


def whole_runs(trials: Sequence[CalibrationTrial], cases: int) -> Rate:
    """Compute the rate of runs with a false positive; a run is ``cases`` successive verdicts on unchanged code."""
    same = [trial for trial in trials if trial.slowdown == 0]
    runs = [same[first : first + cases] for first in range(0, len(same) - cases + 1, cases)]
    return rate(sum(_rate(run, *_CHANGES).hits > 0 for run in runs), len(runs))


def _rate(trials: Sequence[CalibrationTrial], *outcomes: Outcome) -> Rate:
    return rate(sum(trial.outcome in outcomes for trial in trials), len(trials))
