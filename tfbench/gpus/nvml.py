"""Read GPUs by NVML, and record the readings."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import or_
from statistics import fmean
from typing import Any, Protocol

from tfbench.errors import GpuError
from tfbench.model import JSON

# Identity and readings of a GPU, where ``None`` marks a value that is not reported, and the interface of drivers


HARDWARE_REASONS: Mapping[int, str] = {
    0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat, by the hardware", 0x80: "power brake",
}  # fmt: skip
"""NVML's reasons for a lowered clock that make a launch not count.

A software power cap (0x04) is not one: it is normal on parts with a power limit, where the clock itself is compared."""

IDLE = 0x01
"""NVML's reason of an idle GPU. An RTX 3090 then reports 0 MHz, so idle readings are excluded from the clock."""


def hardware_reasons(bits: int) -> list[str]:
    """Name the reasons in a bit mask that make a launch not count."""
    return [words for bit, words in HARDWARE_REASONS.items() if bits & bit]


@dataclass(frozen=True, slots=True)
class Identity:
    """Properties of a GPU that only an administrator changes."""

    index: int
    """Position in PCI bus order, from 0."""
    uuid: str
    name: str
    driver: str
    cuda: str
    """Newest version of CUDA that the driver supports."""
    vbios: str | None = None
    mig: bool | None = None
    compute_mode: str | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    pcie: str | None = None
    """``gen 4 x16``."""
    power_limit: float | None = None
    """Watts."""
    clock_limit: float | None = None
    """Maximum MHz of the multiprocessors."""
    memory: int | None = None
    """Bytes."""
    instance: int | None = None
    """Number of this part of a divided GPU (MIG), ``None`` for a whole GPU."""

    @property
    def place(self) -> str:
        """``0``, or ``0.1`` for a part."""
        return str(self.index) if self.instance is None else f"{self.index}.{self.instance}"

    def as_machine(self) -> dict[str, str]:
        """Return the properties that two runs must share for their times to be comparable."""
        limits = {"power limit": (self.power_limit, "W"), "clock limit": (self.clock_limit, "MHz")}
        known = {
            "UUID": self.uuid,
            "VBIOS": self.vbios,
            "MIG": self.mig,
            "ECC": self.ecc,
            "compute mode": self.compute_mode,
        }
        known |= {key: f"{limit:g} {unit}" for key, (limit, unit) in limits.items() if limit is not None}
        name = f"GPU {self.place}"
        return {name: self.name} | {f"{name} {key}": str(value) for key, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The state of a GPU at one time."""

    sm_clock: float | None = None
    """MHz."""
    power: float | None = None
    """Watts."""
    temperature: float | None = None
    """Degrees Celsius."""
    reasons: int = 0
    """Bits: why the clock is lowered."""
    energy: float | None = None
    """Joules since the driver started."""
    processes: frozenset[int] | None = None
    """Ids of processes with access to the GPU. In a container, they may be the host's."""
    computing: frozenset[int] | None = None
    """Ids of processes that computed since the previous reading."""
    seconds: float = 0.0
    """Time of the reading, on a monotonic clock."""
    too_hot: float | None = None
    """Seconds for which heat lowered the clock, since the driver started."""
    capped: float | None = None
    """Seconds for which the power limit lowered the clock, since the driver started."""


_Counter = Callable[[GpuReading], "float | None"]


@dataclass(frozen=True, slots=True)
class GpuObservationWindow:
    """The readings of a GPU during a launch."""

    readings: tuple[GpuReading, ...]
    """In time order. The first and last are taken at the ends of the launch."""
    xids: tuple[int, ...] = ()
    """Errors that the driver reported during the launch."""
    lost: str = ""
    """Why the readings ended early, ``""`` if they did not."""

    def as_json(self) -> JSON:
        """Summarise the readings: means, the highest temperature, all reasons for a lowered clock, and growths.

        ``too_hot`` and ``capped`` are the shares of the launch in which heat and the power limit lowered the clock.
        """
        powers = _known(reading.power for reading in self.readings)
        heat = _known(reading.temperature for reading in self.readings)
        return {
            "sm_clock": self.sm_clock,
            "power": fmean(powers) if powers else None,
            "temperature": max(heat, default=None),
            "reasons": reduce(or_, (reading.reasons for reading in self.readings), 0),
            "too_hot": self.too_hot,
            "capped": self._share(lambda reading: reading.capped),
        }

    @property
    def sm_clock(self) -> float | None:
        """Mean MHz of the readings in which the GPU was not idle. The first and the last are before and after the blocks."""
        clocks = _known(reading.sm_clock for reading in self.readings[1:-1] if not reading.reasons & IDLE)
        return fmean(clocks) if clocks else None

    @property
    def computing(self) -> frozenset[int] | None:
        """Ids of processes that computed during the launch, ``None`` if unknown."""
        known = [reading.computing for reading in self.readings[1:] if reading.computing is not None]
        return frozenset().union(*known) if known else None

    @property
    def energy(self) -> float | None:
        """Joules."""
        return self._grown(lambda reading: reading.energy)

    @property
    def too_hot(self) -> float | None:
        """Share of the launch in which heat lowered the clock, including short spells between two readings."""
        return self._share(lambda reading: reading.too_hot)

    def _share(self, counter: _Counter) -> float | None:
        grown, passed = self._grown(counter), self._grown(lambda reading: reading.seconds)
        return min(1.0, grown / passed) if grown is not None and passed else None

    def _grown(self, counter: _Counter) -> float | None:
        known = _known(counter(reading) for reading in (*self.readings[:1], *self.readings[-1:]))
        return known[1] - known[0] if len(known) == 2 else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


class Driver(Protocol):
    """Queries about GPUs, so that tests and recordings can replace NVML."""

    def identities(self) -> list[Identity]:
        """List all GPUs, or raise `GpuError`."""

    def reading(self, gpu: Identity) -> GpuReading:
        """Read the current state of a GPU, or raise `GpuError` if it does not answer any more."""

    def listen(self, gpus: Sequence[Identity]) -> None:
        """Start to record the errors (XIDs) of these GPUs, if the driver supports it."""

    def xids(self) -> list[int]:
        """Return the XIDs reported since the last call."""

    def close(self) -> None:
        """Release the driver."""


# Read GPUs through NVML, with nvidia-ml-py. NVML creates no CUDA context, so this process stays able to fork


_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_XID = 8
"""nvmlEventTypeXidCriticalError."""
_POWER, _THERMAL = 0, 1
"""nvmlPerfPolicyType_t."""
_REASONS = ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")
"""The newer name and the older one."""


class Nvml:
    """The GPUs of this machine, a `Driver`. Call `close` at the end.

    ``library`` is the module ``pynvml``, or a fake. Raises `GpuError` if the driver or the library is missing.
    """

    def __init__(self, library: Any = None) -> None:
        try:
            self._nvml = library or importlib.import_module("pynvml")
        except ImportError:
            text = "nvidia-ml-py is not installed, and monitoring GPUs needs it: pip install nvidia-ml-py"
            raise GpuError(text) from None
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
        return [part for gpu in whole for part in (self._parts(gpu) if gpu.mig else [gpu])]

    def _parts(self, gpu: Identity) -> list[Identity]:
        """Return the parts of a GPU in MIG mode, or the GPU itself if it has none yet."""
        nvml, whole = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        parts = []
        for instance in range(self._ask("DeviceGetMaxMigDeviceCount", whole) or 0):
            part = self._ask("DeviceGetMigDeviceHandleByIndex", whole, instance)
            if part is not None:  # not all of the seven places are in use
                name, uuid = nvml.nvmlDeviceGetName(part), nvml.nvmlDeviceGetUUID(part)
                parts.append(replace(gpu, instance=instance, name=name, uuid=uuid, memory=self._memory(part)))
        return parts or [gpu]

    def _identity(self, index: int) -> Identity:
        nvml, handle = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index)
        cuda = self._ask("SystemGetCudaDriverVersion") or 0
        links = [self._ask(f"DeviceGetMaxPcieLink{what}", handle) for what in ("Generation", "Width")]
        mode = self._ask("DeviceGetComputeMode", handle)
        return Identity(
            index=index, uuid=nvml.nvmlDeviceGetUUID(handle), name=nvml.nvmlDeviceGetName(handle),
            driver=self._ask("SystemGetDriverVersion") or "unknown", cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
            vbios=self._ask("DeviceGetVbiosVersion", handle) or None, mig=_flag(self._ask("DeviceGetMigMode", handle)),
            compute_mode=_MODES.get(mode, str(mode)) if mode is not None else None,
            persistence=_flag(self._ask("DeviceGetPersistenceMode", handle)),
            ecc=_flag(self._ask("DeviceGetEccMode", handle)), pcie="gen {} x{}".format(*links) if all(links) else None,
            power_limit=_thousandth(self._ask("DeviceGetEnforcedPowerLimit", handle)),
            clock_limit=self._ask("DeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM), memory=self._memory(handle),
        )  # fmt: skip

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
        reasons = (self._ask(name, handle) for name in _REASONS)
        return GpuReading(
            sm_clock=self._ask("DeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
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
        status = self._ask("DeviceGetViolationStatus", handle, policy)
        return status.violationTime * 1e-9 if status is not None else None

    def listen(self, gpus: Sequence[Identity]) -> None:
        self._events = self._ask("EventSetCreate")
        for index in {gpu.index for gpu in gpus} if self._events is not None else ():
            if (handle := self._ask("DeviceGetHandleByIndex", index)) is not None:
                self._ask("DeviceRegisterEvents", handle, _XID, self._events)

    def xids(self) -> list[int]:
        codes: list[int] = []
        while self._events is not None and (event := self._ask("EventSetWait_v2", self._events, 0)) is not None:
            codes.append(int(event.eventData))
        return codes

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML. Return ``None`` if this device or driver does not support it."""
        try:
            return getattr(self._nvml, f"nvml{function}")(*arguments)
        except self._errors:
            return None


def _flag(value: Any) -> bool | None:
    """Convert a setting. Of a pair, the first is current, and the second applies after the next start."""
    return None if value is None else bool(value[0] if isinstance(value, list | tuple) else value)


def _thousandth(value: int | None) -> float | None:
    """Convert from milliwatts or millijoules."""
    return value / 1000 if value is not None else None


# Record the answers of a driver; the tests replay recordings without a GPU


SCHEMA = "tfbench-gpus/1"
PROCESSES = ("processes", "computing")
"""Fields of a reading that are sets of process ids."""


class Recording:
    """A driver that forwards all queries and records the answers."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.listen, self.close = driver.listen, driver.close
        self._gpus: list[Identity] = []
        self._reported: list[JSON] = []
        """Readings and errors, in time order."""

    def identities(self) -> list[Identity]:
        self._gpus = self._driver.identities()
        return self._gpus

    def reading(self, gpu: Identity) -> GpuReading:
        try:
            reading = self._driver.reading(gpu)
        except GpuError as error:
            self._reported.append({"gpu": gpu.place, "lost": str(error)})
            raise
        reported = {name: value for name, value in asdict(reading).items() if value is not None}
        reported |= {name: sorted(reported[name]) for name in PROCESSES if name in reported}
        self._reported.append({"gpu": gpu.place, **reported})
        return reading

    def xids(self) -> list[int]:
        codes = self._driver.xids()
        self._reported += [{"xid": code} for code in codes]
        return codes

    def as_json(self) -> JSON:
        """Return the recording. It contains real process ids and UUIDs of the machine."""
        return {"schema": SCHEMA, "gpus": [asdict(gpu) for gpu in self._gpus], "told": self._reported}
