"""Hang in the set-up."""

import time


def test_hangs(bench):
    time.sleep(1000)
    bench(sum, range(500))
