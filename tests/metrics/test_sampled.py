"""Metrics that each timed launch samples."""

import random

import numpy as np
import pytest

from tfbench.metrics.sampled import first_call, memory
from tfbench.model import Case, Outcome
from tfbench.policy import preset

CASE = Case("w.py::test_w", "test_w", "w.py::test_w")
POLICY = preset("standard")
MIB = 1 << 20


def peaks(*mebibytes):
    return [{"peak_host_memory": int(value * MIB)} for value in mebibytes]


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        (peaks(100, 100, 101), peaks(100, 101, 100), Outcome.UNCHANGED),
        (peaks(100, 100, 100), peaks(100.9, 100.9, 100.9), Outcome.UNCHANGED),
        (peaks(1, 1, 1), peaks(1.4, 1.4, 1.4), Outcome.UNCHANGED),  # within the absolute tolerance
        (peaks(100, 100, 100), peaks(103, 103, 103), Outcome.REGRESSED),
        (peaks(103, 103, 103), peaks(100, 100, 100), Outcome.IMPROVED),
        (peaks(100, 100, 110), peaks(103, 103, 103), Outcome.INCONCLUSIVE),
        (peaks(100, 100), peaks(200, 200), Outcome.INCONCLUSIVE),  # too few launches
        ([{}], peaks(100, 100, 100), Outcome.NEW),
        (peaks(100, 100, 100), [{}], Outcome.MISSING),
    ],
)
def test_a_peak_is_decided_like_a_time(before, now, outcome):
    assert memory(CASE, before, now, POLICY, 1).outcome is outcome


def test_the_evidence_on_a_peak_grows_with_launches_and_a_noisy_one_accuses_nobody():
    """5% more at 3% noise: the rule "all launches apart" found it in half of the races, and in none with 30 launches."""
    rng = np.random.default_rng(1)

    def outcomes(launches, growth, noise, races):
        for _ in range(races):
            before, now = (peaks(*(200 * level * np.exp(rng.normal(0, noise, launches)))) for level in (1, 1 + growth))
            yield memory(CASE, before, now, preset("quick"), 322, tuple(range(launches))).outcome

    few, many = (list(outcomes(launches, 0.05, 0.03, 100)).count(Outcome.REGRESSED) for launches in (3, 30))
    assert few <= 20
    assert many >= 85
    alarms = [list(outcomes(launches, 0.0, noise, 150)) for launches in (3, 9, 30) for noise in (0.002, 0.03, 0.1)]
    assert not any(Outcome.REGRESSED in one for one in alarms)
    assert list(outcomes(3, 0.2, 0.002, 20)).count(Outcome.REGRESSED) == 20


def test_a_system_that_does_not_report_memory_has_no_row():
    assert memory(CASE, [{}], [{}], POLICY, 1) is None


def calls(seconds, count, rng, deviation=0.05):
    parts = {"trace": 0.3, "compile": 0.6, "execute": 0.1}
    times = [seconds * (1 + rng.gauss(0, deviation)) for _ in range(count)]
    return [{"first_call": time, "first_call_parts": {p: share * time for p, share in parts.items()}} for time in times]


def decided(before, now, launches, seed=0, seconds=0.2):
    rng = random.Random(seed)
    sides = calls(before * seconds, launches, rng), calls(now * seconds, launches, rng)
    return first_call(*sides, [index % 6 for index in range(launches)], POLICY, 30)


def test_a_first_call_twice_as_long_has_regressed_and_its_parts_are_reported():
    decision = decided(1, 2, 6)
    assert decision.outcome is Outcome.REGRESSED
    assert "trace 59 ms before, 119 ms now" in decision.reason.message
    assert decided(2, 1, 6).outcome is Outcome.IMPROVED


def test_the_same_first_call_is_not_a_false_positive():
    outcomes = [decided(1, 1, launches, seed).outcome for launches in (3, 6, 12) for seed in range(150)]
    assert Outcome.REGRESSED not in outcomes
    assert outcomes.count(Outcome.UNCHANGED) > 200


def test_a_few_milliseconds_are_within_the_absolute_tolerance():
    decision = decided(1, 3, 6, seconds=1e-3)
    assert decision.outcome is Outcome.UNCHANGED
    assert decision.reason.code == "within-slack"


def test_without_samples_there_is_no_decision():
    assert first_call([{}], [{}], [0], POLICY, 30) is None
