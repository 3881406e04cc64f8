"""What a launch tells besides the median of its rounds."""

import math

import numpy as np
import pytest

from tfbench.model import Effect, Run, Statistic
from tfbench.stats.verdict import calls_of, effect_of, pooled

ORDINARY = [1.0, 1.01, 0.99, 1.0] * 25


def run(seconds):
    return Run(tuple(seconds), 1)


def slow(share, factor):
    return [second * (factor if number < share * len(ORDINARY) else 1) for number, second in enumerate(ORDINARY)]


@pytest.mark.parametrize(("statistic", "expected"), [
    (Statistic.MEDIAN, 0.0), (Statistic.TAIL, 0.05 * math.log(10)), (Statistic.MEAN, math.log(1.45)),
])  # fmt: skip
def test_slow_calls_move_the_means_and_not_the_median(statistic, expected):
    effect = effect_of(statistic, run(ORDINARY), run(slow(0.05, 10)), 3)
    assert effect.value == pytest.approx(expected, abs=0.01)
    assert effect.pair == 3
    swapped = effect_of(statistic, run(slow(0.05, 10)), run(ORDINARY), 3)
    assert swapped.value == pytest.approx(-effect.value)


@pytest.mark.parametrize("statistic", [Statistic.TAIL, Statistic.MEAN])
def test_the_standard_error_is_that_of_repeated_launches(statistic):
    rng = np.random.default_rng(5)
    sides = np.exp(rng.normal(0, 0.05, (400, 2, 120)) + (rng.random((400, 2, 120)) < 0.05) * 1.5)
    effects = [effect_of(statistic, run(before), run(now), 0) for before, now in sides]
    assert np.std([one.value for one in effects]) == pytest.approx(np.median([one.error for one in effects]), rel=0.25)


def test_launches_have_the_mean_error_so_that_those_without_slow_calls_do_not_outweigh_the_others():
    effects = [Effect(0.1, 0, 0.03), Effect(0.0, 1, 0.0)]
    assert [one.error for one in pooled(effects)] == pytest.approx([0.03 / math.sqrt(2)] * 2)
    assert [one.value for one in pooled(effects)] == [0.1, 0.0]
    assert pooled([]) == []


def test_calls_are_described_by_their_times():
    before, now = calls_of([run(ORDINARY)], [run(slow(0.2, 10))])
    assert (before.slow, now.slow) == (0.0, 0.2)
    faster = run([second / 2 for second in ORDINARY])  # a launch has its own speed
    assert calls_of([run(ORDINARY), faster, faster], [faster])[0].slow == 0.0
    assert (before.p50, before.rounds) == (1.0, 100)
    assert now.p90 == pytest.approx(10, rel=0.02)
    assert now.mean == pytest.approx(2.8, rel=0.01)


def test_p90_needs_enough_rounds_of_single_calls():
    few = run(ORDINARY[:63])
    assert [side.p90 for side in calls_of([few], [few])] == [None, None]
    several = Run(tuple(ORDINARY), 2)
    assert calls_of([several], [several])[0].p90 is None
    assert calls_of([several, run(ORDINARY)], [several])[0].p90 is None
    once = Run((1.0,), 1)
    assert calls_of([once] * 3, [once] * 3) is None
