"""Read what the machine is: processors, control group, memory, GPUs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tfbench.errors import GpuError
from tfbench.facts import read_proc
from tfbench.gpus.nvml import GpuReading, Identity, Nvml
from tfbench.gpus.selection import has_driver
from tfbench.model import Word

# Readings of a machine, and findings. ``None`` means that a property could not be read


GIB = 1 << 30


class State(Word):
    """The state of a finding, in display order."""

    BAD = "bad"
    """Times measured here mislead, or races become unreliable."""
    WARN = "warn"
    """Costs launches, or makes saved times incomparable. Races compensate for it."""
    UNKNOWN = "unknown"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``fix`` is empty if there is none to make."""

    name: str
    state: State
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of the kernel that only grow, or their growth between two readings."""

    seconds: float = 0.0
    """Time of the worker's processor, idle time included."""
    stolen: float | None = None
    """Part of it that the hypervisor gave to other machines."""
    throttled: float | None = None
    """Seconds for which the kernel stopped the control group."""
    heat: float | None = None
    """Number of times that heat lowered the worker's clock."""

    def since(self, before: Counters) -> Counters:
        """Return the growth."""
        pairs = ((getattr(before, field.name), getattr(self, field.name)) for field in fields(self))
        growth: list[Any] = [None if None in (old, new) else max(0.0, new - old) for old, new in pairs]
        return Counters(*growth)


@dataclass(frozen=True, slots=True)
class Limits:
    """The tightest limits of this process' control groups, ``None`` without a limit."""

    quota: float | None = None
    """In processors."""
    memory_left: int | None = None
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """All NVIDIA devices with their readings, while no worker runs; or why they cannot be read."""

    devices: tuple[tuple[Identity, GpuReading], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """All readings of a machine."""

    cpus: tuple[int, ...]
    """Processors that this process may use."""
    worker: int
    """The processor that workers are pinned to."""
    online: int | None = None
    others: float | None = None
    """Mean number of processors that other processes keep busy."""
    share: float | None = None
    """Share of its processor that a busy loop got."""
    spin: Counters | None = None
    """The growth of the counters during a busy loop or a race."""
    governor: str | None = None
    turbo: bool | None = None
    turbo_switch: str = ""
    """The command that switches turbo off."""
    siblings: tuple[int, ...] | None = None
    """Processors on the worker's core, including its own."""
    limits: Limits | None = None
    counters: Counters = Counters()
    """Since boot."""
    memory: int | None = None
    """Available bytes."""
    gpus: Gpus | None = None
    """``None`` without an NVIDIA driver."""


# Read them. A missing file is no error, and nothing is graded here


_CPUS = "sys/devices/system/cpu"
_TURBO_SWITCHES = ((f"{_CPUS}/intel_pstate/no_turbo", 1), (f"{_CPUS}/cpufreq/boost", 0))
"""File, and its content that switches turbo off."""


def read(cpus: Sequence[int], worker: int, *, root: Path = Path("/"), seconds: float = 1.0) -> Machine:
    """Read all properties. Takes ``seconds``, and several more where a GPU's driver is not loaded.

    Args:
        cpus: Processors that this process may use.
        worker: The processor that workers are pinned to.
        root: The folder of /proc and /sys.
        seconds: Duration of the observation, 0 for none.
    """
    import psutil  # only the doctor reads the machine

    cpu = root / _CPUS / f"cpu{worker}"
    switches = ((file, off, _number(root / file)) for file, off in _TURBO_SWITCHES)
    switch, off, turbo = next((switch for switch in switches if switch[2] is not None), ("", 0, None))
    # First, before this process is a load itself.
    others, share, spin = observe(root, worker, seconds) if seconds else (None, None, None)
    return Machine(
        cpus=tuple(cpus), worker=worker, online=os.cpu_count(), others=others, share=share, spin=spin,
        governor=read_proc(cpu / "cpufreq/scaling_governor") or None,
        turbo=None if turbo is None else turbo != off,
        turbo_switch=f"echo {off} | sudo tee /{switch}" if switch else "",
        siblings=_numbers(read_proc(cpu / "topology/thread_siblings_list")) or None, limits=read_limits(root),
        counters=counters(root, worker), memory=psutil.virtual_memory().available,
        gpus=read_gpus() if has_driver(root) else None,
    )  # fmt: skip


def _match(file: Path, pattern: str) -> str | None:
    matched = re.search(pattern, read_proc(file), re.MULTILINE)
    return matched[1] if matched else None


def _number(file: Path, name: str = "") -> int | None:
    """Return the integer that begins a file, or the line with this name; ``None`` if there is none."""
    found = _match(file, rf"^{name}:?\s+(\d+)" if name else r"\A(-?\d+)")
    return None if found is None else int(found)


def _numbers(words: str) -> tuple[int, ...]:
    """Parse the kernel's lists of processors, such as ``0,2-3``."""
    ranges = re.findall(r"(\d+)(?:-(\d+))?", words)
    return tuple(number for first, last in ranges for number in range(int(first), int(last or first) + 1))


def counters(root: Path, worker: int) -> Counters:
    """Read the counters of the worker's processor and of the control group."""
    import psutil

    processors = psutil.cpu_times(percpu=True)
    times = processors[worker] if worker < len(processors) else None
    folder = root / _CPUS / f"cpu{worker}/thermal_throttle"
    stopped = [_number(level / "cpu.stat", "throttled_usec") for level in _levels(root)]
    heat = [_number(folder / f"{part}_throttle_count") for part in ("core", "package")]
    return Counters(
        sum(times) if times else 0.0,
        getattr(times, "steal", None),
        max((1e-6 * count for count in stopped if count is not None), default=None),
        max((count for count in heat if count is not None), default=None),
    )


def observe(root: Path, worker: int, seconds: float) -> tuple[float, float, Counters]:
    """Observe the idle machine for half of the time, then with the worker's processor busy, where steal is visible.

    Returns:
        The number of processors that others keep busy, the share of its processor that a busy loop got, and the counters' growth.
    """
    import psutil

    others = sum(psutil.cpu_percent(seconds / 2, percpu=True)) / 100

    before, allowed = counters(root, worker), os.sched_getaffinity(0)
    try:
        if worker in allowed:
            os.sched_setaffinity(0, {worker})
        began, used = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds / 2:
            pass
        wall, share = time.perf_counter() - began, time.thread_time() - used
    finally:
        os.sched_setaffinity(0, allowed)
    return others, min(1.0, share / wall), counters(root, worker).since(before)


def _levels(root: Path) -> Iterator[Path]:
    """Yield the folders of this process' control group (version 2) and of its parents, as far as they are visible.

    Inside a container, the group's path is often that of the host, which is not mounted. Then only existing
    folders count, and the folder of the mount is the container's group.
    """
    if (path := _match(root / "proc/self/cgroup", r"^0::/(.*)$")) is not None:
        mount = root / "sys/fs/cgroup"
        yield from (level for part in (Path(path), *Path(path).parents) if (level := mount / part).is_dir())


def read_limits(root: Path) -> Limits | None:
    """Return the tightest limits of all levels; ``None`` without control groups of version 2."""
    levels = list(_levels(root))
    quotas = [re.match(r"(\d+) (\d+)", read_proc(level / "cpu.max")) for level in levels]
    quota = min((int(found[1]) / int(found[2]) for found in quotas if found), default=None)
    left = [
        limit
        - max(0, (_number(level / "memory.current") or 0) - (_number(level / "memory.stat", "inactive_file") or 0))
        for level in levels
        if (limit := _number(level / "memory.max")) is not None
    ]  # without cached files, which the kernel can drop
    return Limits(quota, min(left, default=None)) if levels else None


def read_gpus() -> Gpus:
    """Read all NVIDIA devices through NVML."""
    try:
        with closing(Nvml()) as driver:
            devices = tuple((gpu, driver.reading(gpu)) for gpu in driver.identities())
    except GpuError as error:
        return Gpus(error=str(error))
    return Gpus(devices)
