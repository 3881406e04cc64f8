"""Read GPUs through NVML, with nvidia-ml-py. NVML creates no CUDA context, so this process stays able to fork."""

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
    """The GPUs of this machine. Call `close` at the end.

    Args:
        library: The module ``pynvml``, or a fake.

    Raises:
        GpuError: The driver or the library is missing.
    """

    def __init__(self, library: Any = None) -> None:
        self._nvml = library if library is not None else _library()
        # A library newer than its driver raises NVMLLibraryMismatchError, which is not an NVMLError.
        error = self._nvml.NVMLError
        self._errors = (error, getattr(self._nvml, "NVMLLibraryMismatchError", error))
        try:
            self._nvml.nvmlInit()
        except self._errors as error:
            text = (
                f"NVML does not answer ({error}): there is no NVIDIA driver here, or the container has no access to it"
            )
            fix = "start the container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            raise GpuError(f"{text}; {fix}") from None
        self._events: Any = None
        self._asked: dict[Identity, int] = {}
        """Time of the last utilization sample of each GPU, in the driver's microseconds."""

    def close(self) -> None:
        """Shut down NVML."""
        try:
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
            self._nvml.nvmlShutdown()
        except self._errors:
            pass  # a lost GPU cannot be released

    def identities(self) -> list[Identity]:
        """List all GPUs in PCI bus order. A divided GPU (MIG) is replaced by its parts.

        Raises:
            GpuError: The driver cannot list them.
        """
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
            whole = [self._identity(index) for index in range(count)]
        except self._errors as error:
            raise GpuError(f"NVML cannot list the GPUs: {error}") from None
        return [one for gpu in whole for one in (self._parts(gpu) if gpu.mig else [gpu])]

    def _parts(self, gpu: Identity) -> list[Identity]:
        """Return the parts of a GPU in MIG mode, or the GPU itself if it has none yet."""
        nvml, whole = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        found = []
        for instance in range(self._try(nvml.nvmlDeviceGetMaxMigDeviceCount, whole) or 0):
            part = self._try(nvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, instance)
            if part is None:
                continue  # not all of the seven places are in use
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
            mig=_flag(self._try(nvml.nvmlDeviceGetMigMode, handle)),
            compute_mode=_MODES.get(mode, str(mode)) if mode is not None else None,
            persistence=_flag(self._try(nvml.nvmlDeviceGetPersistenceMode, handle)),
            ecc=_flag(self._try(nvml.nvmlDeviceGetEccMode, handle)),
            pcie=f"gen {generation} x{width}" if generation and width else None,
            power_limit=limit / 1000 if limit is not None else None,
            clock_limit=self._try(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory=int(memory.total) if memory is not None else None,
        )

    def reading(self, gpu: Identity) -> GpuReading:
        """Read the current state of a GPU. A part of a GPU shares clocks, heat and power, and has no energy counter.

        Raises:
            GpuError: The GPU does not answer any more.
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
        """Return the processes whose kernels ran since the last call, ``None`` if unknown, as for parts of a GPU."""
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
        """Return degrees Celsius, ``None`` if a virtual machine hides them. Other errors show that the GPU is lost."""
        nvml = self._nvml
        try:
            return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            return None

    def _held(self, handle: Any, policy: int) -> float | None:
        """Return the total seconds for which the driver lowered the clock for this reason."""
        found = self._try(self._nvml.nvmlDeviceGetViolationStatus, handle, policy)
        return found.violationTime * 1e-9 if found is not None else None

    def _reasons(self, handle: Any) -> int:
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            ask = getattr(self._nvml, name, None)
            if ask is not None and (found := self._try(ask, handle)) is not None:
                return int(found)
        return 0

    def listen(self, gpus: Sequence[Identity]) -> None:
        """Register the XIDs of these GPUs for `xids`, if the driver supports it."""
        nvml = self._nvml
        self._events = self._try(nvml.nvmlEventSetCreate)
        for index in {gpu.index for gpu in gpus} if self._events is not None else ():
            if (handle := self._try(nvml.nvmlDeviceGetHandleByIndex, index)) is not None:
                self._try(nvml.nvmlDeviceRegisterEvents, handle, _XID, self._events)

    def xids(self) -> list[int]:
        """Return the XIDs reported since the last call."""
        found: list[int] = []
        while self._events is not None:
            event = self._try(self._nvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                break
            found.append(int(event.eventData))
        return found

    def _try(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of NVML. Return ``None`` if this device or driver does not support it."""
        try:
            return ask(*arguments)
        except self._errors:
            return None


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise GpuError(f"nvidia-ml-py is not installed, and monitoring GPUs needs it: {INSTALL}") from None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _flag(value: Any) -> bool | None:
    """Convert a setting. Of a pair, the first is current, and the second applies after the next start."""
    return None if value is None else bool(value[0] if isinstance(value, list | tuple) else value)
