"""TensorFlow's profiler in a launch, functions that trace its thread, and the clock of a GPU around blocks."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

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


# The clock of a GPU's multiprocessors (SM), from a counter of cycles and one of nanoseconds around a block


_SLOTS = 512
"""More multiprocessors than a GPU has."""
_KERNEL = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry tfbench_mark(.param .u64 marks)
{
    .reg .b32 %slot;
    .reg .b64 %address, %offset, %cycles, %time;
    mov.u32 %slot, %smid;
    and.b32 %slot, %slot, 511;
    mul.wide.u32 %offset, %slot, 16;
    ld.param.u64 %address, [marks];
    add.u64 %address, %address, %offset;
    mov.u64 %time, %globaltimer;
    mov.u64 %cycles, %clock64;
    st.global.v2.u64 [%address], {%cycles, %time};
    ret;
}
"""
"""Each multiprocessor writes its counter of cycles, and the time in nanoseconds. The driver compiles this text for its GPU."""
_MULTIPROCESSORS = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
_MAPPED = 1 | 2
"""CU_MEMHOSTALLOC_PORTABLE and CU_MEMHOSTALLOC_DEVICEMAP: memory of the host that a kernel can write."""
_FASTEST = 0.9
"""Quantile over the multiprocessors, which have one clock. The counter of one without work may stand still."""


class ClockUnavailable(Exception):
    """The clock of the GPU cannot be read. The message states the reason."""


class SmClock:
    """Reads the clock between pairs of marks, in the context of TensorFlow. The device must be idle at each mark.

    ``library`` is the CUDA driver, or a fake. Raises `ClockUnavailable` if it is missing, or refuses the kernel.
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self.failure = ""
        """Why a mark could not be made, ``""`` if all were."""
        self._marks: list[bytes] = []
        device, self._processors = ctypes.c_int(), ctypes.c_int()
        self._context, self._module, self._kernel = (ctypes.c_void_p() for _ in range(3))
        self._memory, self._address = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self._cuda = ctypes.CDLL(library)
            self._ask("Init", 0)
            self._ask("DeviceGet", ctypes.byref(device), 0)
            self._ask("DeviceGetAttribute", ctypes.byref(self._processors), _MULTIPROCESSORS, device)
            self._ask("DevicePrimaryCtxRetain", ctypes.byref(self._context), device)
            with self._current():
                self._ask("ModuleLoadData", ctypes.byref(self._module), _KERNEL)
                self._ask("ModuleGetFunction", ctypes.byref(self._kernel), self._module, b"tfbench_mark")
                self._ask("MemHostAlloc", ctypes.byref(self._memory), ctypes.c_size_t(16 * _SLOTS), _MAPPED)
                self._ask("MemHostGetDevicePointer_v2", ctypes.byref(self._address), self._memory, 0)
                self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self._address))
                self._mark()  # loads the kernel
        except (OSError, AttributeError) as error:
            raise ClockUnavailable(str(error)) from None
        self.restart()

    def _ask(self, function: str, *arguments: Any) -> None:
        if code := getattr(self._cuda, f"cu{function}")(*arguments):
            raise ClockUnavailable(f"cu{function} returned the error {code}")

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make the context that TensorFlow uses current in this thread, and then the one before."""
        self._ask("CtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._ask("CtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def restart(self) -> None:
        """Forget the marks so far."""
        self._marks.clear()

    def mark(self) -> None:
        """Read the counters. It takes some 20 µs."""
        try:
            if not self.failure:
                with self._current():
                    self._mark()
        except ClockUnavailable as error:
            self.failure = str(error)

    def _mark(self) -> None:
        ctypes.memset(self._memory, 0, 16 * _SLOTS)
        self._ask("LaunchKernel", self._kernel, self._processors, 1, 1, 1, 1, 1, 0, None, self._arguments, None)
        self._ask("CtxSynchronize")
        self._marks.append(ctypes.string_at(self._memory, 16 * _SLOTS))

    def megahertz(self) -> tuple[float, ...]:
        """Return the mean clock between the marks of each pair; empty if a mark failed or a counter stood still."""
        if self.failure:
            return ()
        marks = np.frombuffer(b"".join(self._marks), np.int64).reshape(-1, 2, _SLOTS, 2)
        cycles, passed = np.moveaxis(marks[:, 1] - marks[:, 0], -1, 0)
        read = (marks[:, 0, :, 1] > 0) & (passed > 0) & (cycles > 0)
        if not read.any(axis=1).all():
            self.failure = "its counters stand still"
            return ()
        clocks = np.where(read, 1e3 * cycles / np.where(read, passed, 1), np.nan)
        return tuple(np.nanquantile(clocks, _FASTEST, axis=1).tolist())


def sm_clock() -> tuple[SmClock | None, str]:
    """Return the clock of the one GPU, or why it cannot be read."""
    if len(tf_runtime.gpus()) != 1:
        return None, "TensorFlow sees more than one GPU"
    try:
        return SmClock(), ""
    except ClockUnavailable as error:
        return None, str(error)
