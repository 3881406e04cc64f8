"""An NVML that follows a script, with nvidia-ml-py's names: what a driver tells, or that it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

UUIDS = ("GPU-1a2b3c4d-0000-1111-2222-333344445555", "GPU-9f8e7d6c-0000-1111-2222-333344445555")


class NVMLError(Exception):
    """As nvidia-ml-py raises it."""


@dataclass
class Device:
    """One GPU; lists are gone through reading by reading, their last entry stays."""

    uuid: str = UUIDS[0]
    name: str = "NVIDIA H100 80GB HBM3"
    clocks: list[int] = field(default_factory=lambda: [1980])
    reasons: list[int] = field(default_factory=lambda: [0])
    processes: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    energy: list[int] = field(default_factory=lambda: [1_000_000])
    """Millijoules."""
    power_limit: int = 700_000
    mode: int = 0
    gone: int | None = None
    """Reading from which on it has vanished."""
    readings: int = 0


class Library:
    """Stands in for the module ``pynvml``."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *devices: Device, missing: tuple[str, ...] = (), errors: tuple[int, ...] = ()) -> None:
        self.devices = devices
        self.missing = missing
        """Functions that this driver does not have."""
        self.errors = list(errors)
        self.closed = False

    def __getattribute__(self, name: str):
        if name.startswith("nvml") and name in object.__getattribute__(self, "missing"):

            def unsupported(*arguments):
                raise NVMLError("Not Supported")

            return unsupported
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        if not self.devices:
            raise NVMLError("Driver Not Loaded")

    def nvmlShutdown(self):
        self.closed = True

    def nvmlDeviceGetCount(self):
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index):
        device = self.devices[index]
        if device.gone is not None and device.readings >= device.gone:
            raise NVMLError("GPU is lost")
        return device

    def nvmlDeviceGetUUID(self, device):
        return device.uuid.encode()

    def nvmlDeviceGetName(self, device):
        return device.name

    def nvmlSystemGetDriverVersion(self):
        return "570.124.06"

    def nvmlSystemGetCudaDriverVersion(self):
        return 12080

    def nvmlDeviceGetVbiosVersion(self, device):
        return "96.00.99.00.01"

    def nvmlDeviceGetMigMode(self, device):
        return [0, 0]

    def nvmlDeviceGetComputeMode(self, device):
        return device.mode

    def nvmlDeviceGetPersistenceMode(self, device):
        return 1

    def nvmlDeviceGetEccMode(self, device):
        return [1, 1]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, device):
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, device):
        return 16

    def nvmlDeviceGetEnforcedPowerLimit(self, device):
        return device.power_limit

    def nvmlDeviceGetMemoryInfo(self, device):
        return SimpleNamespace(total=80 << 30)

    def nvmlDeviceGetMaxClockInfo(self, device, kind):
        return 1980

    def nvmlDeviceGetTemperature(self, device, kind):
        device.readings += 1
        return 45

    def nvmlDeviceGetPowerUsage(self, device):
        return 350_000

    def nvmlDeviceGetClockInfo(self, device, kind):
        return self._at(device, device.clocks) if kind == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetTotalEnergyConsumption(self, device):
        return self._at(device, device.energy)

    def nvmlDeviceGetCurrentClocksEventReasons(self, device):
        return self._at(device, device.reasons)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device):
        return self._at(device, device.reasons)

    def nvmlDeviceGetComputeRunningProcesses(self, device):
        return [SimpleNamespace(pid=pid) for pid in self._at(device, device.processes)]

    def nvmlEventSetCreate(self):
        return object()

    def nvmlEventSetFree(self, events):
        pass

    def nvmlDeviceRegisterEvents(self, device, kind, events):
        pass

    def nvmlEventSetWait_v2(self, events, timeout):
        if not self.errors:
            raise NVMLError("Timeout")
        return SimpleNamespace(eventData=self.errors.pop(0))

    @staticmethod
    def _at(device, values):
        return values[min(device.readings - 1, len(values) - 1)] if device.readings else values[0]
