"""Steps whose calls have two speeds, by simulation."""

import math

import numpy as np
import pytest

from tfbench.stats.rounds import two_speeds

RNG = np.random.default_rng(8)


def launches(draw, rounds, count=2):
    """Return the rounds of some launches in seconds, with a deviation between launches."""
    return [np.exp(draw(rounds) + RNG.normal(0, 0.03)).tolist() for _ in range(count)]


def bistable(share, slow=2.3):
    return lambda rounds: RNG.normal(0, 0.03, rounds) + (RNG.random(rounds) < share) * math.log(slow)


NOISE = {
    "normal": lambda rounds: RNG.normal(0, 0.14, rounds),
    "heavy tails": lambda rounds: 0.14 * RNG.standard_t(3, rounds),
    "skewed": lambda rounds: RNG.exponential(0.14, rounds),
    "bursts": lambda rounds: RNG.normal(0, 0.02, rounds) + (RNG.random(rounds) < 0.15) * RNG.exponential(0.4, rounds),
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("rounds", [5, 10, 50])
def test_noise_of_one_speed_is_hardly_ever_taken_for_two(noise, rounds):
    draw = NOISE[noise]
    found = [two_speeds([launches(draw, rounds), launches(draw, rounds)]) for _ in range(300)]
    assert sum(one is not None for one in found) <= 0.06 * len(found)


@pytest.mark.parametrize("rounds", [8, 50])
def test_two_speeds_are_found_with_the_share_of_each_side(rounds):
    for _ in range(50):
        found = two_speeds([launches(bistable(0.2), rounds, 4), launches(bistable(0.6), rounds, 4)])
        assert found is not None
        assert found.slow / found.fast == pytest.approx(2.3, rel=0.1)
        assert found.shares == pytest.approx((0.2, 0.6), abs=0.35)
        assert found.fast == pytest.approx(1, rel=0.1)


def test_launches_of_one_speed_each_are_no_matter_of_the_calls():
    sides = [[[1.0, 1.01, 0.99] * 5, [2.0, 2.01, 1.99] * 5], [[1.0, 1.02, 0.99] * 5]]
    assert two_speeds(sides) is None


@pytest.mark.parametrize("sides", [[[], []], [[[]], [[1.0]]], [[[1.0, 2.0]], [[1.0, 2.0]]], [[[0.5] * 40]] * 2])
def test_few_or_equal_times_tell_nothing(sides):
    assert two_speeds(sides) is None
