"""The first call of a step and the parts of its time. It is read in timed launches, and leaves no trace before the rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfbench.model import JSON
from tfbench.worker import tf_internals


def first_call(call: Callable[[], object], wait: Callable[[], object]) -> tuple[bool, JSON]:
    """Call the step for the first time, and once more.

    Args:
        call: One iteration.
        wait: Returns when the device has finished.

    Returns:
        Whether the step returned a result, and the seconds of the first call: in total, in tracing of Python functions,
        in compilation and in execution. The second call gives the execution. Compilation (grappler, XLA, the choice
        of kernels) is the rest.
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
