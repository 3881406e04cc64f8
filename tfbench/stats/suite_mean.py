"""Average the ratios of many cases, with an interval: a small slowdown of all cases, which no single case shows.

The model is that of a random-effects meta-analysis: cases differ in their true log-ratio, and each is measured with an
error of its own. The weights follow DerSimonian & Laird (1986, Control. Clin. Trials 7), and the interval Hartung &
Knapp (2001, Stat. Med. 20): a t interval by the weighted scatter of the cases themselves. It holds for few cases, and
where the errors are known only by their order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from tfbench.model import Outcome, Ratio

FEWEST = 2
"""Cases of a mean. One case has an interval of its own."""
_LEAST_SHARE = 0.5
"""Share of the median error below which a case gets no more weight: errors are estimated, and small ones by luck."""

_TINY = 1e-9
"""Least error, for intervals without width."""


def mean_ratio(ratios: Sequence[Ratio], confidence: float = 0.95) -> Ratio | None:
    """Return the mean of cases' ratios with its interval; ``None`` for fewer than `FEWEST` cases that can be used.

    A case is used if its ratio and both ends of its interval are positive numbers.

    Args:
        ratios: One per case, each with an interval at its own confidence.
        confidence: That of the mean's interval.
    """
    used = [one for one in ratios if 0 < one.low <= one.center <= one.high < math.inf and 0 < one.confidence < 1]
    if len(used) < FEWEST:
        return None
    center = np.log([one.center for one in used])
    width = np.log([one.high for one in used]) - np.log([one.low for one in used])
    quantile = special.ndtri(0.5 + np.array([one.confidence for one in used]) / 2)
    errors = width / (2 * quantile)
    variance = np.maximum(errors, max(_LEAST_SHARE * float(np.median(errors)), _TINY)) ** 2
    weights = 1 / (variance + _between(center, variance))
    mean = float(np.average(center, weights=weights))
    freedom = len(used) - 1
    error = math.sqrt(float(np.average((center - mean) ** 2, weights=weights)) / freedom)
    reach = float(special.stdtrit(freedom, 0.5 + confidence / 2)) * error
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), confidence)


def classify_mean(mean: Ratio, limit: float) -> Outcome:
    """Return the outcome that the interval of a mean proves.

    As for a single case, a change counts from half of the slowdown that is to be found: regressed or improved needs the
    whole interval beyond it, and unchanged the whole interval within the limit.
    """
    least = 1 + limit / 2
    if mean.low > least:
        return Outcome.REGRESSED
    if mean.high < 1 / least:
        return Outcome.IMPROVED
    return Outcome.UNCHANGED if 1 / (1 + limit) < mean.low and mean.high < 1 + limit else Outcome.INCONCLUSIVE


def _between(center: np.ndarray, variance: np.ndarray) -> float:
    """Return the variance of the true log-ratios between cases, by DerSimonian & Laird's method of moments."""
    weights = 1 / variance
    mean = np.average(center, weights=weights)
    excess = float(np.sum(weights * (center - mean) ** 2)) - (len(center) - 1)
    return max(0.0, excess / float(np.sum(weights) - np.sum(weights**2) / np.sum(weights)))
