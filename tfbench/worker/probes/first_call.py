"""The first call of a step, and what its time went into. Read in timed launches: what it needs is gone again before a round."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfbench.model import JSON
from tfbench.worker import tf_internals


def first_call(call: Callable[[], object], wait: Callable[[], object]) -> tuple[bool, JSON]:
    """Call for the first time, and once more.

    Args:
        call: One iteration.
        wait: Returns when the device has finished.

    Returns:
        Whether it returned anything, and seconds: of the whole first call, of the tracing of Python functions, of compiling
        (grappler, XLA, the choice of kernels: what is neither tracing nor what the second call needs too), and of
        the execution, which is the second call's.
    """
    with tf_internals.tracing_timed() as traces:
        began = time.perf_counter()
        returned = call() is not None
        wait()
        whole = time.perf_counter() - began
    began = time.perf_counter()
    call()
    wait()
    again = time.perf_counter() - began
    trace = sum(traces)
    parts = {"trace": trace, "compile": max(0.0, whole - trace - again), "execute": min(again, whole)}
    return returned, {"first_call": whole, "first_call_parts": parts}
