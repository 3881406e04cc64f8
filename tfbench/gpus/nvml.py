"""Reading GPUs through NVML, with nvidia-ml-py. NVML starts no context of CUDA, so this process can go on as before."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tfbench.errors import GpuError
from tfbench.gpus.readings import GpuReading, Identity

INSTALL = "pip install 'tfbench[gpu]'"
Found = TypeVar("Found")
_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_XID = 8
"""nvmlEventTypeXidCriticalError."""
_POWER, _THERMAL = 0, 1
"""nvmlPerfPolicyType_t."""


class Nvml:
    """The GPUs of this machine; to be closed.

    Args:
        library: The module ``pynvml``, or what stands in for it.

    Raises:
        GpuError: There is no driver, or no library to ask it with.
    """

    def __init__(self, library: Any = None) -> None:
        self._nvml = library if library is not None else _library()
        # What newer ones raise besides, where they are newer than the driver, is no kind of NVMLError.
        error = self._nvml.NVMLError
        self._errors = (error, getattr(self._nvml, "NVMLLibraryMismatchError", error))
        try:
            self._nvml.nvmlInit()
        except self._errors as error:
            text = f"NVML does not answer ({error}): there is no NVIDIA driver here, or the container does not see it"
            raise GpuError(f"{text}; start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility") from None
        self._events: Any = None
        self._asked: dict[Identity, int] = {}
        """Until when it is known who computed, in the driver's microseconds."""

    def close(self) -> None:
        """Let go of the library."""
        try:
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
            self._nvml.nvmlShutdown()
        except self._errors:
            pass  # what is lost needs no goodbye

    def identities(self) -> list[Identity]:
        """Every GPU, in the order of the bus, or its parts where it is divided (MIG).

        Raises:
            GpuError: The driver does not tell how many there are.
        """
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
            whole = [self._identity(index) for index in range(count)]
        except self._errors as error:
            raise GpuError(f"the GPUs cannot be listed: {error}") from None
        return [one for gpu in whole for one in (self._parts(gpu) if gpu.mig else [gpu])]

    def _parts(self, gpu: Identity) -> list[Identity]:
        """What a GPU is divided into; itself as long as nobody has done it."""
        nvml, whole = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        found = []
        for instance in range(self._try(nvml.nvmlDeviceGetMaxMigDeviceCount, whole) or 0):
            part = self._try(nvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, instance)
            if part is None:
                continue  # of seven places not all are taken
            memory = self._try(nvml.nvmlDeviceGetMemoryInfo, part)
            name, uuid = _text(nvml.nvmlDeviceGetName(part)), _text(nvml.nvmlDeviceGetUUID(part))
            size = int(memory.total) if memory is not None else None
            found.append(replace(gpu, instance=instance, name=name, uuid=uuid, memory=size))
        return found or [gpu]

    def _identity(self, index: int) -> Identity:
        nvml, handle = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index)
        cuda = self._try(nvml.nvmlSystemGetCudaDriverVersion) or 0
        generation, width = (
            self._try(ask, handle)
            for ask in (nvml.nvmlDeviceGetMaxPcieLinkGeneration, nvml.nvmlDeviceGetMaxPcieLinkWidth)
        )
        mode = self._try(nvml.nvmlDeviceGetComputeMode, handle)
        limit = self._try(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        return Identity(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            driver=_text(self._try(nvml.nvmlSystemGetDriverVersion) or "unknown"),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            vbios=_text(found) if (found := self._try(nvml.nvmlDeviceGetVbiosVersion, handle)) else None,
            mig=_first(self._try(nvml.nvmlDeviceGetMigMode, handle)),
            compute_mode=_MODES.get(mode, str(mode)) if mode is not None else None,
            persistence=_switch(self._try(nvml.nvmlDeviceGetPersistenceMode, handle)),
            ecc=_first(self._try(nvml.nvmlDeviceGetEccMode, handle)),
            pcie=f"gen {generation} x{width}" if generation and width else None,
            power_limit=limit / 1000 if limit is not None else None,
            clock_limit=self._try(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory=int(memory.total) if memory is not None else None,
        )

    def reading(self, gpu: Identity) -> GpuReading:
        """What a GPU does now. Clocks, heat and power are the whole one's; only there joules are counted.

        Raises:
            GpuError: It has vanished.
        """
        nvml = self._nvml
        try:
            handle = part = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
            temperature = self._temperature(handle)
            if gpu.instance is not None:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, gpu.instance)
        except self._errors as error:
            raise GpuError(f"GPU {gpu.place} does not answer any more ({error}); see dmesg for its XID") from None
        power = self._try(nvml.nvmlDeviceGetPowerUsage, handle)
        energy = self._try(nvml.nvmlDeviceGetTotalEnergyConsumption, handle) if gpu.instance is None else None
        listed = self._try(nvml.nvmlDeviceGetComputeRunningProcesses, part)
        return GpuReading(
            sm_clock=self._try(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock=self._try(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            power=power / 1000 if power is not None else None,
            temperature=temperature,
            reasons=self._reasons(handle),
            energy=energy / 1000 if energy is not None else None,
            processes=frozenset(process.pid for process in listed) if listed is not None else None,
            computing=self._computing(gpu, handle),
            seconds=time.monotonic(),
            too_hot=self._held(handle, _THERMAL),
            capped=self._held(handle, _POWER),
        )

    def _computing(self, gpu: Identity, handle: Any) -> frozenset[int] | None:
        """Processes whose kernels ran since this was asked last; not told of parts of a GPU."""
        nvml = self._nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, self._asked.get(gpu, 0))
        except nvml.NVMLError_NotFound:
            return frozenset()  # nothing has run
        except self._errors:
            return None
        self._asked[gpu] = max((sample.timeStamp for sample in samples), default=self._asked.get(gpu, 0))
        return frozenset(sample.pid for sample in samples if sample.smUtil)

    def _temperature(self, handle: Any) -> float | None:
        """What every device is asked first; one that is lent to a virtual machine may keep it to itself."""
        nvml = self._nvml
        try:
            return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            return None

    def _held(self, handle: Any, policy: int) -> float | None:
        """Seconds for which the driver has held the clock down for this reason, ever."""
        found = self._try(self._nvml.nvmlDeviceGetViolationStatus, handle, policy)
        return found.violationTime * 1e-9 if found is not None else None

    def _reasons(self, handle: Any) -> int:
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            ask = getattr(self._nvml, name, None)
            if ask is not None and (found := self._try(ask, handle)) is not None:
                return int(found)
        return 0

    def listen(self, gpus: Sequence[Identity]) -> None:
        """Have the driver keep the XIDs of these GPUs for `xids`, where it can."""
        nvml = self._nvml
        self._events = self._try(nvml.nvmlEventSetCreate)
        for index in {gpu.index for gpu in gpus} if self._events is not None else ():
            if (handle := self._try(nvml.nvmlDeviceGetHandleByIndex, index)) is not None:
                self._try(nvml.nvmlDeviceRegisterEvents, handle, _XID, self._events)

    def xids(self) -> list[int]:
        """The errors that were reported since the last call."""
        found: list[int] = []
        while self._events is not None:
            event = self._try(self._nvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                break
            found.append(int(event.eventData))
        return found

    def _try(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """What is asked; ``None`` where this device or driver does not have it."""
        try:
            return ask(*arguments)
        except self._errors:
            return None


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise GpuError(f"nvidia-ml-py is not installed, by which GPUs are watched: {INSTALL}") from None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _switch(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _first(value: Any) -> bool | None:
    """The current one of a pair of settings, now and after the next start."""
    return None if value is None else bool(value[0])
