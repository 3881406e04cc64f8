"""Outcomes of intervals, and their reasons."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tfbench.model import Comparison, Effect, Outcome, Ratio, Reason, ReasonCode, Run, Statistic, because
from tfbench.model.words import change, evidence, hidden
from tfbench.policy import Policy
from tfbench.stats.alpha_spending import case_alpha, look_alpha, unchanged_alpha
from tfbench.stats.interval import interval
from tfbench.stats.verdict import (
    Decision,
    Terms,
    balanced,
    classify,
    compare,
    decide,
    excess,
    launches_needed,
    leaves_work,
    with_mean,
    with_retraces,
    with_tail,
    with_work_beside,
)

POLICY = Policy()


def effects(center, spread=0.002, launches=6):
    return [Effect(center + (-1) ** index * spread, index % 6) for index in range(launches)]


def judged(center, *, policy=POLICY, final=False, spread=0.002, launches=6, cases=30):
    found = effects(center, spread, launches)
    return decide(found, 100 * launches, Terms(policy, cases, False, policy.step_time), final)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.011, 1.5, Outcome.REGRESSED),
        (1.011, 1.019, Outcome.REGRESSED),  # within the tolerance, but slower by more than the minimum
        (1.010, 1.5, None),
        (0.5, 0.990, Outcome.IMPROVED),
        (0.981, 1.02, Outcome.UNCHANGED),
        (1.003, 1.019, Outcome.UNCHANGED),  # real, but too small to matter
        (1.005, 1.021, None),  # real, but perhaps large enough to matter
        (1 / 1.02, 1.02, Outcome.UNCHANGED),
        (1 / 1.02 - 1e-9, 1.0, None),
        (0.0, 1 / 1.01 - 1e-9, Outcome.IMPROVED),
        (1.01 + 1e-9, math.inf, Outcome.REGRESSED),
    ],
)
def test_the_outcome_that_an_interval_proves(low, high, outcome):
    assert classify(low, high, POLICY.step_time) is outcome


def test_an_undecided_race_goes_on_until_the_last_look():
    assert judged(0.05).outcome is Outcome.REGRESSED
    assert judged(-0.05).outcome is Outcome.IMPROVED
    assert judged(0.0).outcome is Outcome.UNCHANGED
    assert judged(0.015).outcome is None
    assert judged(0.015, final=True).outcome is Outcome.INCONCLUSIVE


def test_unchanged_is_proved_and_reported_at_a_level_of_its_own():
    found = judged(0.0, cases=10_000)
    plain = interval(effects(0.0), unchanged_alpha(POLICY, 2), POLICY, shared_zygote=False)
    assert found.outcome is Outcome.UNCHANGED
    assert found.comparison.ratio == replace(plain, confidence=1 - 2 * POLICY.alpha_unchanged)
    assert "at 94% confidence" in found.reason.message
    assert judged(0.0, cases=1).comparison == found.comparison  # cases do not share it
    assert judged(0.0, policy=replace(POLICY, alpha_unchanged=1e-6)).outcome is None


def test_a_probable_change_that_is_within_the_tolerance_is_raced_on():
    policy = replace(POLICY, alpha_unchanged=0.06)
    plain = interval(effects(0.015), unchanged_alpha(policy, 2), policy, shared_zygote=False)
    assert 1 + policy.minimum_effect < plain.low < plain.high < 1 + policy.tolerance
    assert judged(0.015, policy=policy, cases=320).outcome is None


def test_the_interval_of_a_look_has_the_level_of_that_look():
    evidence = effects(0.01, launches=9)
    found = compare(evidence, 900, Terms(POLICY, 30, False, POLICY.step_time)).ratio
    plain = interval(evidence, look_alpha(POLICY, 30, 3), POLICY, shared_zygote=False)
    assert (found.low, found.high) == (plain.low, plain.high)
    part = compare(evidence, 900, Terms(POLICY, 30, False, POLICY.step_time, 0.25))
    plain = interval(evidence, look_alpha(POLICY, 30, 3, 0.25), POLICY, shared_zygote=False)
    assert part.ratio == replace(plain, confidence=1 - 0.25 * case_alpha(POLICY, 30))
    assert (part.launches, part.rounds) == (9, 900)


RATIO = {"low": 0.984, "high": 1.024, "confidence": 0.96354}
END = "interval -1.6% to +2.4% at 96.35% confidence, 6 launches"
FIX = "use --policy strict or a quieter machine (`tfbench doctor`)"


@pytest.mark.parametrize(
    ("code", "ratio", "text"),
    [
        ("slower", Ratio(1.052, **RATIO), f"5.2% slower ({END})"),
        ("faster", Ratio(0.95, **RATIO), f"5.0% faster ({END})"),
        ("within-tolerance", Ratio(1.0, **RATIO), f"within 2.0% either way: 0.0% slower ({END})"),
        ("not-decided", Ratio(1.0, **RATIO), f"not decided: a slowdown of 2.4% cannot be ruled out ({END}); {FIX}"),
        ("racing", Ratio(1.0, 0.5, 2.0, 0.99), "not decided: a slowdown of a factor of 2.0 cannot be ruled out "
         f"(interval -50.0% to +100.0% at 99% confidence, 6 launches); {FIX}"),
        ("racing", Ratio(1.0, 0.9, 1.01, 0.99), "not decided, but not slower: at most 1.0% slower "
         f"(interval -10.0% to +1.0% at 99% confidence, 6 launches); {FIX}"),
    ],
)  # fmt: skip
def test_a_reason_states_the_change_its_evidence_and_the_fix(code, ratio, text):
    for policy, shown in (("standard", text), ("strict", text.replace("--policy strict or ", ""))):
        facts = {"within-tolerance": {"tolerance": POLICY.tolerance}, "slower": {}, "faster": {}}
        # 1.01 - 1 is a little more than 0.01 in binary
        more = facts.get(code, {"minimum_effect": 1.01 - 1, "policy": policy})
        assert because(ReasonCode(code), ratio=ratio, launches=6, **more) == Reason(code, shown)


def test_a_decision_by_other_thresholds_uses_them_for_the_noise_too():
    noisy = POLICY.step_time._replace(minimum_effect=0.1, tolerance=0.2, launch_deviation=0.03, zygote_deviation=0.02)
    evidence = effects(0.05)
    found = decide(evidence, 6, Terms(POLICY, 30, True, noisy), True)
    plain = compare(evidence, 6, Terms(POLICY, 30, True, noisy))
    narrow = interval(evidence, unchanged_alpha(POLICY, 2), POLICY, shared_zygote=True, expected=noisy)
    assert found.outcome is Outcome.UNCHANGED
    assert found.comparison == replace(plain, ratio=replace(narrow, confidence=1 - 2 * POLICY.alpha_unchanged))
    assert found.reason.message.startswith("within 20.0% either way: 5.1% slower")
    assert plain.ratio != compare(evidence, 6, Terms(POLICY, 30, False, noisy)).ratio
    assert plain.ratio != compare(evidence, 6, Terms(POLICY, 30, True, POLICY.step_time)).ratio
    found = decide(effects(0.5), 6, Terms(POLICY, 30, True, noisy), True)
    plain = compare(effects(0.5), 6, Terms(POLICY, 30, True, noisy))
    assert (found.outcome, found.comparison) == (Outcome.REGRESSED, plain)


def with_slow_mode(slow, of=18, by=0.3):
    """Launches of which some are in a slow mode of one side."""
    return [Effect(by if number < slow else (-1) ** number * 0.001, number % 6) for number in range(of)]


def test_a_slow_mode_of_one_side_is_not_unchanged():
    found = decide(with_slow_mode(3), 180, Terms(POLICY, 1, False, POLICY.step_time), True)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reason == Reason(
        "not-decided",
        "not decided: 3 of 18 launches disagree with the rest, and the mean of all launches is 5.1% slower; "
        "one side may be bimodal, as the launches in --report-html show",
    )
    early = decide(with_slow_mode(3), 180, Terms(POLICY, 1, False, POLICY.step_time), False)
    assert (early.outcome, early.reason) == (None, Reason("racing", found.reason.message))
    one = decide(with_slow_mode(1), 180, Terms(POLICY, 1, False, POLICY.step_time), True)
    assert one.outcome is Outcome.UNCHANGED


def test_the_mean_of_balanced_launches_lies_within_the_tolerance():
    limit = math.log1p(POLICY.tolerance)
    races = np.array([[0.0, 0.0], [2 * limit, 0.0], [2 * limit + 1e-9, 0.0], [-2 * limit - 1e-9, 0.0], [0.5, -0.5]])
    assert balanced(races, POLICY.step_time).tolist() == [True, True, False, False, True]


def test_changes_are_formatted_for_people():
    assert change(1.052) == "5.2% slower"
    assert change(0.948) == "5.2% faster"
    assert change(3.44) == "3.4x slower"
    assert change(0.25) == "4.0x faster"
    assert [change(ratio) for ratio in (1.0, 2.0, 0.5)] == ["0.0% slower", "2.0x slower", "2.0x faster"]
    assert evidence(Ratio(2.0, 2.999, 3.0, 0.95), 1) == "interval 3.0x to 3.0x at 95% confidence, 1 launch"
    assert evidence(Ratio(2.0, 1.5, 12.34, 0.95), 1) == "interval 1.5x to 12.3x at 95% confidence, 1 launch"
    assert hidden(Ratio(1, 0.9, 1.043, 0.99)) == pytest.approx(0.043)
    assert hidden(Ratio(0.9, 0.8, 0.95, 0.99)) == 0


@pytest.mark.parametrize(("center", "launches"), [(0.0, 4.1), (0.015, 61.0), (0.05, 1.0)])
def test_the_launches_that_a_decision_takes_follow_from_mean_and_scatter(center, launches):
    evidence = [Effect(center + away, pair) for pair, away in enumerate((-0.02, -0.02, 0.0, 0.02, 0.02))]
    assert launches_needed(evidence, POLICY.step_time, POLICY.clip) == pytest.approx(launches, rel=0.05)


@pytest.mark.parametrize("launches", [2, 3, 4, 6, 9])
def test_one_outlying_launch_does_not_make_a_decision_look_out_of_reach(launches):
    alike = [0.001 * (-1) ** number for number in range(launches - 1)]
    needed = [
        launches_needed([Effect(value, 0) for value in (*alike, outlier)], POLICY.step_time, POLICY.clip)
        for outlier in (0.0, 0.3, -0.8)
    ]
    assert max(needed) < POLICY.looks[-1]


def test_launches_that_all_scatter_make_a_decision_look_out_of_reach():
    for launches in ((0.0, 0.1, -0.1, 0.3), (0.0, 0.1, 0.2, -0.1, -0.2, 0.3)):
        assert launches_needed([Effect(value, 0) for value in launches], POLICY.step_time, POLICY.clip) > 60


REGRESSED, IMPROVED, UNCHANGED = Outcome.REGRESSED, Outcome.IMPROVED, Outcome.UNCHANGED
INCONCLUSIVE, OPEN = Outcome.INCONCLUSIVE, None
MEDIAN, TAIL = Statistic.MEDIAN, Statistic.TAIL
STATED = Reason("stated", "as the median says")
LIMIT = 1 + POLICY.tail_tolerance


def proof(outcome, statistic=MEDIAN, high=1.0):
    comparison = Comparison(Ratio(1.0, 0.5, high, 0.94), 6, 60)
    return Decision(outcome, STATED, comparison, statistic)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize(
    ("median", "tail", "high", "expected"),
    [
        (REGRESSED, REGRESSED, 2.0, (REGRESSED, MEDIAN)),
        (UNCHANGED, REGRESSED, 2.0, (REGRESSED, TAIL)),
        (IMPROVED, REGRESSED, 2.0, (REGRESSED, TAIL)),
        (OPEN, REGRESSED, 2.0, (REGRESSED, TAIL)),
        (OPEN, IMPROVED, 0.9, (OPEN, MEDIAN)),
        (INCONCLUSIVE, IMPROVED, 0.9, (INCONCLUSIVE, MEDIAN)),
        (INCONCLUSIVE, OPEN, LIMIT + 1e-9, (INCONCLUSIVE, MEDIAN)),
        (UNCHANGED, IMPROVED, 0.9, (IMPROVED, TAIL)),
        (UNCHANGED, UNCHANGED, 1.0, (UNCHANGED, MEDIAN)),
        (IMPROVED, OPEN, LIMIT, (IMPROVED, MEDIAN)),
        (IMPROVED, OPEN, LIMIT + 1e-9, (OPEN, MEDIAN)),
        (UNCHANGED, OPEN, LIMIT + 1e-9, (OPEN, MEDIAN)),
    ],
)
def test_a_case_is_not_slower_only_if_median_and_tail_are_not(median, tail, high, expected, final):
    both = proof(median), proof(tail, TAIL, high)
    found = with_tail(*both, POLICY.tail_time, final, 1)
    unproved = expected[0] is OPEN and final and median is not OPEN
    assert (found.outcome, found.statistic) == (INCONCLUSIVE if unproved else expected[0], expected[1])
    assert found.tail == both[1].comparison.ratio
    if median is not OPEN:
        assert ("slow calls could cost" in found.reason.message) is (expected[0] is OPEN)
    if expected[1] is TAIL:
        assert found.reason.facts["median"] == (None if median is UNCHANGED else 1.0)


def test_a_tail_that_is_bounded_decides_an_unchanged_median_at_the_last_look_alone():
    both = proof(UNCHANGED), proof(OPEN, TAIL, LIMIT)
    assert [with_tail(*both, POLICY.tail_time, final, 1).outcome for final in (False, True)] == [OPEN, UNCHANGED]


@pytest.mark.parametrize(("rounds", "said"), [(60, False), (61, True)])
def test_unchanged_says_which_slow_calls_few_rounds_may_not_contain(rounds, said):
    found = with_tail(proof(UNCHANGED), proof(UNCHANGED, TAIL), POLICY.tail_time, False, rounds)
    assert ("60 rounds may miss calls that are slow more rarely than 5%" in found.reason.message) is said
    faster = with_tail(proof(IMPROVED), proof(UNCHANGED, TAIL), POLICY.tail_time, False, rounds)
    assert faster.reason == STATED


def by_work(decision, ratio, final):
    return with_work_beside(decision, Comparison(ratio, 6, 600), POLICY.tail_time, ((), ()), final)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize(
    ("center", "low", "refused"),
    [(LIMIT, 0.9, "nothing"), (1.5, 0.9, OPEN), (LIMIT + 1e-9, 0.9, OPEN), (1.5, 1.4, INCONCLUSIVE), (LIMIT, 1.06, INCONCLUSIVE)],
)  # fmt: skip
def test_work_beside_the_calls_refuses_a_pass_and_nothing_else(center, low, refused, final):
    ratio = Ratio(center, low, 2.0, 0.99)
    for outcome in (REGRESSED, INCONCLUSIVE, OPEN):
        decision = proof(outcome)
        assert by_work(decision, ratio, final) is decision
    for outcome in (UNCHANGED, IMPROVED):
        decision = proof(outcome)
        found = by_work(decision, ratio, final)
        if (center, low) == (LIMIT, 0.9):
            assert found is decision
        else:
            assert found.outcome is (INCONCLUSIVE if final else refused)
            assert found.reason.code == ("racing" if found.outcome is OPEN else "work-beside")
            (reason,) = found.reason.notes or [found.reason]
            assert reason.code == "work-beside"
            assert reason.facts == {"ratio": ratio, "launches": 6, "calls": 1.0}
            assert found.comparison == decision.comparison


def means(center, errors, count=4):
    """Effects of launches whose mean is so many of their standard errors above 0."""
    return [Effect(center, pair, 2 * center / errors) for pair in range(count)]


LEAST, MOST = math.log1p(POLICY.tail_effect), math.log1p(POLICY.tail_tolerance)


@pytest.mark.parametrize(
    ("median", "center", "errors", "now", "at_the_end"),
    [
        (UNCHANGED, LEAST / 2, 9.0, UNCHANGED, UNCHANGED),
        (UNCHANGED, LEAST, 9.0, OPEN, UNCHANGED),
        (UNCHANGED, 1.01 * LEAST, 0.9, UNCHANGED, UNCHANGED),
        (UNCHANGED, 1.01 * LEAST, 0.91, OPEN, UNCHANGED),
        (UNCHANGED, 1.01 * LEAST, 2.01, OPEN, INCONCLUSIVE),
        (IMPROVED, MOST / 2, 9.0, IMPROVED, IMPROVED),
        (IMPROVED, MOST, 9.0, OPEN, IMPROVED),
        (IMPROVED, 1.01 * MOST, 2.01, OPEN, INCONCLUSIVE),
        (REGRESSED, 1.0, 9.0, REGRESSED, REGRESSED),
        (OPEN, 1.0, 9.0, OPEN, OPEN),
    ],
)
def test_a_mean_that_may_be_slower_passes_no_case(median, center, errors, now, at_the_end):
    mean = Comparison(Ratio(1.5, 0.9, 2.0, 0.99), 4, 600)
    for final, expected in ((False, now), (True, at_the_end)):
        decision = proof(median)
        found = with_mean(decision, mean, means(center, errors), POLICY.tail_time, final)
        assert found.outcome is expected
        assert (found is decision) is (expected is median)
        if found is not decision:
            (reason,) = found.reason.notes or [found.reason]
            facts = {"ratio": mean.ratio, "launches": 4, "median": None if median is UNCHANGED else 1.0}
            assert (reason.code, reason.facts) == ("mean-slower", facts)


@pytest.mark.parametrize("final", [False, True])
def test_a_mean_that_is_proved_to_be_slower_is_a_regression_unless_the_median_is_faster(final):
    mean = Comparison(Ratio(1.5, 1.4, 2.0, 0.99), 4, 600)
    found = with_mean(proof(UNCHANGED), mean, means(0.4, 9.0), POLICY.tail_time, final)
    assert (found.outcome, found.statistic, found.comparison) == (REGRESSED, Statistic.MEAN, mean)
    assert (found.reason.code, found.reason.facts) == ("rare-slow-calls", {"ratio": mean.ratio, "launches": 4})
    found = with_mean(proof(IMPROVED), mean, means(0.4, 9.0), POLICY.tail_time, final)
    assert (found.outcome, found.reason.code) == (INCONCLUSIVE, "mean-slower")


def test_launches_that_scatter_more_than_their_rounds_explain_are_no_evidence_for_a_slower_mean():
    effects = [Effect(value, pair, 1e-6) for pair, value in enumerate((-0.1, 0.2, 0.0, 0.2))]
    assert excess(effects) == (pytest.approx(0.075), pytest.approx(1.0))
    assert excess([Effect(0.1, 0, 0.0)]) == (0.1, math.inf)


def test_work_beside_the_calls_matters_where_most_launches_leave_as_much_as_the_minimum_effect():
    def leaving(*seconds):
        return leaves_work([Run((1.0, 1.0), 1, {"beside": one}) for one in seconds], POLICY.step_time)

    assert leaving(0.01, 0.01, 0.0)
    assert not leaving(0.0099, 0.0099, 0.5)
    assert not leaving(0.0, 0.0)


def launches(fact, *having):
    return [Run((1.0,), 1, {fact: True} if one else {}) for one in having]


@pytest.mark.parametrize("outcome", [*Outcome])
def test_only_a_fact_of_most_launches_of_the_contender_refuses_a_pass(outcome):
    decision = Decision(outcome, STATED, proof(REGRESSED).comparison)
    passes = outcome in (UNCHANGED, IMPROVED)
    assert with_retraces(decision, launches("retraced", True, False)) is decision
    assert with_retraces(decision, launches("retraced", True, True, False)).outcome is (
        INCONCLUSIVE if passes else outcome
    )
    half, most = launches("restless", True, False), launches("restless", True, True, False)
    whole = Comparison(Ratio(1.0, 0.9, 1.1, 0.99), 6, 600)

    def found(*sides):
        return with_work_beside(decision, whole, POLICY.step_time, sides, False)

    assert found(half, half) is found(most, half) is decision
    assert found(half, most).outcome is (INCONCLUSIVE if passes else outcome)
    assert found(most, most).outcome is outcome
    assert (found(most, most).reason != decision.reason) is passes
