"""Thresholds and throughput of single cases."""

import math
from dataclasses import replace

import pytest

from tfbench.model import Case, Outcome, Ratio, Run
from tfbench.model.words import thresholds
from tfbench.policy import Policy
from tfbench.stats.alpha_spending import completed, ignored, judged, policy_of
from tfbench.stats.rounds import log_items_ratio, rates
from tfbench.stats.verdict import classify

CASE = Case("t.py::t", "t", "t.py::t", thresholds=(("minimum_effect", 0.05), ("tolerance", 0.1)))


def run(seconds, **facts):
    return Run((seconds,), 1, facts)


def test_own_thresholds_replace_those_of_the_policy_and_nothing_else():
    own = policy_of(Policy(), CASE)
    assert (own.minimum_effect, own.tolerance) == (0.05, 0.1)
    assert own.once[:2] == (0.05, 0.1)
    usual = {"minimum_effect": 0.01, "tolerance": 0.02, "once_effects": (0.05, 0.1)}
    assert own.as_json() | usual == Policy().as_json()
    assert classify(1.02, 1.04, own.step_time) is Outcome.UNCHANGED
    assert classify(1.02, 1.04, Policy().step_time) is Outcome.REGRESSED
    assert policy_of(Policy(), Case("t", "t", "t")) == Policy()
    assert thresholds(dict(CASE.thresholds)) == "minimum effect 5.0%, tolerance 10.0%"


def with_thresholds(*own):
    return replace(CASE, thresholds=tuple(zip(("minimum_effect", "tolerance"), own, strict=False)))


@pytest.mark.parametrize(
    ("here", "there", "step", "once"),
    [
        ((0.45, 0.9), (), (0.01, 0.02), (0.05, 0.1)),
        ((0.45, 0.9), (0.05, 0.1), (0.05, 0.1), (0.05, 0.1)),
        ((0.002, 0.9), (0.05, 0.1), (0.002, 0.1), (0.002, 0.1)),
        ((0.02, 0.04), (), (0.01, 0.02), (0.02, 0.04)),
    ],
)
def test_two_sides_are_judged_by_the_stricter_thresholds_of_both(here, there, step, once):
    for cases in ((here, there), (there, here)):
        policy = policy_of(Policy(), *(with_thresholds(*own) for own in cases))
        assert (policy.step_time[:2], policy.once[:2]) == (step, once)


def test_a_verdict_shows_the_used_thresholds_and_says_that_looser_ones_do_not_count():
    usual, own = Policy().step_time, policy_of(Policy(), CASE).step_time
    assert judged(CASE, usual, own) == CASE
    assert judged(CASE, usual, usual).thresholds == ()
    assert judged(with_thresholds(0.3, 0.6), usual, own) == CASE
    assert ignored(CASE, own) is ignored(with_thresholds(), usual) is ignored(with_thresholds(0.001, 0.002), usual)
    assert ignored(CASE, own) is None
    looser = ignored(with_thresholds(0.001, 0.9), usual)
    assert looser.message.startswith("its own thresholds (minimum effect 0.1%, tolerance 90")


@pytest.mark.parametrize(
    ("given", "both"),
    [
        ({"minimum_effect": 0.05}, (0.05, 0.1)),
        ({"minimum_effect": 0.004}, (0.004, 0.02)),
        ({"tolerance": 0.2}, (0.01, 0.2)),
        ({"minimum_effect": 0.03, "tolerance": 0.04}, (0.03, 0.04)),
    ],
)
def test_one_threshold_brings_the_other(given, both):
    assert tuple(completed(given, Policy()).values()) == both


@pytest.mark.parametrize("given", [{"minimum_effect": 0.1, "tolerance": 0.1}, {"minimum_effect": 0.6}])
def test_a_minimum_effect_must_lie_below_the_tolerance(given):
    with pytest.raises(ValueError, match="0 < minimum_effect < tolerance < 1 must hold"):
        completed(given, Policy())


def test_throughput_follows_the_ratio_of_the_race():
    ratio = Ratio(1.25, 1.2, 1.3, 0.99)
    found = rates([run(0.5, items=100)], [run(0.7, items=100)], ratio)
    assert found == {"items/s": (200, pytest.approx(160))}  # not 100 / 0.7


def test_calls_with_other_numbers_of_items_compare_per_item():
    before, now = run(0.5, items=100), run(1.0, items=200)
    assert log_items_ratio(before, now) == pytest.approx(math.log(2))
    assert log_items_ratio(before, run(1.0)) == 0
    # Per item the same time, so the same throughput.
    assert rates([before], [now], Ratio(1.0, 0.99, 1.01, 0.99))["items/s"] == (200, pytest.approx(200))


def test_a_side_that_states_no_work_has_no_throughput():
    assert rates([run(0.5)], [run(0.5, bytes=10)], Ratio(1, 1, 1, 0.9)) == {"B/s": (None, 20)}
    assert rates([run(0.5, items=1)], [run(0.5, items=1)], None) == {}
    assert rates([], [run(0.5, items=1)], Ratio(1, 1, 1, 0.9)) == {}
