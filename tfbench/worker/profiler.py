"""TensorFlow's profiler in a launch, and functions that trace its thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfbench.errors import BenchmarkError
from tfbench.protocol import TRACED_WORKERS
from tfbench.worker import tf_runtime

# Find functions that Python calls for every line or call, such as those of coverage, profilers and debuggers


_TOOLS = range(6)
"""Identifiers of tools in `sys.monitoring`."""


def tracer() -> str:
    """Name what traces this thread, ``""`` if nothing does."""
    if os.environ.get(TRACED_WORKERS):
        return ""
    for kind, function in (("trace", sys.gettrace()), ("profile", sys.getprofile())):
        if function is not None:
            return f"a {kind} function of {type(function).__module__}.{type(function).__qualname__}"
    if sys.version_info >= (3, 12):
        for tool in _TOOLS:
            if (name := sys.monitoring.get_tool(tool)) is not None and sys.monitoring.get_events(tool):
                return f"the monitoring tool {name}"
    return ""


# The profiler of TensorFlow


LEVELS = {"host": 2, "device": 1, "python": 0}
"""Levels of its tracers: ops and the larger phases of the runtime. To record every Python call would change the times."""


@contextmanager
def profiled(folder: str) -> Iterator[Any]:
    """Profile this process until the block ends, into a folder. The context is TensorFlow's class for marks, ``Trace``.

    Raises `BenchmarkError` if the benchmarks do not import TensorFlow.
    """
    if (tf := tf_runtime.tensorflow()) is None:
        raise BenchmarkError("the benchmark file does not import TensorFlow, whose profiler it needs")
    profiler = tf.profiler.experimental
    levels = {f"{tracer}_tracer_level": level for tracer, level in LEVELS.items()}
    profiler.start(folder, profiler.ProfilerOptions(**levels))
    try:
        yield profiler.Trace
    finally:
        profiler.stop()
