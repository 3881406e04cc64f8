"""A scripted driver below the real nvidia-ml-py: the answers of its C library, or their absence; and a driver that replays."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from tfbench.errors import GpuError
from tfbench.gpus.nvml import PROCESSES, SCHEMA, GpuReading, Identity
from tfbench.gpus.nvml import Driver as AnyDriver
from tfbench.model import JSON

UUIDS = ("GPU-1a2b3c4d-0000-1111-2222-333344445555", "GPU-9f8e7d6c-0000-1111-2222-333344445555")
_SUCCESS, _NOT_SUPPORTED, _NOT_FOUND, _TOO_SMALL, _NOT_LOADED, _TIMEOUT, _LOST = 0, 3, 6, 7, 9, 10, 15
_THERMAL = 1


@dataclass
class Device:
    """One GPU. Lists have one entry per reading, and their last entry repeats. ``None`` is unsupported."""

    uuid: str = UUIDS[0]
    name: str = "NVIDIA H100 80GB HBM3"
    clocks: list[int] = field(default_factory=lambda: [1980])
    reasons: list[int] = field(default_factory=lambda: [0])
    processes: list[tuple[int, ...]] | None = field(default_factory=lambda: [()])
    computing: list[tuple[int, ...]] | None = None
    energy: list[int] | None = None
    """Millijoules."""
    hot: list[int] | None = field(default_factory=lambda: [0])
    """Total nanoseconds for which heat lowered the clock."""
    power_limit: int | None = 700_000
    mode: int = 0
    vbios: str | None = "96.00.99.00.01"
    mig: int | None = 0
    parts: tuple[str, ...] = ()
    """UUIDs of its parts (MIG)."""
    ecc: int | None = 1
    persistence: int = 1
    power: int | None = 350_000
    temperature: int | None = 45
    clock_limit: int = 1980
    memory: int = 80 << 30
    link: tuple[int, int] = (5, 16)
    gone: int | None = None
    """Number of readings before the device is lost."""
    readings: int = 0

    def at(self, values: list[Any]) -> Any:
        return values[min(self.readings - 1, len(values) - 1)] if self.readings else values[0]


H200 = Path(__file__).parents[1] / "gpus" / "data" / "h200-capped.json"
"""The readings of a `tfbench doctor --gpu` on 27 November 2026: driver 580.159.04, TensorFlow 2.21.0."""


def h200() -> Device:
    """Return an H200 that gives the recorded readings, in which no other process uses it."""
    content = json.loads(H200.read_text(encoding="utf-8"))
    (gpu,), told = content["gpus"], content["told"]
    recorded = {
        "clocks": [row["sm_clock"] for row in told],
        "reasons": [row["reasons"] for row in told],
        "energy": [round(1000 * row["energy"]) for row in told],
        "hot": [round(1e9 * row["too_hot"]) for row in told],
    }
    return Device(UUIDS[0], gpu["name"], memory=gpu["memory"], vbios=gpu["vbios"], **recorded)


_FIELDS = {
    "nvmlDeviceGetComputeMode": "mode",
    "nvmlDeviceGetPersistenceMode": "persistence",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit",
    "nvmlDeviceGetPowerUsage": "power",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetEccMode": "ecc",
}
"""Function -> field of `Device` that it returns."""


class Driver:
    """The functions of libnvidia-ml.so.1 that tfbench calls."""

    def __init__(
        self, devices: tuple[Device, ...], missing: tuple[str, ...], version: str, cuda: int, errors: list[int]
    ) -> None:
        self.devices = devices
        self.missing = missing
        """Functions that this version lacks."""
        self.version = version
        self.cuda = cuda
        self.errors = errors
        """XIDs to report."""
        self.closed = False
        self._handles: list[tuple[Device, int | None]] = []

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)  # as ctypes does for a missing symbol
        if field := _FIELDS.get(name):
            return lambda handle, *out: self._numbers(getattr(self._device(handle), field), *out)
        if not hasattr(type(self), f"_{name}"):
            raise AttributeError(name)
        return getattr(self, f"_{name}")

    # A handle is an opaque pointer: here, the number of an entry.

    def _hold(self, out: Any, device: Device, part: int | None = None) -> int:
        self._handles.append((device, part))
        ctypes.c_void_p.from_buffer(out._obj).value = len(self._handles)
        return _SUCCESS

    def _held(self, handle: Any) -> tuple[Device, int | None]:
        return self._handles[(ctypes.c_void_p.from_buffer(handle).value or 0) - 1]

    def _device(self, handle: Any) -> Device:
        return self._held(handle)[0]

    # Writers of output arguments.

    def _number(self, value: int | None, out: Any) -> int:
        if value is None:
            return _NOT_SUPPORTED
        out._obj.value = value
        return _SUCCESS

    def _numbers(self, value: int | None, *out: Any) -> int:
        """Write a value to one output, or to two: the current setting and the one after the next start."""
        return max(self._number(value, one) for one in out)

    def _text(self, value: str | None, buffer: Any) -> int:
        if value is None:
            return _NOT_SUPPORTED
        buffer.value = value.encode()
        return _SUCCESS

    def _nvmlInitWithFlags(self, flags):
        return _SUCCESS if self.devices else _NOT_LOADED

    def _nvmlShutdown(self):
        self.closed = True
        return _SUCCESS

    def _nvmlSystemGetDriverVersion(self, buffer, size):
        return self._text(self.version, buffer)

    def _nvmlSystemGetCudaDriverVersion(self, out):
        return self._number(self.cuda, out)

    def _nvmlDeviceGetCount_v2(self, out):
        return self._number(len(self.devices), out)

    def _nvmlDeviceGetHandleByIndex_v2(self, index, out):
        device = self.devices[index.value]
        if device.gone is not None and device.readings >= device.gone:
            return _LOST
        return self._hold(out, device)

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle, out):
        return self._number(7, out)

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index, out):
        device = self._device(handle)
        return self._hold(out, device, index.value) if index.value < len(device.parts) else _NOT_FOUND

    def _nvmlDeviceGetUUID(self, handle, buffer, size):
        device, part = self._held(handle)
        return self._text(device.uuid if part is None else device.parts[part], buffer)

    def _nvmlDeviceGetName(self, handle, buffer, size):
        device, part = self._held(handle)
        return self._text(device.name if part is None else f"{device.name} MIG 1g.10gb", buffer)

    def _nvmlDeviceGetVbiosVersion(self, handle, buffer, size):
        return self._text(self._device(handle).vbios, buffer)

    def _nvmlDeviceGetMaxPcieLinkGeneration(self, handle, out):
        return self._number(self._device(handle).link[0], out)

    def _nvmlDeviceGetMaxPcieLinkWidth(self, handle, out):
        return self._number(self._device(handle).link[1], out)

    def _nvmlDeviceGetMemoryInfo(self, handle, out):
        device, part = self._held(handle)
        out._obj.total = device.memory if part is None else device.memory // 8
        return _SUCCESS

    def _nvmlDeviceGetMaxClockInfo(self, handle, kind, out):
        return self._number(self._device(handle).clock_limit, out)

    def _nvmlDeviceGetTemperature(self, handle, sensor, out):
        device = self._device(handle)
        device.readings += 1
        return self._number(device.temperature, out)

    def _nvmlDeviceGetClockInfo(self, handle, kind, out):
        device = self._device(handle)
        return self._number(device.at(device.clocks), out)

    def _nvmlDeviceGetTotalEnergyConsumption(self, handle, out):
        device = self._device(handle)
        return self._number(device.at(device.energy) if device.energy else None, out)

    def _nvmlDeviceGetViolationStatus(self, handle, policy, out):
        device = self._device(handle)
        if device.hot is None:
            return _NOT_SUPPORTED
        out._obj.violationTime = device.at(device.hot) if policy.value == _THERMAL else 0
        return _SUCCESS

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle, out):
        device = self._device(handle)
        return self._number(device.at(device.reasons), out)

    _nvmlDeviceGetCurrentClocksThrottleReasons = _nvmlDeviceGetCurrentClocksEventReasons

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, found):
        device = self._device(handle)
        if device.processes is None:
            return _NOT_SUPPORTED
        there = device.at(device.processes)
        if found is None:
            count._obj.value = len(there)
            return _TOO_SMALL if there else _SUCCESS
        for place, pid in enumerate(there):
            found[place].pid = pid
        count._obj.value = len(there)
        return _SUCCESS

    def _nvmlDeviceGetProcessUtilization(self, handle, found, count, since):
        device = self._device(handle)
        if device.computing is None:
            return _NOT_SUPPORTED
        there = device.at(device.computing) if since.value < device.readings else ()
        if not there:
            return _NOT_FOUND
        count._obj.value = len(there)
        for place, pid in enumerate(there if found is not None else ()):
            found[place].pid, found[place].smUtil, found[place].timeStamp = pid, 30, device.readings
        return _SUCCESS if found is not None else _TOO_SMALL

    def _nvmlEventSetCreate(self, out):
        return _SUCCESS

    def _nvmlEventSetFree(self, events):
        return _SUCCESS

    def _nvmlDeviceRegisterEvents(self, handle, kinds, events):
        return _SUCCESS

    def _nvmlEventSetWait_v2(self, events, out, timeout):
        if not self.errors:
            return _TIMEOUT
        out._obj.eventData = self.errors.pop(0)
        return _SUCCESS


def library(
    *devices: Device,
    missing: tuple[str, ...] = (),
    errors: tuple[int, ...] = (),
    version: str = "570.124.06",
    cuda: int = 12080,
) -> Any:
    """Load a separate module ``pynvml`` whose ``nvmlLib`` is a scripted driver."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, pynvml=module):  # it looks itself up there
        spec.loader.exec_module(module)
    module.nvmlLib = Driver(devices, missing, version, cuda, list(errors))  # type: ignore[attr-defined]
    return module


class Beats:
    """Makes a monitor read this many times during a launch."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = threading.Event()

    def __call__(self, over: threading.Event, seconds: float) -> bool:
        if self.left:
            self.left -= 1
            return False
        self.done.set()
        return over.wait()


class Replay(AnyDriver):
    """A driver that replays the JSON of `Recording.as_json`, reading by reading. The last reading repeats."""

    def __init__(self, content: JSON) -> None:
        assert content["schema"] == SCHEMA
        self._gpus = [Identity(**gpu) for gpu in content["gpus"]]
        self._xids = [row["xid"] for row in content["told"] if "xid" in row]
        self._left: dict[str, list[GpuReading | GpuError]] = defaultdict(list)
        for row in content["told"]:
            if "xid" not in row:
                self._left[row["gpu"]].append(_answer({name: row[name] for name in row if name not in LEFT_OUT}))

    def identities(self) -> list[Identity]:
        return self._gpus

    def reading(self, gpu: Identity) -> GpuReading:
        left = self._left[gpu.place]
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, GpuError):
            raise found
        return found

    def xids(self) -> list[int]:
        found, self._xids = self._xids, []
        return found


LEFT_OUT = ("gpu", "memory_clock")
"""Fields that are no part of a reading; older recordings have the second one."""


def _answer(row: JSON) -> GpuReading | GpuError:
    if "lost" in row:
        return GpuError(row["lost"])
    return GpuReading(**row | {name: frozenset(row[name]) for name in PROCESSES if name in row})
