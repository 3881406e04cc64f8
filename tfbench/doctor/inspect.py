"""Read a machine: /proc, /sys, control groups and GPUs. A missing file is no error, and nothing is graded here."""

from __future__ import annotations

import itertools
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfbench.doctor.bytecode import look_at
from tfbench.doctor.cgroups import read_limits, throttled_seconds
from tfbench.doctor.model import Clock, Counters, Machine, MachineObservation, Memory, ObservationWindow
from tfbench.doctor.nvidia_smi import Run, read_gpus, run
from tfbench.doctor.procfs import number, processors, text
from tfbench.gpus.selection import has_driver

_TICKS = 8
"""Columns of a processor in /proc/stat up to steal. The later columns are already counted in them."""
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_GLANCE = 0.02
"""Seconds between two readings of the number of runnable processes."""
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
    turbo, switch = _turbo(root)
    return Machine(
        system=system,
        cpus=tuple(cpus),
        worker=worker,
        online=len(processors(text(root / "sys/devices/system/cpu/online") or "")) or None,
        observation=observe(root, worker, seconds) if seconds else None,  # first, before this process is a load itself
        load_average=_load_average(root),
        governor=text(_cpu(root, worker) / "cpufreq/scaling_governor"),
        turbo=turbo,
        turbo_switch=switch,
        siblings=processors(text(_cpu(root, worker) / "topology/thread_siblings_list") or "") or None,
        cgroup=read_limits(root),
        counters=counters(root, worker),
        hypervisor=_hypervisor(root),
        memory=_memory(root),
        hugepages=_chosen(text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        aslr=number(root / "proc/sys/kernel/randomize_va_space"),
        clock=Clock(text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"), clock_step()),
        tensorflow=look_at("tensorflow"),
        writes_bytecode=not sys.dont_write_bytecode,
        gpus=read_gpus(run),
        gpu_driver=has_driver(root),
    )


# Readings over time


def counters(root: Path, worker: int) -> Counters:
    """Read the counters of the worker's processor, of the control group and of thermal events."""
    ticks = None
    for line in (text(root / "proc/stat") or "").splitlines():
        name, *values = line.split()
        if name == f"cpu{worker}" and len(values) >= _TICKS:
            ticks = tuple(int(value) for value in values[:_TICKS])
    heat = _cpu(root, worker) / "thermal_throttle"
    events = [number(heat / f"{part}_throttle_count") for part in ("core", "package")]
    known = [count for count in events if count is not None]
    return Counters(ticks, throttled_seconds(root), max(known) if known else None)


def observation_window(before: Counters, after: Counters, seconds: float) -> ObservationWindow:
    """Return the change between two readings of the counters."""
    busy = steal = None
    if before.ticks is not None and after.ticks is not None:
        passed = [max(0, b - a) for a, b in zip(before.ticks, after.ticks, strict=True)]
        if total := sum(passed):
            busy = 1 - (passed[_IDLE] + passed[_IOWAIT]) / total
            steal = passed[_STEAL] / total
    return ObservationWindow(
        seconds,
        busy,
        steal,
        _grown(before.throttled_seconds, after.throttled_seconds),
        None if (events := _grown(before.thermal_events, after.thermal_events)) is None else int(events),
    )


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def observe(root: Path, worker: int, seconds: float) -> MachineObservation:
    """Observe the idle machine for half of the time, then with the worker's processor busy.

    Steal is visible only on a busy processor.
    """
    began, start = time.perf_counter(), counters(root, worker)
    others = []
    while time.perf_counter() - began < seconds / 2:
        time.sleep(_GLANCE)
        if (running := _running(root)) is not None:
            others.append(max(0, running - 1))
    idle = observation_window(start, counters(root, worker), time.perf_counter() - began)

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
    return MachineObservation(sum(others) / len(others) if others else None, idle, spin, min(1.0, share / wall))


def _running(root: Path) -> int | None:
    for line in (text(root / "proc/stat") or "").splitlines():
        if line.startswith("procs_running "):
            return int(line.split()[1])
    return None


def clock_step(readings: int = 2000) -> float:
    """Return the smallest difference of two timer readings in seconds, including the cost of a reading."""
    times = [time.perf_counter_ns() for _ in range(readings)]
    return min((b - a for a, b in itertools.pairwise(times) if b > a), default=10**9) * 1e-9


# Constant properties


def _cpu(root: Path, number: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{number}"


def _load_average(root: Path) -> float | None:
    words = (text(root / "proc/loadavg") or "").split()
    return float(words[0]) if words else None


def _turbo(root: Path) -> tuple[bool | None, str]:
    """Return whether the clock may exceed its nominal rate, and the command that forbids it."""
    cpu = "sys/devices/system/cpu"
    for file, off in ((f"{cpu}/intel_pstate/no_turbo", 1), (f"{cpu}/cpufreq/boost", 0)):
        if (value := number(root / file)) is not None:
            return value != off, f"echo {off} | sudo tee /{file}"
    return None, ""


def _hypervisor(root: Path) -> str | None:
    """Return the hypervisor's name, from kernel files or from the CPU flag that every x86 hypervisor sets."""
    named = next((words for file in _HYPERVISOR_FILES if (words := text(root / file))), None)
    if named:
        return named.strip("\0")
    for line in (text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            product = text(root / "sys/class/dmi/id/sys_vendor") or "a hypervisor"
            return product if "hypervisor" in value.split() else ""
    return None


def _memory(root: Path) -> Memory | None:
    fields = {}
    for line in (text(root / "proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[key] = int(words[0]) * 1024
    if "MemAvailable" not in fields:
        return None
    return Memory(fields["MemAvailable"], fields.get("SwapTotal", 0) - fields.get("SwapFree", 0), _pressure(root))


def _pressure(root: Path) -> float | None:
    for word in (text(root / "proc/pressure/memory") or "").split():
        name, _, value = word.partition("=")
        if name == "avg10":
            return float(value)
    return None


def _chosen(words: str | None) -> str | None:
    """Return the word in brackets, which is the current choice."""
    if not words or "[" not in words:
        return None
    return words.partition("[")[2].partition("]")[0]
