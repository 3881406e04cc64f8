"""Functions and memory that a sampling launch sees, in this process."""

import sys
import threading
import time

from tfbench.worker.launches import FunctionSampler, growth


def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))


def outer(seconds, depth=2):
    return outer(seconds, depth - 1) if depth else busy(seconds)


def test_the_sampler_counts_functions_once_per_sample_and_leaves_no_thread():
    interval = sys.getswitchinterval()
    sampler = FunctionSampler(sys._getframe())
    with sampler:
        outer(0.3)
    assert sys.getswitchinterval() == interval
    assert "tfbench-sampler" not in {thread.name for thread in threading.enumerate()}
    names = {name.rpartition(".")[2]: counts for name, counts in sampler.functions.items()}
    assert sampler.samples >= 20
    assert names["outer"][0] >= 0.8 * sampler.samples
    assert names["outer"][0] <= sampler.samples
    assert names["busy"][0] >= 0.8 * sampler.samples
    assert names["busy"][1] > names["outer"][1]  # busy lies deeper


def test_frames_below_the_root_do_not_count():
    sampler = FunctionSampler(sys._getframe())
    sampler.add(sys._getframe())
    assert (sampler.samples, sampler.functions) == (1, {})


def test_growth_is_counted_by_keeper_and_line():
    class Kept:
        pass

    found, kept = {}, []
    with growth(found):
        kept += [Kept() for _ in range(20_000)]
    assert found["python"] >= 20_000 * 16
    assert next(iter(found["lines"])).rpartition(":")[0].endswith("test_sample_launch.py")
    assert "python" in found
