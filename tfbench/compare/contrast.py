"""Compare the times of a case in two finished runs.

The runs took place at different times, perhaps in different states of the machine, and cannot be raced.
An interval from their times covers the scatter within the two runs. It does not cover the difference
between two runs of the same code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from tfbench.compare.timing import Timing
from tfbench.model import JSON, Ratio, Reason, ReasonCode
from tfbench.stats.interval import Floats
from tfbench.stats.verdict import change

CONFIDENCE = 0.95
BATCHES = 20
"""Number of equally long parts into which the times of one process are divided, in time order."""
MIN_BATCHES = 5
MIN_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class FileComparison:
    """One case in two result files; if there is no ``interval``, the reason says why."""

    case: str
    first: Timing | None
    second: Timing | None
    reason: Reason
    ratio: float | None = None
    interval: Ratio | None = None

    def as_json(self) -> JSON:
        return {
            "case": self.case,
            "first_median_seconds": self.first and self.first.median,
            "second_median_seconds": self.second and self.second.median,
            "ratio": self.ratio,
            "interval": self.interval and self.interval.as_json(),
            "reason": self.reason.as_json(),
        }


def contrast(case: str, first: Timing | None, second: Timing | None) -> FileComparison:
    """Compare the second file's time of a case with the first file's."""
    if first is None or second is None:
        text = f"in the {'first' if second is None else 'second'} file only"
        return FileComparison(case, first, second, Reason(ReasonCode.ONE_FILE, text))
    before, first_units = _units(first)
    after, second_units = _units(second)
    if not before or not after:
        text = first_units if not before else second_units
        return FileComparison(case, first, second, Reason(ReasonCode.NO_INTERVAL, text), second.median / first.median)
    effect, reach = _welch(np.log(before), np.log(after))
    interval = Ratio(math.exp(effect), math.exp(effect - reach), math.exp(effect + reach), CONFIDENCE)
    scatter = f"the scatter of {' and '.join(dict.fromkeys((first_units, second_units)))}"
    reason = Reason(ReasonCode.WITHIN_SCATTER, f"within {scatter}")
    if not interval.low <= 1 <= interval.high:
        reason = Reason(ReasonCode.STANDS_OUT, f"{change(interval.center)}, beyond {scatter}")
    return FileComparison(case, first, second, reason, interval.center, interval)


def _units(timing: Timing) -> tuple[Sequence[float], str]:
    """Return values that are nearly independent, and their description: launches, or batches of one process.

    Successive rounds are correlated. So the rounds of one process are divided into batches whose medians
    nearly are not (batch means, Alexopoulos & Seila 1998, Handbook of Simulation, ch. 7).
    If there are no values, the second item is the reason.
    """
    if not timing.launches:
        return (), "no raw times in the file, so there is no interval"
    if len(timing.launches) >= MIN_LAUNCHES:
        return [float(np.median(launch)) for launch in timing.launches], "launches"
    rounds = [second for launch in timing.launches for second in launch]
    batches = min(BATCHES, len(rounds) // 2)
    if batches < MIN_BATCHES:
        return (), f"{len(rounds)} rounds are too few for an interval"
    return [float(np.median(part)) for part in np.array_split(rounds, batches)], "rounds of one process"


def _welch(before: Floats, after: Floats) -> tuple[float, float]:
    """Compute the difference of two means and the half-width of its interval (Welch 1947, Biometrika 34)."""
    first, second = (float(values.var(ddof=1)) / values.size for values in (before, after))
    effect = float(after.mean() - before.mean())
    if first + second == 0:
        return effect, 0.0
    freedom = (first + second) ** 2 / (first**2 / (before.size - 1) + second**2 / (after.size - 1))
    return effect, float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(first + second)
