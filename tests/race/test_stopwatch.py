"""Each moment of a run counts for one phase."""

import threading

import pytest

from tests.fakes.race import Clock
from tfbench.race.timer import Phase, Stopwatch


class Timer(Clock):
    """A clock with a stopwatch that runs on it."""

    def __init__(self):
        super().__init__()
        self.stopwatch = Stopwatch(self)

    def wait(self, seconds):
        self.now += seconds

    def spent(self):
        return {phase.value: seconds for phase, seconds in self.stopwatch.seconds.items() if seconds}


@pytest.fixture
def timer():
    return Timer()


def test_time_outside_of_every_phase_is_other(timer):
    timer.wait(3)
    assert timer.spent() == {"other": 3}
    with timer.stopwatch.phase(Phase.ROUNDS):
        timer.wait(2)
        assert timer.spent() == {"other": 3, "rounds": 2}
        timer.wait(1)
    timer.wait(1)
    assert timer.spent() == {"other": 4, "rounds": 3}


def test_the_innermost_phase_counts_and_time_counts_once(timer):
    with timer.stopwatch.phase(Phase.PROBING):
        timer.wait(1)
        with timer.stopwatch.phase(Phase.STARTING):
            timer.wait(10)
        timer.wait(2)
    assert timer.spent() == {"starting": 10, "probing": 3}
    assert timer.stopwatch.seconds_of_cases == 3


def test_everything_inside_of_confirming_counts_as_confirming(timer):
    with timer.stopwatch.phase(Phase.CONFIRMING):
        with timer.stopwatch.phase(Phase.STARTING):
            timer.wait(10)
        with timer.stopwatch.phase(Phase.PREPARING), timer.stopwatch.phase(Phase.ROUNDS):
            timer.wait(2)
        timer.wait(1)
    assert timer.spent() == {"confirming": 13}
    assert timer.stopwatch.seconds_of_cases == 3


def test_each_thread_counts_for_itself_and_waiting_counts_for_none(timer):
    own = []

    def lane():
        with timer.stopwatch.phase(Phase.ROUNDS):
            timer.wait(5)
        with timer.stopwatch.waiting():
            timer.wait(7)
        own.append(timer.stopwatch.seconds_of_cases)

    with timer.stopwatch.waiting():
        thread = threading.Thread(target=lane)
        thread.start()
        thread.join()
    timer.wait(2)
    assert own == [5]
    assert timer.stopwatch.seconds_of_cases == 2
    assert timer.spent() == {"rounds": 5, "other": 2}
    assert timer.stopwatch.wall_seconds == 14
