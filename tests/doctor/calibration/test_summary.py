"""Rates of trials, and the journal that stores trials."""

import numpy as np
import pytest
from scipy.stats import binomtest

from tfbench.doctor import calibration
from tfbench.doctor.calibration import (
    CHANGES,
    CalibrationTrial,
    Journal,
    Rate,
    clustered_rate,
    nominal,
    seconds,
    tally,
)
from tfbench.errors import ReportError
from tfbench.model import Outcome, Ratio


def trial(outcome="unchanged", slowdown=0.0, workload="w", seconds=2.0, run=0, intervals=()):
    effects, pairs, errors = (0.001, -0.002), (0, 1), (0.0, 0.001)
    intervals = tuple(Ratio((low + high) / 2, low, high, confidence) for low, high, confidence in intervals)
    return CalibrationTrial(
        "race", "standard", workload, slowdown, Outcome(outcome), seconds, 4, run, effects, pairs, errors, intervals
    )


def rate(hits, trials):
    found = binomtest(hits, trials).proportion_ci(0.95, "exact") if trials else None
    return Rate(hits, trials, *((found.low, found.high) if found else (0.0, 1.0)))


@pytest.mark.parametrize("hits", [0, 1, 30, 40])
def test_clusters_of_one_trial_have_the_exact_interval(hits):
    found, expected = clustered_rate([1] * hits + [0] * (40 - hits), [1] * 40), rate(hits, 40)
    assert (found.hits, found.trials) == (hits, 40)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_without_hits_a_cluster_counts_as_one_trial():
    assert clustered_rate([0] * 10, [5] * 10).high == pytest.approx(rate(0, 10).high)
    assert clustered_rate([5] * 10, [5] * 10).low == pytest.approx(rate(10, 10).low)
    assert clustered_rate([], []) == Rate(0, 0, 0.0, 1.0)


def test_the_interval_of_clustered_trials_covers_the_rate():
    rng = np.random.default_rng(1)
    covered, covered_if_independent = 0, 0
    for _ in range(400):
        hits = rng.binomial(6, rng.beta(0.3, 1.2, size=60)).tolist()  # a rate of 20%, within clusters 40% correlated
        found, independent = clustered_rate(hits, [6] * 60), rate(sum(hits), 360)
        covered += found.low <= 0.2 <= found.high
        covered_if_independent += independent.low <= 0.2 <= independent.high
    assert covered >= 0.93 * 400
    assert covered_if_independent <= 0.85 * 400


def test_a_rate_without_trials_is_zero():
    assert Rate(1, 4, 0.1, 0.5).value == 0.25
    assert Rate(0, 0, 0.0, 1.0).value == 0.0


def test_trials_of_a_workload_in_one_run_are_a_cluster():
    same_run = [trial("regressed")] * 4 + [trial(run=1)] * 4 + [trial(run=2)] * 4
    other_runs = [trial("regressed" if number < 4 else "unchanged", run=number) for number in range(12)]
    assert tally("w", same_run).found("", *CHANGES).high > tally("w", other_runs).found("", *CHANGES).high


def test_a_row_counts_outcomes_by_slowdown():
    trials = [trial(), trial("inconclusive"), trial("regressed", seconds=4.0)]
    trials += [trial("regressed", 0.05)] * 19 + [trial("inconclusive", 0.05)] + [trial("unchanged", 0.02)]
    row = tally("w", trials)
    assert (row.found("", *CHANGES).hits, row.found("", *CHANGES).trials) == (1, 3)
    assert row.found("", Outcome.INCONCLUSIVE).hits == 1
    assert list(row.trials) == ["", "+2%", "+5%"]
    assert row.found("+5%", Outcome.REGRESSED).value == 0.95
    assert row.smallest_found == 0.05
    assert seconds(row.trials[""]) == "2.0"
    missed = [trial("regressed", 0.02), trial("unchanged", 0.10)]  # the larger one, so the smaller is not found either
    assert tally("w", missed).smallest_found is tally("w", []).smallest_found is None


def test_coverage_is_the_share_of_unchanged_code_whose_intervals_hold_one():
    holding = trial(intervals=[(0.99, 1.01, 0.94)])
    missing = trial("inconclusive", run=1, intervals=[(1.001, 1.02, 0.99)])
    slowed = trial("regressed", 0.05, intervals=[(1.06, 1.07, 0.99)])
    row = tally("w", [holding, holding, missing, trial(), slowed])
    covered = calibration.rate(row.told, lambda trial: trial.holds_truth)
    assert (covered.hits, covered.trials) == (2, 3)
    assert nominal(row.told) == "95.7%"
    assert tally("w", [trial(), trial()]).told == []


@pytest.mark.parametrize(
    ("slowdown", "intervals", "holds"),
    [
        (0.0, [(1.0, 1.01, 0.94)], True),
        (0.05, [(1.04, 1.06, 0.99), (1.049, 1.06, 0.99)], True),
        (0.0, [(1.01, 1.02, 0.99), (0.99, 1.01, 0.99)], False),  # the second race corrects only the verdict
    ],
)
def test_intervals_of_all_races_have_to_hold_the_true_ratio(slowdown, intervals, holds):
    assert trial("inconclusive", slowdown, intervals=intervals).holds_truth is holds


def test_a_journal_grows_and_survives_an_incomplete_line(tmp_path):
    journal = Journal(tmp_path / "deep" / "trials.jsonl")
    assert journal.read() == []
    journal.append(trial())
    journal.append(trial("regressed", 0.1, intervals=[(1.01, 1.2, 0.99)]))
    with journal.path.open("a") as file:
        file.write('{"method": "ra')
    assert journal.read() == [trial(), trial("regressed", 0.1, intervals=[(1.01, 1.2, 0.99)])]


def test_an_interval_whose_ends_are_swapped_is_no_trial(tmp_path):
    journal = Journal(tmp_path / "trials.jsonl")
    journal.append(trial(intervals=[(1.0, 1.2, 0.94)]))
    journal.path.write_text(journal.path.read_text().replace('"low":1.0', '"low":1.3'))
    with pytest.raises(
        ReportError, match=r"line 1: not a trial \(FormError: at the top, an interval from 1.3 to 1.2\)"
    ):
        journal.read()
