"""Read what the machine is: processors, control groups, procfs, GPUs."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tfbench.facts import Cgroup, match, number, read_limits, read_proc, text, throttled_seconds
from tfbench.gpus.selection import has_driver, mps_folder
from tfbench.model import Word

# Readings of a machine, their limits, and findings. ``None`` means that a property could not be read


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
    compute_mode: str = ""
    """``Default``, or which processes may use it."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The NVIDIA devices and the processes that use them."""

    devices: tuple[Gpu, ...]
    processes: tuple[str, ...]
    mps: str = ""
    """Folder of the pipes of an MPS daemon, ``""`` without one."""
    has_mps: bool = False
    """Whether the program of the daemon is installed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """All readings of a machine."""

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
    """Bytes. Policy standard keeps up to 12 zygotes per side, of 180 MB each where each imports TensorFlow itself."""
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


def processors(words: str) -> tuple[int, ...]:
    """Parse the kernel's lists of processors, such as ``0,2-3``; empty if malformed."""
    numbers: list[int] = []
    for part in words.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return ()
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


# Read NVIDIA devices through ``nvidia-smi``, which comes with every driver


Run = Callable[[Sequence[str]], "str | None"]
"""Runs a command and returns its output; ``None`` if it is missing, fails or does not end."""

_SECONDS = 20.0
"""Without persistence mode, every call loads the driver, which takes several seconds."""
_FIELDS = "index,name,persistence_mode,utilization.gpu,clocks.sm,clocks.max.sm,mig.mode.current,compute_mode"
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The name since driver 535, and the older name."""
_SWITCH = {"Enabled": True, "Disabled": False}
_PROCESSES = "pid,process_name,used_memory"
MPS = "nvidia-cuda-mps-control"
"""The program of the MPS daemon."""


def run(command: Sequence[str]) -> str | None:
    """Run a system command; see `Run`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def read_gpus(run: Run = run) -> Gpus | None:
    """Return the devices and the processes that compute on them; ``None`` without an answer of nvidia-smi."""
    answers = (_query(run, f"gpu={_FIELDS},{reasons}", 9) for reasons in _REASONS)
    if (devices := next((rows for rows in answers if rows is not None), None)) is None:
        return None
    processes = _query(run, f"compute-apps={_PROCESSES}", 3) or []
    listed = tuple(f"{name} (pid {pid}, {memory} MiB)" for pid, name, memory in processes)
    return Gpus(tuple(map(_gpu, devices)), listed, str(mps_folder() or ""), bool(shutil.which(MPS)))


def _query(run: Run, query: str, width: int) -> list[list[str]] | None:
    """Return the rows of this many cells, ``None`` without an answer."""
    answer = run(["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"])
    if answer is None:
        return None
    rows = ([cell.strip() for cell in row] for row in csv.reader(answer.splitlines()))
    return [row for row in rows if len(row) == width]


def _gpu(row: list[str]) -> Gpu:
    index, name, persistence, utilization, clock, limit, mig, mode, throttled = row
    numbers = _number(utilization), _number(clock), _number(limit)
    bits = int(throttled, 16) if throttled.startswith("0x") else None
    return Gpu(int(index), name, _SWITCH.get(persistence), *numbers, bits, _SWITCH.get(mig), mode)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None  # such as "[N/A]"


# Read a machine: /proc, /sys, control groups and GPUs. A missing file is no error, and nothing is graded here


_STEAL = 7
"""Column of a processor in /proc/stat. The columns after it are already counted in the others."""
_GLANCE = 0.02
"""Seconds between two readings of the number of runnable processes."""
_TIMER_READINGS = 2000
_CPUS = "sys/devices/system/cpu"
_TURBO_SWITCHES = ((f"{_CPUS}/intel_pstate/no_turbo", 1), (f"{_CPUS}/cpufreq/boost", 0))
"""File, and its content that switches turbo off."""
_SAMPLED = (".", "python", "python/eager", "python/framework", "python/ops")
"""Folders of TensorFlow: about 300 of the 2,000 modules that an import loads."""
_HASHED = 1
"""Flag of bytecode that Python does not compare with its source."""
_HYPERVISOR_FILES = ("sys/hypervisor/type", "proc/device-tree/hypervisor/compatible")


def read(cpus: Sequence[int], worker: int, *, root: Path = Path("/"), seconds: float = 1.0, run: Run = run) -> Machine:
    """Read all properties. Takes ``seconds``, and several more where a GPU's driver is not loaded.

    Args:
        cpus: Processors that this process may use.
        worker: The processor that workers are pinned to.
        root: The folder of /proc and /sys.
        seconds: Duration of the observation, 0 for none.
    """
    cpu = root / _CPUS / f"cpu{worker}"
    load_average = match(root / "proc/loadavg", r"^([\d.]+)")
    switches = ((file, off, number(root / file)) for file, off in _TURBO_SWITCHES)
    switch, off, turbo = next((switch for switch in switches if switch[2] is not None), ("", 0, None))
    # First, before this process is a load itself.
    others, share, spin = observe(root, worker, seconds) if seconds else (None, None, None)
    return Machine(
        cpus=tuple(cpus),
        worker=worker,
        online=len(processors(read_proc(root / _CPUS / "online"))) or None,
        others=others,
        share=share,
        spin=spin,
        load_average=float(load_average) if load_average else None,
        governor=text(cpu / "cpufreq/scaling_governor"),
        turbo=None if turbo is None else turbo != off,
        turbo_switch=f"echo {off} | sudo tee /{switch}" if switch else "",
        siblings=processors(read_proc(cpu / "topology/thread_siblings_list")) or None,
        cgroup=read_limits(root),
        thermal_events=counters(root, worker).thermal_events,
        hypervisor=_hypervisor(root),
        memory=_memory(root),
        hugepages=match(root / "sys/kernel/mm/transparent_hugepage/enabled", r"\[(.+)\]"),
        aslr=number(root / "proc/sys/kernel/randomize_va_space"),
        clock_source=text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        clock_step=_clock_step(),
        tensorflow=look_at("tensorflow"),
        writes_bytecode=not sys.dont_write_bytecode,
        gpus=read_gpus(run),
        gpu_driver=has_driver(root),
    )


def counters(root: Path, worker: int) -> Counters:
    """Read the counters of the worker's processor, of the control group and of thermal events."""
    ticks = match(root / "proc/stat", rf"^cpu{worker}((?: \d+){{{_STEAL + 1}}})")
    heat = root / _CPUS / f"cpu{worker}/thermal_throttle"
    events = [number(heat / f"{part}_throttle_count") for part in ("core", "package")]
    known = [count for count in events if count is not None]
    columns = tuple(map(int, ticks.split())) if ticks else None
    return Counters(columns, throttled_seconds(root), max(known, default=None))


def observation_window(before: Counters, after: Counters, seconds: float) -> ObservationWindow:
    """Return the change between two readings of the counters."""
    passed = [max(0, b - a) for a, b in zip(before.ticks or (), after.ticks or (), strict=False)]
    steal = passed[_STEAL] / sum(passed) if any(passed) else None
    throttled = _grown(before.throttled_seconds, after.throttled_seconds)
    return ObservationWindow(seconds, steal, throttled, _grown(before.thermal_events, after.thermal_events))


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def observe(root: Path, worker: int, seconds: float) -> tuple[float | None, float, ObservationWindow]:
    """Observe the idle machine for half of the time, then with the worker's processor busy, where steal is visible.

    Returns:
        The number of other runnable processes, the share of its processor that a busy loop got, and its window.
    """
    began, others = time.perf_counter(), []
    while time.perf_counter() - began < seconds / 2:
        time.sleep(_GLANCE)
        if (running := number(root / "proc/stat", "procs_running")) is not None:
            others.append(max(0, running - 1))

    before = counters(root, worker)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        if worker in allowed:
            os.sched_setaffinity(0, {worker})
        began, used = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds / 2:
            pass
        wall, share = time.perf_counter() - began, time.thread_time() - used
    finally:
        if worker in allowed:
            os.sched_setaffinity(0, allowed)
    spin = observation_window(before, counters(root, worker), wall)
    return fmean(others) if others else None, min(1.0, share / wall), spin


def _clock_step() -> float:
    """Return the smallest difference of two timer readings in seconds, including the cost of a reading."""
    times = [time.perf_counter_ns() for _ in range(_TIMER_READINGS)]
    return min((b - a for a, b in itertools.pairwise(times) if b > a), default=10**9) * 1e-9


def _hypervisor(root: Path) -> str | None:
    """Return the hypervisor's name, from kernel files or from the CPU flag that every x86 hypervisor sets."""
    if named := next((words for file in _HYPERVISOR_FILES if (words := text(root / file))), None):
        return named.strip("\0")
    flags = match(root / "proc/cpuinfo", r"^flags\s*:(.*)")
    if flags is None:
        return None
    return (text(root / "sys/class/dmi/id/sys_vendor") or "a hypervisor") if "hypervisor" in flags.split() else ""


def _memory(root: Path) -> Memory | None:
    names = ("MemAvailable", "SwapTotal", "SwapFree")
    available, total, free = (number(root / "proc/meminfo", name) for name in names)
    if available is None:
        return None
    pressure = match(root / "proc/pressure/memory", r"avg10=([\d.]+)")
    return Memory(available * 1024, ((total or 0) - (free or 0)) * 1024, float(pressure) if pressure else None)


def look_at(package: str) -> Bytecode | None:
    """Count the compiled modules of a package without importing it; ``None`` if this interpreter does not have it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    sources = [source for part in _SAMPLED for source in (folder / part).glob("*.py")]
    return Bytecode(str(folder), len(sources), sum(map(_is_compiled, sources)))


def _is_compiled(source: Path) -> bool:
    """Return whether bytecode exists for this interpreter's version and the current source (PEP 552)."""
    try:
        with open(importlib.util.cache_from_source(str(source)), "rb") as file:
            magic, *fields = struct.unpack("<4s3I", file.read(16))
        status = source.stat()
    except (OSError, NotImplementedError, struct.error):
        return False
    flags, changed, size = fields
    current = changed == int(status.st_mtime) & 0xFFFFFFFF and size == status.st_size & 0xFFFFFFFF
    return magic == importlib.util.MAGIC_NUMBER and (bool(flags & _HASHED) or current)
