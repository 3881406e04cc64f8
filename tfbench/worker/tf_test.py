"""Run a method of a ``tf.test.Benchmark`` class: its ops become a step, or the times that it reports are taken.

``run_op_benchmark`` runs an op of a session many times. Here it only notes the session, the op and its feeds. When the
method has returned, one iteration of the step runs each noted op once. Sessions therefore stay open.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from statistics import fmean, median
from typing import Any

import pytest

from tfbench.errors import BenchmarkError
from tfbench.worker import allocator, tf_runtime
from tfbench.worker.bench import Bench

_NOTHING = "it ran no op by run_op_benchmark and reported no wall_time here"


class _Recorder:
    """Takes the place of the methods by which a benchmark measures and reports."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], Any]] = []
        self.times: dict[str, float] = {}
        """Name of an entry -> reported seconds."""

    def run_op_benchmark(
        self,
        sess: Any,
        op_or_tensor: Any,
        feed_dict: Any = None,
        burn_iters: int = 2,
        min_iters: int = 10,
        *_: Any,
        name: str | None = None,
        extras: dict[str, Any] | None = None,
        mbs: float = 0,
        **__: Any,
    ) -> dict[str, Any]:
        """Note an op, run it as often as TensorFlow's method does, and return what that returns."""
        call = partial(sess.run, op_or_tensor, feed_dict=feed_dict)
        self.calls.append(call)
        times = []
        for _run in range(burn_iters + min_iters):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        seconds = median(times)
        extras = {**(extras or {}), "wall_time_mean": seconds, "wall_time_stdev": 0.0}
        return {"iters": min_iters, "wall_time": seconds, "extras": extras, "name": name, "throughput": mbs / seconds}

    def report_benchmark(
        self, iters: Any = None, cpu_time: Any = None, wall_time: Any = None, *_: Any, **options: Any
    ) -> None:
        """Note a reported time."""
        if wall_time is None:
            return
        name = str(options.get("name") or len(self.times))
        if not 0 < (seconds := float(wall_time)) < math.inf:
            raise BenchmarkError(f"report_benchmark: wall_time={wall_time!r} of {name} is no time")
        self.times[name] = seconds


def run_method(launch: Bench[Any], kind: type[Any], name: str) -> None:
    """Run a method of a class and hand its ops, or the times that it reports, to the launch.

    The time of a method that reports several is their geometric mean.

    Raises:
        BenchmarkError: The constructor fails, or a reported time is invalid.
    """
    try:
        instance = kind()
    except Exception as error:
        launch.refuse(f"the constructor of {kind.__name__} failed: {type(error).__name__}: {error}")
    tf, recorder = tf_runtime.tensorflow(), _Recorder()
    # Of the classes of TensorFlow, since some benchmarks make other instances of them. This process ends soon.
    base = tf.test.Benchmark
    base.run_op_benchmark = lambda self, *given, **options: recorder.run_op_benchmark(*given, **options)
    base.report_benchmark = lambda self, *given, **options: recorder.report_benchmark(*given, **options)
    tf.compat.v1.Session.close = lambda session: None
    allocator.keep_freed_memory()  # the method may loop by itself
    getattr(instance, name)()
    if not recorder.calls and not recorder.times:
        pytest.skip(_NOTHING)
    launch.called, launch.needs_result = True, False
    if recorder.calls:
        launch.serve(recorder.calls[0] if len(recorder.calls) == 1 else partial(_each, recorder.calls))
    else:
        launch.serve_reported(math.exp(fmean(map(math.log, recorder.times.values()))))


def _each(calls: list[Callable[[], Any]]) -> None:
    for call in calls:
        call()
