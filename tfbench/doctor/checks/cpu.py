"""Checks of the processors: other load, stolen time, quota, heat and clock rate."""

from __future__ import annotations

from tfbench.doctor.checks.grading import Limits, finding, graded, graded_low, unknown
from tfbench.doctor.model import Finding, Machine, ObservationWindow, State


def _spin(machine: Machine) -> ObservationWindow | None:
    return machine.observation.spin if machine.observation else None


def processors(machine: Machine, limits: Limits) -> Finding:
    """Check that the controller does not share the worker's processor."""
    count = len(machine.cpus)
    usable = f"{count} of {machine.online}" if machine.online and machine.online > count else str(count)
    if count > 1:
        return Finding("processors", State.OK, f"{usable} usable; workers are pinned to processor {machine.worker}")
    return Finding(
        "processors",
        State.BAD,
        f"{usable} usable: the controller and all other processes share the worker's processor",
        "give the machine, the container or its cpuset (docker --cpuset-cpus, taskset) at least two processors",
    )


def load(machine: Machine, limits: Limits) -> Finding:
    """Check how many other processes want a processor."""
    observation = machine.observation
    if observation is None or observation.others is None:
        return unknown("load", machine, "other running processes")
    average = "" if machine.load_average is None else f", load average {machine.load_average:.2f}"
    count = len(machine.cpus)
    state = graded(observation.others / max(1, count), limits.others_warn, limits.others_bad)
    what = f"{observation.others:.1f} other processes want one of {count} processors{average}"
    fix = "end other programs (`top` lists them), or wait; run one job at a time on a CI runner"
    return finding("load", state, what, fix)


def own_processor(machine: Machine, limits: Limits) -> Finding:
    """Check how much of the worker's processor a busy loop gets."""
    observation = machine.observation
    if observation is None:
        return unknown("worker's processor", machine, "the share that a busy process gets")
    state = graded_low(observation.share, limits.share_warn, limits.share_bad)
    what = f"a busy loop got {observation.share:.0%} of processor {machine.worker}"
    fix = "choose another processor with --cpus, or reserve this one (isolcpus=, a separate cpuset)"
    return finding("worker's processor", state, what, fix)


def steal(machine: Machine, limits: Limits) -> Finding:
    """Check how much processor time the hypervisor gave to other machines."""
    spin = _spin(machine)
    if spin is None or spin.steal is None:
        return unknown("steal", machine, "time that the hypervisor takes away")
    state = graded(spin.steal, limits.steal_warn, limits.steal_bad)
    what = f"the hypervisor took {spin.steal:.1%} of processor {machine.worker} away in {spin.seconds:.1f} s of work"
    fix = "use a machine type whose processors are not shared or burstable (AWS: not t2 or t3)"
    return finding("steal", state, what, fix)


def quota(machine: Machine, limits: Limits) -> Finding:
    """Check whether the control group limits or stops this process."""
    spin, group = _spin(machine), machine.cgroup
    if group is None:
        return unknown("processor quota", machine, "the quota of the control group")
    limit = "no quota" if group.quota is None else f"a quota of {group.quota:g} processors"
    throttled = (spin.throttled_seconds or 0.0) / spin.seconds if spin is not None and spin.seconds else 0.0
    state, what = State.OK, limit
    if throttled >= limits.throttled_bad:
        state, what = State.BAD, f"{limit}, and it stopped this group for {throttled:.0%} of the time"
    elif group.quota is not None and group.quota < limits.quota_warn:
        state = State.BAD if group.quota < limits.quota_bad else State.WARN
        what = f"{limit}: a group that uses it up is stopped for up to 0.1 s"
    fix = "raise the limit (docker --cpus, Kubernetes resources.limits.cpu) or remove it; a cpuset adds no noise"
    return finding("processor quota", state, what, fix)


def heat(machine: Machine, limits: Limits) -> Finding:
    """Check whether the processor lowered its clock because of heat."""
    counters, spin = machine.counters, _spin(machine)
    if counters is None or counters.thermal_events is None:
        return unknown("heat", machine, "clock reductions caused by heat", hidden=True)
    if spin is not None and spin.thermal_events:
        return Finding(
            "heat",
            State.BAD,
            f"heat lowered the processor's clock {spin.thermal_events} times in {spin.seconds:.0f} s",
            "clean or improve the cooling, or cap the clock: sudo cpupower frequency-set -u RATE",
        )
    if counters.thermal_events:
        return Finding(
            "heat",
            State.WARN,
            f"heat lowered the processor's clock {counters.thermal_events} times since boot, but not just now",
            "cap the clock for long runs: sudo cpupower frequency-set -u RATE",
        )
    return Finding("heat", State.OK, "heat has not lowered the processor's clock since boot")


def governor(machine: Machine, limits: Limits) -> Finding:
    """Check whether the kernel changes the clock with the load."""
    if machine.governor is None:
        return unknown("governor", machine, "the policy of the processor's clock", hidden=True)
    if machine.governor == "performance":
        return Finding("governor", State.OK, "performance")
    return Finding(
        "governor",
        State.WARN,
        f"{machine.governor}: the clock follows the load, so a block's time depends on what ran before it",
        "sudo cpupower frequency-set -g performance",
    )


def turbo(machine: Machine, limits: Limits) -> Finding:
    """Check whether the clock may exceed its nominal rate."""
    if machine.turbo is None:
        return unknown("turbo", machine, "whether the clock may exceed its nominal rate", hidden=True)
    if not machine.turbo:
        return Finding("turbo", State.OK, "off: the clock stays at or below its nominal rate")
    what = "on: the clock depends on heat and on the load of the other cores"
    return Finding("turbo", State.WARN, what, machine.turbo_switch)


def siblings(machine: Machine, limits: Limits) -> Finding:
    """Check whether the worker's processor shares its core."""
    if machine.siblings is None:
        return unknown("SMT siblings", machine, "processors on the same core", hidden=True)
    others = [cpu for cpu in machine.siblings if cpu != machine.worker]
    if not others:
        return Finding("SMT siblings", State.OK, f"processor {machine.worker} has its core to itself")
    named = ", ".join(map(str, others))
    return Finding(
        "SMT siblings",
        State.WARN,
        f"processor {machine.worker} shares its core with {named}: processes there slow it down",
        "echo off | sudo tee /sys/devices/system/cpu/smt/control, or keep the sibling out of every other cpuset",
    )
