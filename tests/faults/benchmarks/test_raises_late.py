"""Raise in a random timed block."""

import gc
import random


def test_raises_late(bench):
    left = random.randrange(1, 500)

    def step():
        nonlocal left
        left -= not gc.isenabled()
        assert left, "a late failure"
        return sum(range(500))

    bench(step)
