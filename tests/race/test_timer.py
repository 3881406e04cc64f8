"""The interrupts of the system's timer, as they are known and as a loop sees them."""

import sys
import time

import numpy as np
import pytest

from tfbench.race import timer as module
from tfbench.race.timer import Timer, timer

MILLISECOND = 1_000_000
PER_4_MS = Timer(4 * MILLISECOND, 30_000)


def test_a_block_contains_the_interrupts_between_its_begin_and_its_end():
    blocks = [(0, 20_000), (20_000, 30_000), (30_000, 40_000), (0, 9 * MILLISECOND)]
    assert PER_4_MS.interrupts(blocks) == [0, 1, 0, 3]


def blocks(lengths, start):
    """Returns blocks of these lengths, one after another with the other side's in between."""
    begins = start + np.concatenate([[0], np.cumsum(2 * lengths)[:-1]])
    return list(zip(begins.tolist(), (begins + lengths).tolist(), strict=True))


def test_blocks_lose_the_interrupts_that_they_contain():
    rng = np.random.default_rng(1)
    own = rng.integers(990_000, 1_010_000, 200)
    sides = {index: blocks(own, start) for index, start in ((0, 7), (3, 1_000_007))}
    slowed = {
        index: [
            (begin, end + 50_000 * count) for (begin, end), count in zip(one, PER_4_MS.interrupts(one), strict=True)
        ]
        for index, one in sides.items()
    }
    found = PER_4_MS.shortened(slowed)
    assert {index: len(times) for index, times in found.items()} == {0: 200, 3: 200}
    for times in found.values():
        assert np.abs(np.array(times) - own).max() < 8_000


def test_long_blocks_keep_their_times():
    sides = {index: blocks(np.full(50, 2_500_000), index) for index in (0, 1)}
    assert PER_4_MS.shortened(sides) == {index: [2_500_000.0] * 50 for index in (0, 1)}


@pytest.fixture
def fresh():
    timer.cache_clear()
    yield
    timer.cache_clear()


@pytest.mark.parametrize("broken", [OSError(22, "Invalid argument"), 5])
def test_a_system_whose_timer_cannot_be_watched_has_none(fresh, monkeypatch, broken):
    def coarse(clock):
        if isinstance(broken, OSError):
            raise broken
        return broken

    monkeypatch.setattr(module.time, "clock_gettime_ns", coarse)
    assert timer() is None


def test_other_systems_have_none(fresh, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert timer() is None


def longest_gaps(nanoseconds):
    """Returns when a loop that does nothing stood still, the hundred longest times."""
    gaps, last = [], time.perf_counter_ns()
    end = last + nanoseconds
    while last < end:
        now = time.perf_counter_ns()
        if now - last > 1_000:  # storing every moment would make gaps of its own
            gaps.append((now - last, last))
        last = now
    return np.array([begin for _, begin in sorted(gaps)[-100:]])


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux' timer is known")
def test_a_loop_is_interrupted_when_the_timer_says(fresh):
    found = timer()
    assert found is not None
    # By chance, a tenth of the gaps would be near; other users of the machine make further gaps.
    near = [
        (
            (longest_gaps(100 * found.period) - found.phase + found.period // 20) % found.period < found.period // 10
        ).mean()
        for _ in range(3)
    ]
    assert max(near) > 0.25


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux' timer is known")
def test_interrupts_that_are_seen_late_do_not_count(fresh, monkeypatch):
    seen = iter(
        [4_020_000, 8_017_000, 15_900_000, 16_060_000, 22_300_000, 24_030_000, 28_019_000, 35_100_000, 36_018_000]
    )
    monkeypatch.setattr(module.time, "clock_getres", lambda clock: 0.004)
    monkeypatch.setattr(module, "_next_change", lambda limit: next(seen))
    assert timer() == Timer(4 * MILLISECOND, 17_000)
