"""Two runs that are over: what their times allow to be said, and what they do not.

Both were taken at different times, maybe in different states of the machine, and nothing can be raced
any more. An interval from the times themselves knows how they scattered within the two runs; how
far a run lies from the next one of the same code it cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from tfbench.compare.timing import FileComparison, Timing
from tfbench.model import Ratio, Reason
from tfbench.stats.interval import Floats
from tfbench.stats.verdict import change

CONFIDENCE = 0.95
BATCHES = 20
"""Parts of equal length that the times of one process are cut into, in time order."""
LEAST_BATCHES = 5
LEAST_LAUNCHES = 3
STANDS_OUT = "stands-out"
"""Code of what differs by more than it scattered."""


def contrast(case: str, first: Timing | None, second: Timing | None) -> FileComparison:
    """The second file's time of a case against the first's."""
    if first is None or second is None:
        text = f"in the {'first' if second is None else 'second'} file only"
        return FileComparison(case, first, second, Reason("one-file", text))
    before, whence = _units(first)
    after, thence = _units(second)
    if not before or not after:
        text = f"nothing can be said: {whence if not before else thence}"
        return FileComparison(case, first, second, Reason("no-interval", text), second.median / first.median)
    effect, reach = _welch(np.log(before), np.log(after))
    interval = Ratio(math.exp(effect), math.exp(effect - reach), math.exp(effect + reach), CONFIDENCE)
    scatter = f"the scatter of {' and '.join(dict.fromkeys((whence, thence)))}"
    reason = Reason("within-scatter", f"within {scatter}")
    if not interval.low <= 1 <= interval.high:
        reason = Reason(STANDS_OUT, f"{change(interval.center)}, beyond {scatter}")
    return FileComparison(case, first, second, reason, interval.center, interval)


def _units(timing: Timing) -> tuple[Sequence[float], str]:
    """Values that may be taken for independent, and what they are: launches, or batches of one process.

    Successive rounds resemble each other, so those of one process are cut into batches whose medians
    nearly do not (batch means, Alexopoulos & Seila 1998, Handbook of Simulation, ch. 7).
    """
    if not timing.launches:
        return (), "no raw times in the file: the scatter of rounds says nothing of how far off their median is"
    if len(timing.launches) >= LEAST_LAUNCHES:
        return [float(np.median(launch)) for launch in timing.launches], "launches"
    rounds = [second for launch in timing.launches for second in launch]
    batches = min(BATCHES, len(rounds) // 2)
    if batches < LEAST_BATCHES:
        return (), f"{len(rounds)} rounds are too few for an interval"
    return [float(np.median(part)) for part in np.array_split(rounds, batches)], "rounds of one process"


def _welch(before: Floats, after: Floats) -> tuple[float, float]:
    """Difference of two means and how far its interval reaches (Welch 1947, Biometrika 34)."""
    own = [float(values.var(ddof=1)) / values.size for values in (before, after)]
    effect = float(after.mean() - before.mean())
    if sum(own) == 0:
        return effect, 0.0
    weights = [variance**2 / (values.size - 1) for variance, values in zip(own, (before, after), strict=True)]
    freedom = sum(own) ** 2 / sum(weights)
    return effect, float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(sum(own))
