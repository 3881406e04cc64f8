"""Times of blocks whose processor other programs took, and what they tell about a ratio."""

import math

import pytest

from tfbench.model import DOUBT, HANDED, Effect, Outcome, Run, Statistic
from tfbench.policy import Policy
from tfbench.stats.interval import interval
from tfbench.stats.rounds import without_neighbours
from tfbench.stats.verdict import Terms, decide, effect_of, launches_needed

POLICY = Policy()


@pytest.mark.parametrize(
    ("least", "waiting", "foreign", "last", "doubt"),
    [
        (5.0, None, 0.0, 16.0, 0.0),  # a quiet machine
        (4.0, None, 2.0, 4.0, math.log(4) / 2),
        (4.0, 0.01, 2.0, 4.0, math.log(1.01) / 2),  # a step that is known not to wait
        (4.0, None, 0.1, 16 * 0.9, -math.log(0.9) / 2),  # neighbours have taken no more than they ran
    ],
)
def test_a_block_whose_bounds_lie_apart_takes_the_least_and_may_be_too_short(least, waiting, foreign, last, doubt):
    found = without_neighbours([10.0, 16.0], {1: least}, waiting, foreign)
    assert found == ([10.0, pytest.approx(last)], pytest.approx(doubt))


@pytest.mark.parametrize("statistic", [Statistic.MEDIAN, Statistic.TAIL, Statistic.MEAN])
def test_an_effect_has_the_doubts_of_both_sides(statistic):
    sides = (Run((1.0,) * 20, 1, {DOUBT: 0.1}), Run((2.0,) * 20, 1, {DOUBT: 0.3}))
    assert effect_of(statistic, *sides, 0).doubt == (0.1, 0.3)


def test_spinning_between_pieces_of_work_is_no_doubt_where_both_sides_have_it():
    alike = Run((1e-3,) * 20, 1, {HANDED: 2.0})
    shorter = Run((0.25e-3,) * 20, 1, {HANDED: 2.0})
    assert effect_of(Statistic.MEDIAN, alike, alike, 0).doubt == (0.0, 0.0)
    below, above = effect_of(Statistic.MEDIAN, shorter, alike, 0).doubt
    assert below == pytest.approx(math.log(1.8 / 1.2))
    assert above == pytest.approx(math.log(0.8 / 0.2))


def test_a_doubt_widens_the_interval_and_does_not_average_out():
    for launches in (3, 30):
        sure, doubtful = (
            interval([Effect(0.0, 0, doubt=(doubt, 2 * doubt))] * launches, 0.01, POLICY, shared_zygote=False)
            for doubt in (0, 0.5)
        )
        assert doubtful.low == pytest.approx(sure.low * math.exp(-0.5))
        assert doubtful.high == pytest.approx(sure.high * math.exp(1.0))


def test_a_case_that_neighbours_leave_open_says_so_and_ends_soon():
    effects = [Effect(0.001, 0, doubt=(0.1, 0.2))] * 6
    decision = decide(effects, 300, Terms(POLICY, 1, False, POLICY.step_time), True)
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert "its time may be up to 22.1% slower than shown: race on other processors (--cpus)" in str(decision.reason)
    assert launches_needed(effects, POLICY.step_time, POLICY.clip) == math.inf


def test_a_change_that_is_larger_than_the_doubt_is_decided():
    effects = [Effect(2.0, 0, doubt=(0.2, 0.2))] * 6
    assert decide(effects, 300, Terms(POLICY, 1, False, POLICY.step_time), True).outcome is Outcome.REGRESSED
