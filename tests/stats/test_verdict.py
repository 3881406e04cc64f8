"""Outcomes of intervals, and their reasons."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.model import Effect, Outcome, Ratio
from tfbench.policy import Policy
from tfbench.stats.alpha_spending import case_alpha, look_alpha
from tfbench.stats.interval import interval
from tfbench.stats.verdict import change, classify, compare, decide, hidden

POLICY = Policy()


def effects(center, spread=0.002, launches=6):
    return [Effect(center + (-1) ** index * spread, index % 6) for index in range(launches)]


def judged(center, *, policy=POLICY, final=False, spread=0.002, launches=6, cases=30):
    return decide(
        effects(center, spread, launches),
        100 * launches,
        policy,
        cases=cases,
        shared_zygote=False,
        final=final,
    )


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.011, 1.5, Outcome.REGRESSED),
        (1.011, 1.019, Outcome.REGRESSED),  # within the tolerance, but slower by more than the minimum
        (1.010, 1.5, None),
        (0.5, 0.990, Outcome.IMPROVED),
        (0.5, 0.9902, None),
        (0.981, 1.02, Outcome.UNCHANGED),
        (1.003, 1.019, Outcome.UNCHANGED),  # real, but too small to matter
        (1.005, 1.021, None),  # real, but perhaps large enough to matter
        (0.97, 1.0, None),
        (0.5, 2.0, None),
    ],
)
def test_the_outcome_that_an_interval_proves(low, high, outcome):
    assert classify(low, high, POLICY.step_time) is outcome


MIRRORED = {Outcome.REGRESSED: Outcome.IMPROVED, Outcome.IMPROVED: Outcome.REGRESSED}


@given(st.floats(0.9, 1.1), st.floats(1.0001, 1.1))
def test_swapping_the_sides_mirrors_the_outcome(low, width):
    there = classify(low, low * width, POLICY.step_time)
    back = classify(1 / (low * width), 1 / low, POLICY.step_time)
    assert back is MIRRORED.get(there, there)


def test_an_undecided_race_goes_on_until_the_last_look():
    assert judged(0.05).outcome is Outcome.REGRESSED
    assert judged(-0.05).outcome is Outcome.IMPROVED
    assert judged(0.0).outcome is Outcome.UNCHANGED
    assert judged(0.015).outcome is None
    assert judged(0.015, final=True).outcome is Outcome.INCONCLUSIVE


def test_a_decision_carries_its_evidence():
    comparison = judged(0.05).comparison
    assert (comparison.launches, comparison.pairs, comparison.rounds) == (6, 6, 600)
    assert comparison.ratio.confidence == 1 - case_alpha(POLICY, 30)


def test_the_interval_of_a_look_has_the_level_of_that_look():
    evidence = effects(0.01, launches=9)
    found = compare(evidence, 900, POLICY, cases=30, shared_zygote=False).ratio
    plain = interval(evidence, look_alpha(POLICY, 30, 3), POLICY, shared_zygote=False)
    assert (found.low, found.high) == (plain.low, plain.high)


def test_a_large_change_is_reported_at_the_first_look():
    found = judged(0.095, spread=0.006, launches=3)
    assert found.outcome is Outcome.REGRESSED


def test_more_cases_need_more_evidence():
    few, many = (judged(0.05, cases=cases).comparison.ratio for cases in (30, 10_000))
    assert many.low < few.low < few.high < many.high


@pytest.mark.parametrize(
    ("center", "code", "words"),
    [
        (0.0507, "slower", "5.2% slower (interval +"),
        (-0.0513, "faster", "5.0% faster (interval -"),
        (0.0, "within-tolerance", "within 2.0% either way: 0.0% slower (interval -"),
        (0.015, "not-decided", "not decided: a slowdown of "),
    ],
)
def test_a_reason_states_the_change_and_its_evidence(center, code, words):
    reason = judged(center, final=True).reason
    assert reason.code == code
    assert reason.message.startswith(words)
    assert "at 96.35% confidence, 6 launches" in reason.message


def test_an_undecided_race_states_the_possible_slowdown_and_the_fix():
    message = judged(0.015, final=True).reason.message
    assert "could still be hiding" in message
    assert "--policy strict" in message
    strict = judged(0.008, policy=replace(POLICY, name="strict", minimum_effect=0.005, tolerance=0.01), final=True)
    assert "--policy strict" not in strict.reason.message
    assert "more launches or a quieter machine" in strict.reason.message


def test_an_undecided_race_that_is_not_slower_says_so():
    found = judged(-0.015, final=True)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reason.message.startswith("not decided, but not slower")


def test_a_possible_slowdown_above_two_is_a_factor():
    message = decide(
        [Effect(2.0, 0), Effect(-2.0, 1), Effect(3.0, 2)], 3, POLICY, cases=1, shared_zygote=False, final=True
    ).reason.message
    assert "a slowdown of a factor of " in message


def test_a_budget_that_ends_between_looks_uses_the_next_look():
    found = judged(0.0, launches=7, final=True).comparison.ratio
    plain = interval(effects(0.0, launches=7), look_alpha(POLICY, 30, 3), POLICY, shared_zygote=False)
    assert found.low == plain.low


def test_changes_are_formatted_for_people():
    assert change(1.052) == "5.2% slower"
    assert change(0.948) == "5.2% faster"
    assert change(3.44) == "3.4x slower"
    assert change(0.25) == "4.0x faster"
    assert hidden(Ratio(1, 0.9, 1.043, 0.99)) == pytest.approx(0.043)
    assert hidden(Ratio(0.9, 0.8, 0.95, 0.99)) == 0
