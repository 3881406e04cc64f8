"""The interrupts of the system's timer, as they are known and as a loop sees them."""

import sys

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
    slowed = {}
    for index, one in sides.items():
        counted = zip(one, PER_4_MS.interrupts(one), strict=True)
        slowed[index] = [(begin, end + 50_000 * count) for (begin, end), count in counted]
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


IN_TIME = [20, 17, 60, 30, 19, 18, 25, 19, 18, 21, 33, 19, 70, 18, 19]
"""When interrupts at 17 µs are seen, in microseconds after a multiple of 4 ms."""


def watched(monkeypatch, seen):
    """Makes interrupts be seen at these times, in microseconds after a multiple of 4 ms, and returns the timer."""
    moments = (number * 4 * MILLISECOND + 1_000 * moment for number, moment in enumerate(seen))
    monkeypatch.setattr(module.time, "clock_getres", lambda clock: 0.004)
    monkeypatch.setattr(module, "_next_change", lambda limit: next(moments))
    return timer()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux' timer is known")
def test_interrupts_that_are_seen_late_do_not_count(fresh, monkeypatch):
    late = [3_900, 1_200, 1_210, 1_220, 1_230, 1_240, 300, 1_250, 2_100, 1_260, 1_270, 700, 1_280, 3_100, 1_215]
    both = [moment for pair in zip(late, IN_TIME, strict=True) for moment in pair]
    assert watched(monkeypatch, both) == Timer(4 * MILLISECOND, 17_000)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux' timer is known")
def test_interrupts_that_do_not_agree_show_no_timer(fresh, monkeypatch):
    assert watched(monkeypatch, [10 * (37 * number % 400) for number in range(100)]) is None


STAT = """cpu  0 0 0 0 0 0 0 0
cpu0 10 0 0 {} 0 0 0 0 0 0
cpu1 10 0 0 1000 0 0 0 0 0 0
"""


@pytest.mark.parametrize(
    ("idle", "used", "foreign"),
    [(0, 2e9, 8e9), (200, 7.9e9, 0), (800, 0, 2e9), (1000, 0, 0)],
)
def test_what_others_run_on_a_processor_is_what_is_neither_idle_nor_used(tmp_path, monkeypatch, idle, used, foreign):
    """In ten seconds, whose idle time is in ticks of 10 ms."""
    seconds, stat = iter([100.0, 110.0]), tmp_path / "stat"
    monkeypatch.setattr(module, "_STAT", stat)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(seconds))
    stat.write_text(STAT.format(500))
    load = module.Load((0,))
    stat.write_text(STAT.format(500 + idle))
    load.end()
    assert load.foreign(used) == pytest.approx(foreign)


def test_where_the_load_is_not_known_others_may_have_run_all_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_STAT", tmp_path / "stat")
    assert module.Load((0,)).foreign(0) == float("inf")
