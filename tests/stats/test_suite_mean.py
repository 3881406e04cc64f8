"""The mean ratio of many cases: against a reference, and its error rates by simulation."""

import math

import numpy as np
import pytest

from tfbench.model import Outcome, Ratio
from tfbench.stats.verdict import classify_mean, mean_ratio


def ratio(effect, error, confidence=0.95, quantile=1.959964):
    return Ratio(*(math.exp(effect + reach * error) for reach in (0, -quantile, quantile)), confidence)


def test_it_is_the_random_effects_mean_with_hartung_and_knapps_interval():
    # By hand, from the formulas of both papers.
    effects, errors = np.array([0.02, -0.01, 0.05, 0.0, 0.01]), np.array([0.01, 0.012, 0.02, 0.01, 0.01])
    weights = 1 / errors**2
    fixed = np.sum(weights * effects) / weights.sum()
    excess = np.sum(weights * (effects - fixed) ** 2) - 4
    between = excess / (weights.sum() - np.sum(weights**2) / weights.sum())
    assert between > 0
    weights = 1 / (errors**2 + between)
    center = np.sum(weights * effects) / weights.sum()
    error = math.sqrt(np.sum(weights * (effects - center) ** 2) / 4 / weights.sum())
    found = mean_ratio([ratio(*one) for one in zip(effects, errors, strict=True)])
    assert math.log(found.center) == pytest.approx(center)
    assert math.log(found.high / found.center) == pytest.approx(2.776445 * error, rel=1e-5)
    assert math.log(found.center / found.low) == pytest.approx(2.776445 * error, rel=1e-5)


def test_cases_that_agree_better_than_their_errors_are_weighted_by_those_alone():
    found = mean_ratio([ratio(0.02, 0.01), ratio(0.021, 0.012)] * 3)
    assert math.log(found.center) == pytest.approx(np.average([0.02, 0.021], weights=[1 / 0.01**2, 1 / 0.012**2]))


def test_the_confidence_of_a_case_s_interval_does_not_matter():
    wide = [ratio(0.02, 0.01, 0.99, 2.575829), ratio(0.01, 0.02, 0.99, 2.575829)]
    usual = mean_ratio([ratio(0.02, 0.01), ratio(0.01, 0.02)] * 3)
    assert mean_ratio(wide * 3).center == pytest.approx(usual.center)
    assert mean_ratio([wide[0], ratio(0.01, 0.02)] * 3).center == pytest.approx(usual.center)


@pytest.mark.parametrize(
    "bad",
    [
        Ratio(math.nan, 0.0, math.inf, 0.9), Ratio(1.0, 0.0, 2.0, 0.9), Ratio(1.0, 0.9, math.inf, 0.9),
        Ratio(1.0, 1.1, 1.2, 0.9), Ratio(1.0, 0.9, 1.1, 1.0),
    ],
)  # fmt: skip
def test_cases_without_a_usable_interval_do_not_count(bad):
    good = [ratio(0.02, 0.01), ratio(0.01, 0.01)] * 3
    assert mean_ratio([*good, bad]) == mean_ratio(good)
    assert mean_ratio([*good[:4], bad]) is None
    assert mean_ratio([]) is None


def test_intervals_without_width_are_a_plain_mean():
    same = mean_ratio([Ratio(1.01, 1.01, 1.01, 0.9), Ratio(1.03, 1.03, 1.03, 0.9)] * 3)
    assert same.center == pytest.approx(math.sqrt(1.01 * 1.03))


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.003, 1.006, Outcome.REGRESSED), (1.0025, 1.004, Outcome.UNCHANGED), (0.996, 1.004, Outcome.UNCHANGED),
        (0.99, 0.996, Outcome.IMPROVED), (0.9965, 0.998, Outcome.UNCHANGED), (0.9945, 0.998, Outcome.INCONCLUSIVE),
        (0.9945, 1.004, Outcome.INCONCLUSIVE), (0.999, 1.006, Outcome.INCONCLUSIVE), (0.98, 1.02, Outcome.INCONCLUSIVE),
    ],
)  # fmt: skip
def test_a_mean_changes_from_half_of_the_limit(low, high, outcome):
    assert classify_mean(Ratio((low + high) / 2, low, high, 0.99), 0.005) is outcome
