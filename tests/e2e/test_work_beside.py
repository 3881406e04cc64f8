"""Work that calls leave to threads or processes is no part of their time, and hides no slowdown."""

from __future__ import annotations

import pytest

BENCHMARK = """
    import os
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

    import numpy as np

    def work(units):
        values = np.arange(20_000.0)
        for _ in range(units):
            np.sin(values)

    def test_step(bench):
        pool = {pool}(1)
        pool.submit(work, 1).result()

        def step():
            work(4)
            work(6) if "WAITS" in os.environ else pool.submit(work, {more})
            return 1

        bench(step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_more_work_left_to_others_is_no_improvement(project, pool):
    project.write(BENCHMARK.format(pool=pool, more=14))
    done = project.run("--against", "env:WAITS=1")
    assert done.outcomes() == {"test_step": "inconclusive"}, done.output
    assert "work that they leave to threads or child processes" in done.reason("test_step"), done.output


@pytest.mark.slow
def test_less_work_left_to_others_is_an_improvement(project):
    project.write(BENCHMARK.format(pool="ThreadPoolExecutor", more=2))
    done = project.run("--against", "env:WAITS=1")
    assert done.sound, done.output
    assert done.outcomes()["test_step"] in ("improved", "inconclusive"), done.output
