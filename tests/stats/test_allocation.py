"""The number of rounds of a launch."""

import math

import numpy as np
import pytest

from tests.stats.recorded import recorded
from tfbench.model import Effect
from tfbench.stats.interval import quantile_error
from tfbench.stats.rounds import best_rounds, shifts


def launches(rng, between, within, rounds, count=3):
    return [between * rng.normal() + within * rng.normal(size=rounds) for _ in range(count)]


def best_rounds_of(ratios, *rest):
    """Choose by the medians of launches, given as the log-ratios of their rounds."""
    effects = [Effect(float(np.median(one)), 0, quantile_error(np.asarray(one))) for one in ratios]
    return best_rounds(effects, [len(one) for one in ratios], *rest)


def mean_variance(between, within, rounds):
    return between**2 + math.pi / 2 * within**2 / rounds


@pytest.mark.parametrize(("between", "within"), [(0.008, 0.02), (0.003, 0.14), (0.005, 0.06)])
def test_the_chosen_number_has_nearly_the_least_variance_per_second(between, within):
    """With three launches, a tenth of the time is lost to the error of the choice."""
    rng = np.random.default_rng(2)

    def variance_of_a_second(rounds):
        return mean_variance(between, within, rounds) * (0.6 + rounds * 0.0014)

    best = min(map(variance_of_a_second, range(10, 3000, 5)))
    chosen = [best_rounds_of(launches(rng, between, within, 200), 0.006, 0.6, 0.0014) for _ in range(300)]
    assert np.median([variance_of_a_second(one) for one in chosen]) < 1.1 * best
    assert np.quantile([variance_of_a_second(one) for one in chosen], 0.9) < 1.5 * best


def test_launches_that_agree_do_not_ask_for_endless_rounds():
    same = [np.linspace(-0.01, 0.01, 201)] * 3
    assert best_rounds_of(same, 0.006, 0.6, 0.0014) < 1000


@pytest.mark.parametrize("kind", ["quiet", "busy"])
def test_a_ratio_that_changes_within_launches_is_told_from_noise(kind):
    """Half as slow again from three quarters of a launch on, against unchanged code."""
    rng, counts, found, alarms = np.random.default_rng(5), 0, 0, 0
    for ratios, *_ in recorded(kind):
        for _ in range(20):
            some = ratios[rng.permutation(len(ratios))[:3], :200]
            later = some.copy()
            later[:, 3 * some.shape[1] // 4 :] += math.log(1.5)
            counts += 1
            found += shifts(list(later), 0.02)
            alarms += shifts(list(some), 0.02)
    print(f"{kind}: found {found / counts:.0%}, false alarms {alarms / counts:.1%}")
    assert found >= 0.98 * counts
    assert alarms < 0.02 * counts


def test_few_rounds_show_no_shift():
    assert not shifts([np.arange(11.0)], 0.01)
    assert not shifts([], 0.01)
    assert shifts([np.repeat([0.0, 1.0], [20, 10])], 0.01)
