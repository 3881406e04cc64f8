"""What the doctor reads of a machine, and what it finds. ``None`` is what could not be read."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfbench.model import JSON


class State(str, enum.Enum):
    """How a finding is; in the order in which they are shown."""

    BAD = "bad"
    """Times taken here mislead, or the race itself cannot be trusted."""
    WARN = "warn"
    """It costs launches, or spoils times that are saved and compared later; the race copes."""
    UNKNOWN = "unknown"
    OK = "ok"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``fix`` is empty where nothing needs one."""

    name: str
    state: State
    what: str
    fix: str = ""

    def as_json(self) -> JSON:
        return {"name": self.name, "state": self.state.value, "what": self.what, "fix": self.fix}


@dataclass(frozen=True, slots=True)
class Counters:
    """What only grows; two of these make an `ObservationWindow`."""

    ticks: tuple[int, ...] | None
    """The worker's line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    throttled_seconds: float | None
    """Time that the control group was kept from running."""
    thermal_events: int | None


@dataclass(frozen=True, slots=True)
class ObservationWindow:
    """A time during which the worker's processor was watched."""

    seconds: float
    busy: float | None = None
    """Share of the time in which the processor ran anything at all."""
    steal: float | None = None
    """Share of the time that the hypervisor gave to others."""
    throttled_seconds: float | None = None
    thermal_events: int | None = None


@dataclass(frozen=True, slots=True)
class MachineObservation:
    """About a second of this machine, at first idle, then with a busy loop on the worker's processor."""

    others: float | None
    """Processes that could run at a time, on average, this one left out."""
    idle: ObservationWindow
    spin: ObservationWindow
    share: float
    """What the busy loop got of its processor."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The tightest limits of the control groups that this process is in."""

    quota: float | None = None
    """Processors; ``None`` without a limit."""
    memory_limit: int | None = None
    memory_left: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    available: int
    swap_used: int
    pressure: float | None
    """Percentage of the last 10 s in which some process waited for memory."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What the timer is, as far as it can be seen."""

    source: str | None
    step: float
    """Seconds: the smallest difference of two readings that is not zero."""


@dataclass(frozen=True, slots=True)
class Bytecode:
    """A package found without importing it, and how much of it is compiled."""

    package: str
    path: str
    seen: int
    """Modules that were looked at."""
    compiled: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA device, as ``nvidia-smi`` tells it."""

    index: int
    name: str
    persistence: bool | None
    utilization: float | None
    """Percent, while nothing of ours runs."""
    clock: float | None
    """MHz of the multiprocessors, now."""
    clock_limit: float | None
    throttled: int | None
    """Bits of the reasons for which the clock is held down."""
    mig: bool | None


@dataclass(frozen=True, slots=True)
class Gpus:
    """The NVIDIA devices and who computes on them."""

    devices: tuple[Gpu, ...]
    processes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """All that was read."""

    system: str
    cpus: tuple[int, ...]
    """Processors that this process may use."""
    worker: int
    """The one that the measuring processes are pinned to."""
    online: int | None = None
    observation: MachineObservation | None = None
    load_average: float | None = None
    governor: str | None = None
    turbo: bool | None = None
    turbo_switch: str = ""
    """The command that switches it off."""
    siblings: tuple[int, ...] | None = None
    """Processors that share the worker's core, itself included."""
    cgroup: Cgroup | None = None
    counters: Counters | None = None
    """As the system stood at the end of reading, counted since it was started."""
    hypervisor: str | None = None
    """Name of the hypervisor, ``""`` on bare metal."""
    memory: Memory | None = None
    hugepages: str | None = None
    aslr: int | None = None
    clock: Clock | None = None
    tensorflow: Bytecode | None = None
    writes_bytecode: bool = True
    gpus: Gpus | None = None
    gpu_driver: bool = False
    """Whether a device or driver of NVIDIA is there, readable or not."""
