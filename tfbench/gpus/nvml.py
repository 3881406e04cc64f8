"""Read GPUs through NVML, with nvidia-ml-py. NVML creates no CUDA context, so this process stays able to fork."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfbench.errors import GpuError
from tfbench.gpus.readings import GpuReading, Identity

_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_XID = 8
"""nvmlEventTypeXidCriticalError."""
_POWER, _THERMAL = 0, 1
"""nvmlPerfPolicyType_t."""
_REASONS = ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")
"""The newer name and the older one."""


class Nvml:
    """The GPUs of this machine, a `Driver`. Call `close` at the end.

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
            raise GpuError(
                f"NVML does not answer ({error}): there is no NVIDIA driver here, or the container has no access to "
                "it; start the container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            ) from None
        self._events: Any = None
        self._asked: dict[Identity, int] = {}
        """Time of the last utilization sample of each GPU, in the driver's microseconds."""

    def close(self) -> None:
        """Shut down NVML. A lost GPU cannot be released."""
        if self._events is not None:
            self._ask("EventSetFree", self._events)
        self._ask("Shutdown")

    def identities(self) -> list[Identity]:
        """List all GPUs in PCI bus order. A divided GPU (MIG) is replaced by its parts."""
        try:
            whole = [self._identity(index) for index in range(int(self._nvml.nvmlDeviceGetCount()))]
        except self._errors as error:
            raise GpuError(f"NVML cannot list the GPUs: {error}") from None
        return [one for gpu in whole for one in (self._parts(gpu) if gpu.mig else [gpu])]

    def _parts(self, gpu: Identity) -> list[Identity]:
        """Return the parts of a GPU in MIG mode, or the GPU itself if it has none yet."""
        nvml, whole = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        found = []
        for instance in range(self._ask("DeviceGetMaxMigDeviceCount", whole) or 0):
            part = self._ask("DeviceGetMigDeviceHandleByIndex", whole, instance)
            if part is not None:  # not all of the seven places are in use
                name, uuid = _text(nvml.nvmlDeviceGetName(part)), _text(nvml.nvmlDeviceGetUUID(part))
                found.append(replace(gpu, instance=instance, name=name, uuid=uuid, memory=self._memory(part)))
        return found or [gpu]

    def _identity(self, index: int) -> Identity:
        nvml, handle = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index)
        cuda = self._ask("SystemGetCudaDriverVersion") or 0
        links = [self._ask(f"DeviceGetMaxPcieLink{what}", handle) for what in ("Generation", "Width")]
        mode = self._ask("DeviceGetComputeMode", handle)
        vbios = self._ask("DeviceGetVbiosVersion", handle)
        return Identity(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            driver=_text(self._ask("SystemGetDriverVersion") or "unknown"),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            vbios=_text(vbios) if vbios else None,
            mig=_flag(self._ask("DeviceGetMigMode", handle)),
            compute_mode=_MODES.get(mode, str(mode)) if mode is not None else None,
            persistence=_flag(self._ask("DeviceGetPersistenceMode", handle)),
            ecc=_flag(self._ask("DeviceGetEccMode", handle)),
            pcie="gen {} x{}".format(*links) if all(links) else None,
            power_limit=_thousandth(self._ask("DeviceGetEnforcedPowerLimit", handle)),
            clock_limit=self._ask("DeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM),
            memory=self._memory(handle),
        )

    def _memory(self, handle: Any) -> int | None:
        memory = self._ask("DeviceGetMemoryInfo", handle)
        return int(memory.total) if memory is not None else None

    def reading(self, gpu: Identity) -> GpuReading:
        """Read the current state of a GPU. A part of a GPU shares clocks, heat and power, and has no energy counter."""
        nvml = self._nvml
        try:
            handle = part = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
            temperature = self._temperature(handle)
            if gpu.instance is not None:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, gpu.instance)
        except self._errors as error:
            raise GpuError(f"GPU {gpu.place} does not answer any more ({error}); see dmesg for its XID") from None
        energy = self._ask("DeviceGetTotalEnergyConsumption", handle) if gpu.instance is None else None
        listed = self._ask("DeviceGetComputeRunningProcesses", part)
        reasons = (self._ask(name, handle) for name in _REASONS if hasattr(nvml, f"nvml{name}"))
        return GpuReading(
            sm_clock=self._ask("DeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            memory_clock=self._ask("DeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
            power=_thousandth(self._ask("DeviceGetPowerUsage", handle)),
            temperature=temperature,
            reasons=next((int(bits) for bits in reasons if bits is not None), 0),
            energy=_thousandth(energy),
            processes=frozenset(process.pid for process in listed) if listed is not None else None,
            computing=self._computing(gpu, handle),
            seconds=time.monotonic(),
            too_hot=self._held(handle, _THERMAL),
            capped=self._held(handle, _POWER),
        )

    def _computing(self, gpu: Identity, handle: Any) -> frozenset[int] | None:
        """Return the processes whose kernels ran since the last call, ``None`` if unknown, as for parts of a GPU."""
        nvml, last = self._nvml, self._asked.get(gpu, 0)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, last)
        except nvml.NVMLError_NotFound:
            return frozenset()  # nothing has run
        except self._errors:
            return None
        self._asked[gpu] = max((sample.timeStamp for sample in samples), default=last)
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
        found = self._ask("DeviceGetViolationStatus", handle, policy)
        return found.violationTime * 1e-9 if found is not None else None

    def listen(self, gpus: Sequence[Identity]) -> None:
        self._events = self._ask("EventSetCreate")
        for index in {gpu.index for gpu in gpus} if self._events is not None else ():
            if (handle := self._ask("DeviceGetHandleByIndex", index)) is not None:
                self._ask("DeviceRegisterEvents", handle, _XID, self._events)

    def xids(self) -> list[int]:
        found: list[int] = []
        while self._events is not None and (event := self._ask("EventSetWait_v2", self._events, 0)) is not None:
            found.append(int(event.eventData))
        return found

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML. Return ``None`` if this device or driver does not support it."""
        try:
            return getattr(self._nvml, f"nvml{function}")(*arguments)
        except self._errors:
            return None


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        text = "nvidia-ml-py is not installed, and monitoring GPUs needs it: pip install 'tfbench[gpu]'"
        raise GpuError(text) from None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _flag(value: Any) -> bool | None:
    """Convert a setting. Of a pair, the first is current, and the second applies after the next start."""
    return None if value is None else bool(value[0] if isinstance(value, list | tuple) else value)


def _thousandth(value: int | None) -> float | None:
    """Convert from milliwatts or millijoules."""
    return value / 1000 if value is not None else None
