"""Steps whose cost is known, for the harness to be measured with. They need no TensorFlow."""

import time


def test_nothing(bench):
    """A step that does nothing: whatever a block of it takes is the harness's own."""
    bench(lambda value: value, 1)


def test_ten_microseconds(bench):
    """A step of 10 µs by the clock."""

    def step():
        end = time.perf_counter_ns() + 10_000
        while time.perf_counter_ns() < end:
            pass
        return end

    bench(step)
