"""Slow calls, which the median of a race does not see, with scripted entrants."""

import random
from dataclasses import replace

import pytest

from tests.fakes.race import Clock, ScriptedLauncher, scripted_race, sides_of, steady, variants_of
from tfbench.doctor.calibration import TAILS
from tfbench.model import TIME, Case, Outcome, SlowCalls, Statistic
from tfbench.policy import Policy, preset
from tfbench.protocol import Prepared
from tfbench.race.confirmed import ConfirmedRace

CASE = Case("w.py::w", "w", "w.py::w")
ALIKE = steady(1e-4), steady(1e-4)


def raced(policy, seed, slow, *, scripts=ALIKE, case=CASE, each=1e-4):
    """Race two sides, whose calls take ``each`` seconds, to the end, confirmation included."""
    clock = Clock()
    launcher = ScriptedLauncher(clock, scripts if each == 1e-4 else (steady(each), steady(each)), seed)
    launcher.slow, launcher.step = slow, Prepared(each, {})
    race = ConfirmedRace(sides_of(case), launcher, policy, 320, clock, random.Random(seed), metrics=(TIME,))
    race.run()
    return race


@pytest.mark.parametrize("policy", ["quick", "standard", "strict"])
@pytest.mark.parametrize("kind", [name for name in TAILS if name != "25% wait" and "0." not in name])
def test_slow_calls_of_one_side_are_a_regression_although_the_median_is_unchanged(policy, kind):
    found = [raced(preset(policy), seed, {1: TAILS[kind]}).decision for seed in range(10)]
    assert [one.outcome for one in found].count(Outcome.REGRESSED) >= 9
    regressed = next(one for one in found if one.outcome is Outcome.REGRESSED)
    if kind != "33% x2":  # every third call moves the median a little
        assert regressed.statistic is Statistic.TAIL
        assert regressed.reason.code == "slow-calls"
        assert regressed.tail == regressed.comparison.ratio
        assert "the geometric mean of the calls is" in regressed.reason.message
        assert "found twice" in regressed.reason.message


def test_slow_calls_that_cost_less_than_the_minimum_effect_of_the_mean_are_unchanged():
    """The mean is 1.2% higher, which is more than the minimum effect of the median."""
    found = [raced(Policy(), seed, {1: SlowCalls(0.003, 5)}).decision.outcome for seed in range(6)]
    assert set(found) == {Outcome.UNCHANGED}


MILLISECOND = 1e-3
"""Of such a step, a launch has as many rounds as its seconds allow."""


@pytest.mark.parametrize(("rare", "regressed"), [(TAILS["0.5% x16"], 0.8), (TAILS["0.3% x60"], 0.7)])
def test_rare_slow_calls_that_raise_the_mean_are_found_where_calls_are_cheap(rare, regressed):
    """The geometric mean is 1.4% and 1.2% higher, and the mean 7.5% and 18%."""
    found = [raced(Policy(), seed, {1: rare}, each=MILLISECOND).decision for seed in range(10)]
    outcomes = [one.outcome for one in found]
    assert outcomes.count(Outcome.REGRESSED) >= regressed * len(found)
    assert outcomes.count(Outcome.UNCHANGED) <= 1
    rows = [one for one in found if one.outcome is Outcome.REGRESSED]
    assert {(one.statistic, one.reason.code) for one in rows} == {(Statistic.MEAN, "rare-slow-calls")}
    assert "rare slow calls: the mean of the calls is" in rows[0].reason.message
    assert "found twice" in rows[0].reason.message


@pytest.mark.parametrize(
    ("each", "slow", "races", "least"),
    [
        (MILLISECOND, SlowCalls(0.01, 60), 50, 46),
        (MILLISECOND, SlowCalls(0.02, 60), 50, 46),
        (1e-4, SlowCalls(0.05, 10), 20, 18),
        (1e-4, SlowCalls(0.003, 30), 60, 54),
        (1e-4, SlowCalls(0.1, 1.5), 60, 54),
    ],
)
def test_slow_calls_that_both_sides_have_are_no_change_and_leave_few_cases_open(each, slow, races, least):
    found = [raced(preset("quick"), seed, {0: slow, 1: slow}, each=each).decision.outcome for seed in range(races)]
    assert not {Outcome.REGRESSED, Outcome.IMPROVED} & set(found)
    assert found.count(Outcome.UNCHANGED) >= least


@pytest.mark.parametrize(
    ("slow", "seconds", "code"),
    [({0: TAILS["5% x10"]}, 1e-4, "fewer-slow-calls"), ({1: SlowCalls(0.4, 2)}, 0.5e-4, "faster")],
)
def test_fewer_slow_calls_and_half_of_the_calls_twice_as_fast_are_an_improvement(slow, seconds, code):
    """The slower half is slow beside the new median, but no slower than before."""
    decision = raced(Policy(), 1, slow, scripts=(steady(1e-4), steady(seconds))).decision
    assert (decision.outcome, decision.reason.code) == (Outcome.IMPROVED, code)
    assert decision.tail is None or decision.tail.high < 1


def test_a_faster_median_does_not_hide_slow_calls():
    scripts = steady(1e-4), steady(0.97e-4)
    assert raced(Policy(), 1, {1: TAILS["5% x10"]}, scripts=scripts).decision.outcome is Outcome.REGRESSED
    assert raced(Policy(), 1, {}, scripts=scripts).decision.outcome is Outcome.IMPROVED


@pytest.mark.parametrize(("slow", "contender"), [
    ({1: SlowCalls(0.05, 10)}, 0.85e-4),
    ({0: SlowCalls(0.04, 50), 1: SlowCalls(0.04, 80)}, 1e-4),
])  # fmt: skip
def test_slow_calls_that_raise_the_mean_alone_do_not_pass(slow, contender):
    """The geometric mean is 5% lower and 2% higher, and the mean 23% and 41% higher."""
    scripts = steady(1e-4), steady(contender)
    found = [raced(preset("quick"), seed, slow, scripts=scripts).decision for seed in range(20)]
    passed = [one for one in found if one.outcome in (Outcome.UNCHANGED, Outcome.IMPROVED)]
    assert len(passed) <= 1
    assert any("but with slow calls the mean is" in one.reason.message for one in found)


def test_a_tail_that_is_not_proved_is_inconclusive_and_says_what_it_could_cost():
    noise = SlowCalls(0.15, 60)
    policy = replace(preset("quick"), looks=(2, 3))
    found = [raced(policy, seed, {0: noise, 1: noise}).decision for seed in range(10)]
    told = [one.reason for one in found if one.outcome is Outcome.INCONCLUSIVE]
    assert told
    assert any(one.code == "tail-not-decided" and "slow calls could cost" in one.message for one in told)
    assert all(one.outcome in (Outcome.INCONCLUSIVE, Outcome.UNCHANGED) for one in found)


@pytest.mark.parametrize(
    ("ratio", "deviation", "outcome"), [(1.0, 0.05, Outcome.UNCHANGED), (1.03, 0.002, Outcome.REGRESSED)]
)
def test_a_median_that_is_proved_unchanged_stays_so_while_the_tail_is_open_unless_it_regresses(
    ratio, deviation, outcome
):
    def later(number, pair, rng):
        return 1e-4 * (1 + rng.gauss(0, 0.002)) if number < 4 else ratio * 1e-4 * (1 + rng.gauss(0, deviation))

    slow = dict.fromkeys((0, 1), SlowCalls(0.15, 60))
    race, _ = scripted_race(sides_of(CASE), [steady(1e-4), later], Policy(rare_calls=0), seed=4, slow=slow)
    race.run()
    decision = race.decisions[1]
    assert race._proved[race._basis, 1, Statistic.MEDIAN].outcome is Outcome.UNCHANGED
    assert decision.outcome is outcome
    assert (decision.comparison.launches == 4) is (outcome is Outcome.UNCHANGED)


@pytest.mark.parametrize(("statistic", "slow", "outcome"), [
    ("mean", SlowCalls(0.05, 10), Outcome.REGRESSED),
    ("mean", None, Outcome.UNCHANGED),
])  # fmt: skip
def test_another_statistic_decides_if_the_policy_or_the_case_says_so(statistic, slow, outcome):
    slow = {1: slow} if slow else {}
    of_policy = raced(replace(Policy(), statistic=statistic), 1, slow).decision
    of_case = raced(Policy(), 1, slow, case=replace(CASE, statistic=statistic)).decision
    assert of_policy == of_case
    assert (of_policy.outcome, of_policy.tail) == (outcome, None)
    assert of_policy.statistic == statistic


def test_variants_are_compared_by_their_medians():
    race, _ = scripted_race(variants_of("x", "y"), ALIKE, slow={1: TAILS["5% x10"]})
    race.run()
    assert race.decisions[1].outcome is Outcome.UNCHANGED


LONG = {"scripts": [steady(0.06)] * 2, "step": Prepared(0.06, {}, waiting=0.0), "waits": {0: 0.0, 1: 0.0}}


@pytest.mark.parametrize(("waits", "sliced"), [({0: 0.0, 1: 0.0}, True), ({0: 0.0, 1: 0.15}, False)])
def test_a_long_step_takes_turns_first_and_in_every_launch_if_it_waits_in_some_calls(waits, sliced):
    race, launcher = scripted_race(sides_of(CASE), **LONG | {"waits": waits})
    race.run()
    assert [launch.plan.sliced for launch in launcher.launches] == [False] + [sliced] * (len(launcher.launches) - 1)


def test_a_long_step_that_waits_in_a_later_launch_takes_turns_from_then_on_and_that_launch_does_not_count():
    """Few calls wait, and none of the first launch."""
    race, launcher = scripted_race(sides_of(CASE), **LONG, late_waits={1: 0.15})
    race.run()
    sliced = [launch.plan.sliced for launch in launcher.launches]
    assert sliced == [False, True] + [False] * (len(sliced) - 2)
    assert len(race.launches) == len(sliced) - 1


@pytest.mark.parametrize(("waiting", "sliced"), [
    ((0.0, 0.0), True), ((0.0, None), False), ((None, 0.0), False), ((0.0, 0.004), True), ((0.006, 0.0), False),
])  # fmt: skip
def test_a_long_step_is_sliced_if_no_side_waits_for_a_quarter_of_the_tolerance(waiting, sliced):
    race, _ = scripted_race(sides_of(CASE), **LONG)
    race.run()
    plan = race._plan({side: Prepared(0.06, {}, waiting=share) for side, share in enumerate(waiting)})
    assert plan.sliced is sliced
