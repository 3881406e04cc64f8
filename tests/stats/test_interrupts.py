"""What the timer's interrupts cost, and the times of blocks without them."""

import numpy as np
import pytest

from tfbench.stats.rounds import interrupt_cost, without_interrupts


def side(rng, rounds=150, share=0.2, cost=50.0, deviation=0.02, time=1000.0):
    """Returns the times of a side's blocks in microseconds, and how many interrupts each contains."""
    counts = (rng.random(rounds) < share).astype(int)
    return time * np.exp(deviation * rng.standard_normal(rounds)) + cost * counts, counts


def two(seed, slowdown=0.0, **how):
    rng = np.random.default_rng(seed)
    sides = side(rng, **how), side(rng, time=1000 * (1 + slowdown), **how)
    return [times for times, _ in sides], [counts for _, counts in sides]


def effect(times):
    return float(np.median(np.log(times[1] / times[0])))


def test_the_cost_is_what_blocks_with_an_interrupt_take_longer():
    assert np.mean([interrupt_cost(*two(seed)) for seed in range(50)]) == pytest.approx(50, rel=0.03)


def test_times_without_interrupts_scatter_less_and_keep_the_ratio_of_the_sides():
    plain, less = [], []
    for seed in range(400):
        times, counts = two(seed, slowdown=0.01)
        plain.append(effect(times))
        less.append(effect(without_interrupts(times, counts)))
    error = np.std(plain) / len(plain) ** 0.5
    assert np.mean(less) == pytest.approx(np.log(1.01), abs=3 * error)
    assert np.std(less) < 0.8 * np.std(plain)


@pytest.mark.parametrize(
    "how",
    [{"cost": 0.0}, {"share": 0.0}, {"share": 1.0}, {"rounds": 12}],
    ids=["cost nothing", "none", "in every block", "few blocks"],
)
def test_times_stay_as_they_are_where_blocks_tell_no_cost(how):
    kept = 0
    for seed in range(100):
        times, counts = two(seed, **how)
        kept += all(map(np.array_equal, without_interrupts(times, counts), times))
    assert kept >= 95


def test_blocks_with_several_interrupts_are_too_long_to_tell():
    times, counts = two(1)
    counts[0][0] = 2
    assert interrupt_cost(times, counts) == 0


def test_no_more_than_half_of_a_block_is_taken():
    times, counts = two(1)
    times[0][counts[0].argmax()] = 30
    assert without_interrupts(times, counts)[0].min() == 15
