"""Readings of a machine, their limits, and findings. ``None`` means that a property could not be read."""

from __future__ import annotations

import enum
from dataclasses import dataclass

GIB = 1 << 30


class State(str, enum.Enum):
    """The state of a finding, in display order."""

    BAD = "bad"
    """Times measured here mislead, or races become unreliable."""
    WARN = "warn"
    """Costs launches, or makes saved times incomparable. Races compensate for it."""
    UNKNOWN = "unknown"
    OK = "ok"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``fix`` is empty if there is none to make."""

    name: str
    state: State
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of the kernel that only grow. The difference of two readings is an `ObservationWindow`."""

    ticks: tuple[int, ...] | None
    """Line of the worker's processor in /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    throttled_seconds: float | None
    """Time for which the kernel stopped the control group."""
    thermal_events: int | None


@dataclass(frozen=True, slots=True)
class ObservationWindow:
    """The change of the counters over some seconds."""

    seconds: float
    steal: float | None = None
    """Share of the time that the hypervisor gave to other machines."""
    throttled_seconds: float | None = None
    thermal_events: float | None = None


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The tightest limits of this process' control groups."""

    quota: float | None = None
    """In processors, ``None`` without a limit."""
    memory_left: int | None = None
    """In bytes, ``None`` without a limit."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory and swap of the machine, in bytes."""

    available: int
    swap_used: int
    pressure: float | None
    """Percentage of the last 10 s in which some process waited for memory."""


@dataclass(frozen=True, slots=True)
class Bytecode:
    """How much of a package is compiled."""

    path: str
    seen: int
    """Number of sampled modules."""
    compiled: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA device, as ``nvidia-smi`` reports it."""

    index: int
    name: str
    persistence: bool | None
    utilization: float | None
    """Percent, while no worker runs."""
    clock: float | None
    """Current clock of the multiprocessors, MHz."""
    clock_limit: float | None
    throttled: int | None
    """Bit mask of the reasons that hold the clock down."""
    mig: bool | None


@dataclass(frozen=True, slots=True)
class Gpus:
    """The NVIDIA devices and the processes that use them."""

    devices: tuple[Gpu, ...]
    processes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """All readings of a machine."""

    system: str
    cpus: tuple[int, ...]
    """Processors that this process may use."""
    worker: int
    """The processor that workers are pinned to."""
    online: int | None = None
    others: float | None = None
    """Mean number of runnable processes, without this one."""
    share: float | None = None
    """Share of its processor that a busy loop got."""
    spin: ObservationWindow | None = None
    """The window of the busy loop."""
    load_average: float | None = None
    governor: str | None = None
    turbo: bool | None = None
    turbo_switch: str = ""
    """The command that switches turbo off."""
    siblings: tuple[int, ...] | None = None
    """Processors on the worker's core, including its own."""
    cgroup: Cgroup | None = None
    thermal_events: int | None = None
    """Number of times since boot that heat lowered the worker's clock."""
    hypervisor: str | None = None
    """Name of the hypervisor, ``""`` on bare metal."""
    memory: Memory | None = None
    hugepages: str | None = None
    aslr: int | None = None
    clock_source: str | None = None
    clock_step: float | None = None
    """Smallest nonzero difference of two readings of the system's timer, in seconds."""
    tensorflow: Bytecode | None = None
    writes_bytecode: bool = True
    gpus: Gpus | None = None
    gpu_driver: bool = False
    """Whether an NVIDIA device or driver is present, readable or not."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a reading becomes a warning, and where it becomes bad. Shares are fractions, times are seconds."""

    others_bad: float = 1.0
    """Other runnable processes per processor. From 1 on, another process wants the worker's processor too."""
    others_warn: float = 0.25
    """With a quarter of the processors busy, bursts reach the caches that all processors share."""
    share_warn: float = 0.97
    """A busy loop loses up to 3% of its processor to the kernel. Below this, another process ran there."""
    share_bad: float = 0.70
    """Every third block would be interrupted."""
    steal_warn: float = 0.01
    """Above the kernel's rounding, which is 0.01 s per second."""
    steal_bad: float = 0.10
    """One block in ten would be interrupted, and medians of blocks begin to move."""
    quota_warn: float = 2.0
    """Processors. A worker takes one, and the controller must not use up the worker's share."""
    quota_bad: float = 1.0
    """Below one processor, the kernel throttles every worker during its timed blocks."""
    throttled_bad: float = 0.01
    """Share of the time. A stop lasts up to 0.1 s, which is hundreds of blocks."""
    memory_warn: int = 9 * GIB // 2
    """Bytes. Policy standard keeps up to 12 zygotes per side of 180 MB each."""
    memory_bad: int = GIB
    """Bytes. TensorFlow and the first processes do not fit, and the kernel would kill one."""
    swap_warn: int = 64 << 20
    """Bytes. A smaller amount is memory that nothing used again."""
    pressure_warn: float = 1.0
    """Percent of the last 10 s in which a process waited for memory."""
    pressure_bad: float = 10.0
    clock_warn: float = 5e-7
    """A block of 0.3 ms is timed with two readings. Half a microsecond each is a third of a percent."""
    clock_bad: float = 3e-6
    """Two percent of a block, as large as the effects to be decided."""
    compiled_warn: float = 0.95
    """Share of modules. Below, every zygote imports TensorFlow seconds slower."""
    gpu_busy_warn: float = 5.0
    """Percent. An idle device reads 0, a desktop 1 to 4."""
    gpu_busy_bad: float = 20.0
    slowdown_bad: float = 0.05
    """A gate must find slowdowns of this size. If noise hides them in the median workload, the machine is not fit."""
    found: float = 0.95
    """Share of races that must call a slowdown regressed for it to count as detectable."""
