"""Checks of the memory: free bytes, swap and huge pages."""

from __future__ import annotations

from tfbench.doctor.checks.grading import GIB, Limits, finding, graded, graded_low, unknown
from tfbench.doctor.model import Finding, Machine, State


def available(machine: Machine, limits: Limits) -> Finding:
    """Check that the zygotes fit into memory and below the limit of the control group."""
    group = machine.cgroup
    below_limit = group.memory_left if group is not None else None
    free = machine.memory.available if machine.memory is not None else None
    left = [value for value in (free, below_limit) if value is not None]
    if not left:
        return unknown("memory", machine, "free memory")
    least = min(left)
    state = graded_low(least, limits.memory_warn, limits.memory_bad)
    what = f"{max(0, least) / GIB:.1f} GiB free{' below the limit of the control group' * (least == below_limit)}"
    fix = "12 zygotes per side need 180 MB each: free memory, raise the container's limit, or use --policy quick"
    return finding("memory", state, what, fix)


def swap(machine: Machine, limits: Limits) -> Finding:
    """Check whether processes wait for memory or lie in swap."""
    memory = machine.memory
    if memory is None:
        return unknown("swap", machine, "memory shortage")
    pressure = memory.pressure or 0.0
    used = f"{memory.swap_used / GIB:.1f} GiB in swap" if memory.swap_used else "swap is empty"
    waits = "" if memory.pressure is None else f"; processes waited for memory {pressure:.0f}% of the last 10 s"
    state = graded(pressure, limits.pressure_warn, limits.pressure_bad)
    if state is State.OK and memory.swap_used > limits.swap_warn:
        state = State.WARN
    fix = "end the programs that fill memory, then sudo swapoff -a && sudo swapon -a"
    return finding("swap", state, used + waits, fix)


def huge_pages(machine: Machine, limits: Limits) -> Finding:
    """Check whether the kernel gives out huge pages unasked."""
    name = "transparent huge pages"
    if machine.hugepages is None:
        return unknown(name, machine, "the setting of huge pages")
    if machine.hugepages != "always":
        return Finding(name, State.OK, machine.hugepages)
    return Finding(
        name,
        State.WARN,
        "always: whether a process gets huge pages depends on the current fragmentation of memory",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )
