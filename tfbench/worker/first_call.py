"""Calls of a step that are timed one by one, the first one with its parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.block import Block, Clock


def call_once(block: Block, clock: Clock) -> tuple[object, float, float]:
    """Call the step and wait for the device.

    Returns:
        Its result, its seconds by this clock, which are more than none, and its processor seconds.
    """
    with block.one() as call:
        used, began = time.process_time(), clock()
        result = call()
        block.wait()
        elapsed, used = clock() - began, time.process_time() - used
    return result, max(elapsed, 1) * 1e-9, used


def first_call(block: Block, check: Callable[[object], None]) -> tuple[JSON, float]:
    """Call the step for the first time, and once more. It leaves no trace before the rounds.

    Args:
        check: Called with the result of the first call.

    Returns:
        The seconds of the first call: in total, in tracing of Python functions, in compilation and in execution.
        The second call gives the execution. Compilation (grappler, XLA, the choice of kernels) is the rest.
        And the processor seconds of the first call.
    """
    traces: list[float] = []
    with ExitStack() as watch:
        watch.callback(tf_internals.on_trace(lambda name, graph, seconds: traces.append(seconds)))
        result, whole, used = call_once(block, time.perf_counter_ns)
    check(result)
    del result
    _, again, _ = call_once(block, time.perf_counter_ns)
    trace = sum(traces)
    parts = {"trace": trace, "compile": max(0.0, whole - trace - again), "execute": min(again, whole)}
    return {"first_call": whole, "first_call_parts": parts}, used
