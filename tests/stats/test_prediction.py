"""Saved times: prediction against reference values, error rates by simulation, reasons."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tfbench.model import Outcome, Ratio, Reason
from tfbench.policy import PRESETS, Policy
from tfbench.stats.verdict import decide_on_saved, predict

POLICY = Policy()
STEADY = [1.0, 1.004, 0.997, 1.002, 0.999, 1.003, 0.996, 1.001]

CALLS = [1.0], [1.0] * 360
"""Rounds of the baseline and of the new session, whose means are alike."""


def session(floor, launches=6):
    """The first launch is the fastest."""
    return [floor * (1 + 0.01 * number) for number in range(launches)]


def judged(now, known=STEADY, policy=POLICY, cases=30):
    return decide_on_saved(session(now), [session(known[0])], [session(k) for k in known[1:]], CALLS, policy, cases)


def test_a_prediction_interval_as_in_the_book():
    # Five observations with mean 50.1 and deviation 1.31: the 95% prediction interval for one more is
    # 50.1 +- 2.776 * 1.31 * sqrt(1 + 1/5) = 50.1 +- 3.99 (Hahn & Meeker 1991, Statistical Intervals, ch. 4).
    sessions = [51.4, 49.5, 48.7, 49.3, 51.6]
    found = predict(50.1, sessions, sessions, 0.05)
    assert math.log(found.high) == pytest.approx(3.99, abs=0.01)
    assert math.log(found.low) == pytest.approx(-3.99, abs=0.01)
    assert found.confidence == 0.95


def test_fewer_sessions_of_the_baselines_own_code_widen_it():
    sessions = [0.0, 0.01, -0.01, 0.0]
    one, all_of_them = (predict(0.0, own, sessions, 0.05) for own in ([0.0], sessions))
    assert one.high > all_of_them.high


@pytest.mark.parametrize(("own", "sessions"), [([], [0.0, 0.1]), ([0.0], [0.0])])
def test_a_spread_needs_two_sessions(own, sessions):
    reported = "a spread needs at least two sessions, including one of the baseline's own code"
    with pytest.raises(ValueError, match=f"^{reported}$"):
        predict(0.0, own, sessions, 0.05)
    assert predict(0.0, [0.0], [0.0, 0.1], 0.05).center == 1.0


def test_too_few_sessions_are_inconclusive_however_large_the_change():
    found = judged(2.0, STEADY[:4])
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "4 comparable sessions of this case, at least 5 are needed" in found.reason.message
    assert found.comparison.ratio.high == math.inf


@pytest.mark.parametrize(
    ("now", "known", "cases", "outcome", "code", "text"),
    [
        (2.0, STEADY[:1], 30, "inconclusive", "few-sessions", "saved times alone: 1 comparable session of this case, "
         "at least 5 are needed to estimate the spread between sessions"),
        (2.0, STEADY[:4], 30, "inconclusive", "few-sessions", "saved times alone: 4 comparable sessions of this case, "
         "at least 5 are needed to estimate the spread between sessions"),
        (1.2, STEADY, 30, "regressed", "saved-times", "20.0% slower than the spread of 8 sessions, deviation 0.3%, "
         "allows (interval +16.9% to +23.1% at 99.97% confidence, 7 launches); not raced"),
        (0.8, STEADY, 30, "improved", "saved-times", "20.0% faster than the spread of 8 sessions, deviation 0.3%, "
         "allows (interval -22.0% to -17.9% at 99.97% confidence, 7 launches); not raced"),
        (1.002, STEADY, 30, "unchanged", "saved-times", "within 5.0% by saved times, 0.2% slower, against the spread of "
         "8 sessions, deviation 0.3% (interval -0.7% to +1.1% at 95% confidence, 7 launches); not raced"),
        (1.045, [*STEADY, 1.02], 30, "inconclusive", "saved-times", "saved times do not decide: 4.5% slower; "
         "the spread of 9 sessions, deviation 0.7%, could hide 6.9%"),
    ],
)  # fmt: skip
def test_a_reason_states_the_change_and_the_spread(now, known, cases, outcome, code, text):
    own, *others = (session(one) for one in known)
    found = decide_on_saved(session(now, 7), [own], others, CALLS, POLICY, cases)
    assert (found.outcome, found.reason) == (Outcome(outcome), Reason(code, text))
    assert (found.comparison.launches, found.comparison.pairs, found.comparison.rounds) == (7, 1, 360)
    assert found.comparison.ratio.center == pytest.approx(now)


def test_the_ratio_of_too_few_sessions_is_unknown():
    found = decide_on_saved(session(3.0), [session(1.0), session(2.25)], [], CALLS, POLICY, 1).comparison.ratio
    assert found == Ratio(pytest.approx(2.0), 0.0, math.inf, 1.0)


def test_five_sessions_are_enough():
    assert judged(1.2, STEADY[:5]).outcome is Outcome.REGRESSED


def test_sessions_of_other_code_widen_the_spread_and_do_not_move_it():
    own, others = [session(1.0)], [session(one) for one in (1.1, 1.2, 1.1, 1.2)]
    found = decide_on_saved(session(1.0), own, others, CALLS, POLICY, 1)
    assert found.comparison.ratio.center == pytest.approx(1.0)
    assert found.outcome is Outcome.INCONCLUSIVE


def test_a_session_within_the_screen_tolerance_is_unchanged():
    found = judged(1.002)
    assert found.outcome is Outcome.UNCHANGED
    assert "within 5.0% by saved times" in found.reason.message
    assert "not raced" in found.reason.message


def test_a_session_far_above_the_spread_has_regressed():
    found = judged(1.2)
    assert found.outcome is Outcome.REGRESSED
    assert found.reason.message.startswith("20.0% slower than the spread of 8 sessions, deviation 0.3%, allows")


def test_a_session_far_below_the_spread_has_improved():
    assert judged(0.8).outcome is Outcome.IMPROVED


def test_an_undecided_session_states_the_possible_slowdown():
    found = judged(1.03, cases=300)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "could hide" in found.reason.message


def test_a_case_with_a_wide_spread_is_inconclusive():
    assert judged(1.2, [1.0, 1.1, 0.9, 1.2, 0.95, 1.05]).outcome is Outcome.INCONCLUSIVE


def test_the_floor_uses_as_many_launches_as_every_session_has():
    short = [1.0, 1.0, 1.0]
    now = [1.0, 1.0, 1.0, 0.5]  # a fourth launch that the others do not have
    assert (
        decide_on_saved(now, [short], [short, [1.01] * 3, [0.99] * 3, short], CALLS, POLICY, 1).outcome
        is Outcome.UNCHANGED
    )
    sessions = [[1.0, 1.0, 1.0, 0.5]], [short] * 4  # nor has other code
    assert decide_on_saved(now, *sessions, CALLS, POLICY, 1).outcome is Outcome.UNCHANGED


def test_launches_beyond_those_of_a_floor_do_not_count():
    many = [1.0] * POLICY.floor_launches
    now = [*many, 0.5]
    found = decide_on_saved(now, [now], [[*many, one] for one in (0.9, 0.8, 0.7, 0.6)], CALLS, POLICY, 1)
    assert found.reason.message.startswith("within 5.0% by saved times, 0.0% slower")


def test_more_cases_need_a_larger_change():
    assert judged(1.03, cases=1).outcome is Outcome.REGRESSED
    assert [judged(1.2, cases=cases).comparison.ratio.confidence for cases in (0, 1, 2)] == [
        1 - POLICY.alpha / shares for shares in (1, 1, 2)
    ]
    assert judged(1.03, cases=300).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("name", PRESETS)
def test_the_screen_tolerance_is_at_least_the_tolerance(name):
    assert PRESETS[name].screen_tolerance >= PRESETS[name].tolerance


@pytest.mark.parametrize("shape", ["normal", "heavy tails", "two modes"])
def test_unchanged_code_has_no_more_false_positives_than_the_budget_allows(shape):
    rng = np.random.default_rng(0)
    draw = {
        "normal": lambda size: rng.normal(0, 0.008, size),
        "heavy tails": lambda size: 0.005 * rng.standard_t(3, size),
        "two modes": lambda size: rng.normal(0, 0.006, size) + 0.02 * (rng.random(size) < 0.2),
    }[shape]
    policy, races = replace(POLICY, alpha=0.05), 2000
    outcomes = []
    for floors in np.exp(draw((races, 7))):
        now, *known = ([floor] for floor in floors)
        outcomes.append(decide_on_saved(now, known[:1], known[1:], CALLS, policy, 1).outcome)
    # Regressed needs the minimum effect beside the level, so it stays below half of alpha.
    assert outcomes.count(Outcome.REGRESSED) / races < policy.alpha / 2
    assert outcomes.count(Outcome.IMPROVED) / races < policy.alpha / 2


def test_slow_calls_that_the_fastest_blocks_do_not_show_are_raced():
    """Nine calls of ten take twice as long, and the fastest ones as long as before."""
    known = [[one] * 3 for one in (1.0, 1.002, 0.998, 1.001, 0.999)]
    alike = [1.0] * 100
    slow = [1.0] * 10 + [2.0] * 90
    some = [1.0] * 96 + [2.0] * 4  # within the tolerance of saved times
    assert decide_on_saved([1.0] * 3, known[:1], known[1:], (alike, some), POLICY, 1).outcome is Outcome.UNCHANGED
    assert decide_on_saved([1.0] * 3, known[:1], known[1:], (alike, alike), POLICY, 1).outcome is Outcome.UNCHANGED
    found = decide_on_saved([1.0] * 3, known[:1], known[1:], (alike, slow), POLICY, 1)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "the mean of all calls is 90.0% slower" in found.reason.message
