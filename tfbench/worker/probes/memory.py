"""Peak memory of the process and of the devices, and tensors that stay alive from call to call.

For the process, only anonymous pages above those inherited from the zygote count, because pages of program files come
and go with the code that runs. The kernel records only the peak of all resident pages. Pages of files stay resident,
so their size at the end is subtracted from it.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.environment import read_proc
from tfbench.worker.probes import MetricUnavailable, Probe

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_FIELDS = ("VmHWM", "RssAnon", "RssFile", "RssShmem")


class HostPeak:
    """Peak anonymous memory of this process in bytes, above its size at the start."""

    def __init__(self) -> None:
        self._began = resident().get("RssAnon")
        self._most = 0

    def mark(self) -> None:
        """Record the peak so far, and reset the kernel's record if the process may do that."""
        now = resident()
        if self._began is None or not set(_FIELDS) <= set(now):
            return
        self._most = max(self._most, now["VmHWM"] - now["RssFile"] - now["RssShmem"] - self._began)
        with suppress(OSError):  # the peak of all time then counts, which only hides that a later call needed less
            _CLEAR.write_text("5", encoding="ascii")

    @property
    def bytes(self) -> int | None:
        """Bytes, ``None`` if the system does not report them."""
        return None if self._began is None else max(0, self._most)


def resident() -> dict[str, int]:
    """Return field -> bytes as Linux counts them; empty on other systems."""
    pairs = (line.partition(":") for line in read_proc(_STATUS).splitlines())
    return {key: int(value.split()[0]) << 10 for key, _, value in pairs if key in _FIELDS}


class DevicePeak(Probe):
    """Reads TensorFlow's peak allocation on each accelerator."""

    name = "device_memory"

    def before(self) -> None:
        tf_internals.device_peaks(reset=True)

    def found(self) -> JSON:
        if peaks := tf_internals.device_peaks():
            return {"peak": peaks}
        raise MetricUnavailable("TensorFlow sees no accelerator, and does not count its allocations on a CPU")


class Live(Probe):
    """Counts the eager tensors that stay alive, and their bytes, by call."""

    name = "live"

    def __init__(self) -> None:
        self._before = self._per_call = np.zeros(2)

    def settled(self) -> None:
        """Count once the first calls have filled the caches. Any later growth repeats with every call."""
        self._before = _alive()

    def after(self, calls: int) -> None:
        self._per_call = (_alive() - self._before) / calls

    def found(self) -> JSON:
        tensors, size = self._per_call.tolist()
        return {"tensors": tensors, "bytes": size}


def _alive() -> np.ndarray[Any, Any]:
    """Return the number and bytes of eager tensors after a garbage collection."""
    gc.collect()
    eager = tf_internals.required().Tensor
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), eager)]
    return np.array([len(found), sum(map(tf_internals.tensor_bytes, found))], float)
