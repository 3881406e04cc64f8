"""Memory: the most that the process and the devices held.

Of the process, what is its own counts (anonymous pages), above what the zygote had given it: pages of
program files come and go as code is touched. The kernel keeps the highest size of all pages only, and files
stay resident, so their size at the end is taken off it.
"""

from __future__ import annotations

from pathlib import Path

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_FIELDS = ("VmHWM", "RssAnon", "RssFile", "RssShmem")


class HostPeak:
    """The most anonymous memory that this process held above what it began with, in bytes."""

    def __init__(self) -> None:
        self._began = _resident().get("RssAnon")
        self._most = 0

    def mark(self) -> None:
        """Take the highest so far, and have the kernel begin anew, where it lets a process do that."""
        now = _resident()
        if self._began is None or not set(_FIELDS) <= set(now):
            return
        self._most = max(self._most, now["VmHWM"] - now["RssFile"] - now["RssShmem"] - self._began)
        try:
            _CLEAR.write_text("5", encoding="ascii")
        except OSError:
            pass  # the highest of all time will do: it can only hide that a later call needed less

    @property
    def bytes(self) -> int | None:
        """``None`` where the system does not tell."""
        return None if self._began is None else max(0, self._most)


def _resident() -> dict[str, int]:
    """Bytes, as Linux counts them; empty elsewhere."""
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key: int(value.split()[0]) << 10 for key, _, value in pairs if key in _FIELDS}


class DevicePeak(Probe):
    """The most that TensorFlow had allocated on each accelerator."""

    name = "device_memory"

    def before(self) -> None:
        tf_internals.reset_device_memory()

    def found(self) -> JSON:
        peaks = tf_internals.device_memory("peak")
        if not peaks:
            raise MetricUnavailable("TensorFlow sees no accelerator, and does not count what it allocates on a CPU")
        return {"peak": peaks}
