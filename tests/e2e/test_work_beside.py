"""Work that calls leave to others is no part of their time, and hides no slowdown."""

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
@pytest.mark.alone
@pytest.mark.parametrize("pool", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_more_work_left_to_others_is_no_improvement(project, pool):
    project.write(BENCHMARK.format(pool=pool, more=14))
    done = project.run("--against", "env:WAITS=1")
    assert done.outcomes() == {"test_step": "inconclusive"}, done.output
    assert "work that they leave to threads, child processes, signals or the garbage collector" in done.reason(
        "test_step"
    ), done.output


PUT_OFF = """
    import gc
    import os
    import signal
    import time

    import numpy as np
    import pytest

    SLOW = "WAITS" not in os.environ
    VALUES = np.arange(4_000.0)

    class Node:
        pass

    def work(units):
        return sum(np.sin(VALUES).sum() for _ in range(units))

    @pytest.fixture(autouse=True)
    def stands_still(monkeypatch):
        for clock in ("monotonic", "perf_counter", "perf_counter_ns", "thread_time_ns", "process_time_ns"):
            monkeypatch.setattr(time, clock, lambda: 7)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)

    def test_signal(bench):
        left = []

        def later(*_):
            work(10 * SLOW * len(left))
            left.clear()

        def step():
            left.append(1)
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            return work(10)

        signal.signal(signal.SIGALRM, later)
        bench(step)

    def test_callback(bench):
        def step():
            for _ in range(gc.get_threshold()[0]):
                node = Node()
                node.itself = node
            return work(10)

        gc.callbacks.append(lambda phase, info: work(20 * SLOW))
        bench(step)
"""


@pytest.mark.slow
def test_work_put_off_to_a_pause_or_a_collection_is_part_of_what_calls_cost_whatever_clocks_are_replaced(project):
    project.write(PUT_OFF)
    done = project.run("--against", "env:WAITS=1")
    outcomes = done.outcomes()
    assert outcomes["test_callback"] == "inconclusive", done.output
    assert outcomes["test_signal"] in ("inconclusive", "regressed"), done.output  # a handler may also run within a call


SETTINGS = """
    import gc
    import os

    from tests.fakes.steps import taking

    def test_step(bench, monkeypatch):
        if "WAITS" not in os.environ:
            {setting}
        bench(taking(bench, 1e-5))
"""


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("gc.set_threshold(20)", "makes Python collect garbage more often than in the baseline"),
        ("monkeypatch.setenv('KMP_BLOCKTIME', '0')", "the benchmark sets KMP_BLOCKTIME=0, and the baseline none"),
        ("gc.disable()", ""),
        ("monkeypatch.setenv('KERAS_HOME', str(gc) + os.getcwd())", ""),
    ],
)
def test_a_setting_that_the_times_do_not_show_passes_no_case(project, setting, reason):
    project.write(SETTINGS.format(setting=setting))
    done = project.run("--against", "env:WAITS=1")
    if reason:
        assert done.outcomes() == {"test_step": "inconclusive"}, done.output
        assert reason in done.reason("test_step"), done.output
    else:
        assert done.outcomes()["test_step"] in ("unchanged", "improved"), done.output
