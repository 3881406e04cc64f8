"""Steps of known cost, which measure the harness. They need no TensorFlow."""

import time


def test_nothing(bench):
    """An empty step: the whole time of its block is the harness' own."""
    bench(lambda value: value, 1)


def test_ten_microseconds(bench):
    """A step that takes 10 µs by the clock."""

    def step():
        end = time.perf_counter_ns() + 10_000
        while time.perf_counter_ns() < end:
            pass
        return end

    bench(step)
