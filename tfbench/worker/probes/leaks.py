"""What a process gains with every call: memory, Python objects, threads, open files and traces.

The step runs in windows of equally many calls. A cache or a pool of threads that fills up grows in the first windows,
and a leak in every one. The growth of a window is therefore the smallest of all.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.allocator import mallinfo
from tfbench.worker.probes import MetricUnavailable, Probe
from tfbench.worker.probes.memory import resident

KINDS = ("bytes", "resident", "objects", "threads", "files", "traces")
_FOLDERS = ("/proc/self/task", "/proc/self/fd")
"""One entry per thread, and per open file."""
_FEWEST = 2
"""Calls of a window. A single one could be the one in several that grows."""
_TEN = 10
"""Longer windows have a multiple of ten calls, so that one event in ten calls is in every window equally often."""


class Leaks(Probe):
    """Counts what stays after each window of calls, per call."""

    name = "leaks"

    def __init__(self) -> None:
        self._allocated = mallinfo()
        self._traces = 0
        self._per_call: dict[str, float] = {}
        self._why = "the step was not repeated"
        self._calls = 0

    def repeat(self, call: Callable[[], object], windows: int, most: int, seconds: float) -> None:
        """Run windows of at most ``most`` calls each, which take about ``seconds`` together."""
        began = time.perf_counter()
        call()
        each = max(time.perf_counter() - began, 1e-9)
        calls = min(most, int(seconds / windows / each))
        if calls < _FEWEST:
            self._why = f"a call takes {each:.2g} s, too long for the {windows * _FEWEST} calls that show a leak"
            return
        calls -= calls % _TEN if calls > _TEN else 0
        marks = np.full((windows + 1, len(KINDS)), math.nan)  # made before, so that it is no growth
        stop = tf_internals.on_trace(self._traced)
        try:
            self._mark(marks[0])
            for window in range(windows):
                for _ in range(calls):
                    call()
                self._mark(marks[window + 1])
        finally:
            stop()
        self._calls = calls * windows
        grown = np.maximum(np.diff(marks, axis=0).min(axis=0), 0) / calls
        known = zip(KINDS, grown.tolist(), strict=True)
        self._per_call = {kind: value for kind, value in known if not math.isnan(value)}
        # Allocators and TensorFlow's Python keep and drop some at any time: too much for short windows. Counts are exact.
        noisy = (*(KINDS[:2] if calls < _TEN else ()), *(("objects",) if calls < most else ()))
        self._per_call = {kind: value for kind, value in self._per_call.items() if kind not in noisy}

    def _traced(self, name: str, graph: object, seconds: float) -> None:
        self._traces += 1

    def _mark(self, row: np.ndarray[Any, Any]) -> None:
        """Fill in what the process has now, in the order of `KINDS`. What the system does not report stays NaN."""
        gc.collect()
        if self._allocated is not None:
            info = self._allocated()
            row[0] = info.uordblks + info.hblkhd
        row[1] = resident().get("RssAnon", math.nan)
        row[2] = sys.getallocatedblocks()
        with suppress(OSError):
            row[3:5] = [len(os.listdir(folder)) for folder in _FOLDERS]
        row[5] = self._traces

    def found(self) -> JSON:
        if not self._per_call:
            raise MetricUnavailable(self._why)
        return {**self._per_call, "calls": self._calls}
