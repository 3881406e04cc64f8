"""The same workloads, measured by pytest-benchmark in a run of their own. Part of `tfbench calibrate`."""

import os
import time
import timeit
from statistics import median
from typing import Any

import pytest

from tfbench.worker.block import spin, spins_for
from tfbench.worker.workloads.test_raced import STEPS


@pytest.mark.parametrize("name", STEPS)
def test_step(benchmark: Any, name: str) -> None:
    """One of the fixed workloads, slowed down by the fraction ``TFBENCH_SLOWDOWN`` with an empty loop."""
    step, arguments = STEPS[name]()
    fraction = float(os.environ.get("TFBENCH_SLOWDOWN", "0"))
    for _ in range(20):
        step(*arguments)
    if not fraction:
        benchmark(step, *arguments)
        return
    seconds = median(timeit.repeat(lambda: step(*arguments), number=1, repeat=30))
    turns = spins_for(fraction * seconds * 1e9, time.perf_counter_ns)

    def slowed(*values: Any) -> Any:
        result = step(*values)
        spin(turns)
        return result

    benchmark(slowed, *arguments)
