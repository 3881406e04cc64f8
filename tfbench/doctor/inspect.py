"""Read a machine: /proc, /sys, control groups and GPUs. A missing file is no error, and nothing is graded here."""

from __future__ import annotations

import importlib.util
import itertools
import os
import platform
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from tfbench.doctor.cgroups import read_limits, throttled_seconds
from tfbench.doctor.model import Bytecode, Counters, Machine, Memory, ObservationWindow
from tfbench.doctor.nvidia_smi import Run, read_gpus, run
from tfbench.doctor.procfs import match, number, processors, text
from tfbench.gpus.selection import has_driver

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


def read(
    cpus: Sequence[int],
    worker: int,
    *,
    root: Path = Path("/"),
    system: str = platform.system(),
    seconds: float = 1.0,
    run: Run = run,
) -> Machine:
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
    switch, off, turbo = next((found for found in switches if found[2] is not None), ("", 0, None))
    # First, before this process is a load itself.
    others, share, spin = observe(root, worker, seconds) if seconds else (None, None, None)
    return Machine(
        system=system,
        cpus=tuple(cpus),
        worker=worker,
        online=len(processors(text(root / _CPUS / "online") or "")) or None,
        others=others,
        share=share,
        spin=spin,
        load_average=float(load_average) if load_average else None,
        governor=text(cpu / "cpufreq/scaling_governor"),
        turbo=None if turbo is None else turbo != off,
        turbo_switch=f"echo {off} | sudo tee /{switch}" if switch else "",
        siblings=processors(text(cpu / "topology/thread_siblings_list") or "") or None,
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
