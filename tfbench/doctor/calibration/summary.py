"""Summarize trials as rates with intervals. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from statistics import fmean, median

from scipy.special import betaincinv, stdtrit

from tfbench.doctor.calibration.journal import CalibrationTrial
from tfbench.model import Outcome, Rate, RateRow

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
DETECTABLE = 0.95
"""A slowdown counts as detectable if at least this share of its trials has regressed."""

_CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
"""Outcomes that are false on unchanged code."""


def rate(hits: int, trials: int) -> Rate:
    """Compute a rate with its exact binomial interval (Clopper and Pearson 1934, Biometrika 26)."""
    return Rate(hits, trials, *_interval(hits, trials))


def clustered_rate(hits: Sequence[int], trials: Sequence[int]) -> Rate:
    """Compute a rate whose trials come in clusters, inside of which they are alike.

    The exact interval takes as many trials as independent ones would tell as much (Korn and Graubard 1998, Survey
    Methodology 24). Where all trials or none are hits, nothing shows how alike they are, and a cluster counts as one.

    Args:
        hits: Hits of each cluster.
        trials: Trials of each cluster, at least one.
    """
    hit, total, clusters = sum(hits), sum(trials), len(trials)
    value = hit / max(1, total)
    effective = float(clusters)
    if 0 < value < 1 and clusters > 1:
        spread = sum((h - value * n) ** 2 for h, n in zip(hits, trials, strict=True))
        between = clusters / (clusters - 1) * spread / total**2
        design_effect = max(1.0, between * (total - 1) / (value * (1 - value)))
        few = float(stdtrit(total - 1, _TAIL) / stdtrit(clusters - 1, _TAIL))
        effective = total / design_effect * few**2
    return Rate(hit, total, *_interval(value * effective, effective))


def _interval(hits: float, trials: float) -> tuple[float, float]:
    low = float(betaincinv(hits, trials - hits + 1, _TAIL)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - _TAIL)) if hits < trials else 1.0
    return low, high


def tally(name: str, method: str, trials: Sequence[CalibrationTrial]) -> RateRow:
    """Summarize trials of one method in a row."""
    same = [trial for trial in trials if trial.same]
    slowdowns = sorted({trial.slowdown for trial in trials if trial.slowdown > 0})
    kinds = dict.fromkeys(trial.slow_calls for trial in trials if trial.slow_calls)
    tails = {kind: [trial for trial in trials if trial.slow_calls == kind] for kind in kinds}
    slowed = {slowdown: [t for t in trials if t.slowdown == slowdown] for slowdown in slowdowns}
    detected = {slowdown: _rate(those, Outcome.REGRESSED) for slowdown, those in slowed.items()}
    told = [trial for trial in same if trial.intervals]
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
        tails={kind: _rate(those, Outcome.REGRESSED) for kind, those in tails.items()},
        seconds_tails={kind: median(trial.seconds for trial in those) for kind, those in tails.items()},
        coverage=_share(told, lambda trial: trial.holds_truth) if told else None,
        nominal=fmean(trial.intervals[0].confidence for trial in told) if told else None,
    )


def by_workload(method: str, trials: Sequence[CalibrationTrial]) -> list[RateRow]:
    """Summarize each workload in a row, in the order of their first trials."""
    names = dict.fromkeys(trial.workload for trial in trials if trial.method == method)
    return [tally(name, method, [t for t in trials if t.method == method and t.workload == name]) for name in names]


def whole_runs(trials: Sequence[CalibrationTrial], cases: int) -> Rate:
    """Compute the rate of runs with a false positive; a run is ``cases`` successive verdicts on unchanged code."""
    same = [trial for trial in trials if trial.same]
    runs = [same[first : first + cases] for first in range(0, len(same) - cases + 1, cases)]
    return rate(sum(_rate(run, *_CHANGES).hits > 0 for run in runs), len(runs))


def _rate(trials: Sequence[CalibrationTrial], *outcomes: Outcome) -> Rate:
    """Compute the rate of these outcomes."""
    return _share(trials, lambda trial: trial.outcome in outcomes)


def _share(trials: Sequence[CalibrationTrial], is_hit: Callable[[CalibrationTrial], bool]) -> Rate:
    """Compute the rate of hits. Trials of a workload in one run share zygotes, and are a cluster."""
    sizes = Counter((trial.run, trial.workload) for trial in trials)
    hits = Counter((trial.run, trial.workload) for trial in trials if is_hit(trial))
    return clustered_rate([hits[cluster] for cluster in sizes], list(sizes.values()))
