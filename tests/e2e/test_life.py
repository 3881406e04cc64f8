"""What a process pays outside of the calls that a race times has rows of its own."""

from __future__ import annotations

import pytest

BENCHMARKS = """
    import itertools
    import os
    import threading
    import time

    import numpy as np

    SLOW = "WAITS" not in os.environ
    if SLOW:
        time.sleep(1.0)
        KEPT = np.ones(1 << 23)

    def work():
        return np.sin(np.arange(2_000.0)).sum()

    def test_step(bench):
        bench(work)

    def test_set_up(bench):
        time.sleep(0.8 * SLOW)
        bench(work)

    def test_warm_up(bench):
        calls = itertools.count()

        def step():
            time.sleep(1.0 * (SLOW and next(calls) == 1))
            return work()

        bench(step)

    def test_slowing(bench):
        calls = itertools.count()

        def step():
            for _ in range(3 if SLOW and next(calls) > 3_000 else 1):
                made = work()
            return made

        bench(step)

    def test_afterwork(bench):
        left = []

        def write():
            while True:
                time.sleep(2.0)
                for _ in range(20 * SLOW * len(left)):
                    work()
                left.clear()

        def step():
            left.append(1)
            return work()

        threading.Thread(target=write, daemon=True).start()
        bench(step)
"""
ROWS = {
    "test_step": ["import", "import_memory"],
    "test_set_up": ["set_up"],
    "test_warm_up": ["warm_up"],
    "test_slowing": ["slowing"],
    "test_afterwork": ["afterwork"],
}
LIFE = {metric for metrics in ROWS.values() for metric in metrics}


@pytest.mark.slow
@pytest.mark.alone
def test_what_a_process_pays_once_or_later_is_in_a_row_of_its_own(project):
    project.write(BENCHMARKS)
    done = project.run("--against", "env:WAITS=1")
    assert done.code == 1, done.output
    for case, metrics in ROWS.items():
        found = {metric for metric, outcome in done.metrics(case).items() if outcome == "regressed"} & LIFE
        assert found == set(metrics), (case, done.metrics(case), done.output)
    assert "times are those of calls " in done.reason("test_step"), done.output
