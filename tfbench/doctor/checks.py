"""Grade the readings of a machine, with a fix for each fault, and list them. Pure: reads no file and no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from tfbench.doctor.machine import GIB, Cgroup, Finding, Gpu, Limits, Machine, Memory, ObservationWindow, State
from tfbench.gpus.nvml import hardware_reasons
from tfbench.report.screen import add_columns, add_row, table
from tfbench.untrusted import plural

Check = Callable[[Machine, Limits], Finding]
Grade = tuple[State, str, str]
"""State, reading and fix."""
T = TypeVar("T")
Rule = Callable[[T, Machine, Limits], Grade]
Register = Callable[[Rule[T]], Check]
OK, WARN, BAD = State.OK, State.WARN, State.BAD
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "xen", "pit")
_NO_DEVICE: Grade = (OK, "no NVIDIA device", "")

CHECKS: list[Check] = []
"""In the order of the table, which is the order of their definitions."""


def examine(machine: Machine, limits: Limits, race: ObservationWindow | None = None) -> list[Finding]:
    """Run every check on a machine. The window of the doctor's race is longer and replaces the spin window."""
    machine = replace(machine, spin=race or machine.spin)
    return [check(machine, limits) for check in CHECKS]


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sort by state (bad, warn, unknown, ok), and by the order of the checks within a state."""
    return sorted(findings, key=lambda finding: list(State).index(finding.state))


def is_fit(findings: Sequence[Finding]) -> bool:
    """Return whether no finding is bad, which decides the exit code."""
    return all(finding.state is not BAD for finding in findings)


FIT, NOT_FIT, UNDECIDED = 0, 1, 3
"""Exit codes."""
_VERDICTS = {
    FIT: Text("fit for timing", "bold green"),
    NOT_FIT: Text("not fit for timing", "bold red"),
    UNDECIDED: Text("not known whether it is fit for timing", "bold yellow"),
}
COLOURS = {State.BAD: "bold red", State.WARN: "yellow", State.UNKNOWN: "dim", State.OK: "green"}


def table_of(findings: Sequence[Finding]) -> Table:
    """List the findings with their fixes."""
    made = table("Sources of timing noise")
    add_columns(made, "state", "check")
    made.add_column("", overflow="fold", ratio=1)
    for finding in findings:
        add_row(made, Text(str(finding.state), COLOURS[finding.state]), finding.name, finding.what)
        if finding.fix:
            add_row(made, "", "", Text(f"fix: {finding.fix}", "cyan"))
    return made


def conclusion(findings: Sequence[Finding], code: int) -> Text:
    """Return the last line: whether the machine is fit, and how many findings have each state."""
    states = Counter(finding.state for finding in findings)
    return Text.assemble(
        _VERDICTS[code], ": ", ", ".join(f"{states[state]} {state}" for state in State if states[state])
    )


def _check(name: str, missing: str, read: Callable[[Machine], T | None], *, hidden: bool = False) -> Register[T]:
    """Register a rule that grades a reading. Without a reading, the finding says what is `missing`, and why.

    Hypervisors do not show a reading that is `hidden` to virtual machines.
    """

    def register(rule: Rule[T]) -> Check:
        def check(machine: Machine, limits: Limits) -> Finding:
            if (reading := read(machine)) is not None:
                state, what, fix = rule(reading, machine, limits)
                return Finding(name, state, what, "" if state is OK else fix)
            if machine.system != "Linux":
                reason = f"tfbench reads this on Linux only, and this is {machine.system}"
            elif hidden and machine.hypervisor:
                reason = "the hypervisor hides it from this virtual machine"
            else:
                reason = "the kernel does not report it here"
            return Finding(name, State.UNKNOWN, f"{missing}: {reason}")

        CHECKS.append(check)
        return check

    return register


def _graded(value: float, warn: float, bad: float) -> State:
    """Grade a reading of which more is worse."""
    return BAD if value >= bad else WARN if value >= warn else OK


def _graded_low(value: float, warn: float, bad: float) -> State:
    """Grade a reading of which less is worse."""
    return BAD if value < bad else WARN if value < warn else OK


@_check("processors", "", lambda machine: machine.cpus)
def processors(cpus: tuple[int, ...], machine: Machine, limits: Limits) -> Grade:
    count = len(cpus)
    usable = f"{count} of {machine.online}" if machine.online and machine.online > count else str(count)
    if count > 1:
        return OK, f"{usable} usable; workers are pinned to processor {machine.worker}", ""
    what = f"{usable} usable: the controller and all other processes share the worker's processor"
    fix = "give the machine, the container or its cpuset (docker --cpuset-cpus, taskset) at least two processors"
    return BAD, what, fix


@_check("load", "other running processes", lambda machine: machine.others)
def load(others: float, machine: Machine, limits: Limits) -> Grade:
    count = len(machine.cpus)
    average = "" if machine.load_average is None else f", load average {machine.load_average:.2f}"
    state = _graded(others / max(1, count), limits.others_warn, limits.others_bad)
    what = f"{others:.1f} other processes want one of {plural(count, 'processor')}{average}"
    return state, what, "end other programs (`top` lists them), or wait; run one job at a time on a CI runner"


@_check("worker's processor", "the share that a busy process gets", lambda machine: machine.share)
def own_processor(share: float, machine: Machine, limits: Limits) -> Grade:
    what = f"a busy loop got {share:.0%} of processor {machine.worker}"
    fix = "choose another processor with --cpus, or reserve this one (isolcpus=, a separate cpuset)"
    return _graded_low(share, limits.share_warn, limits.share_bad), what, fix


@_check("steal", "time that the hypervisor takes away", lambda machine: machine.spin.steal if machine.spin else None)
def steal(stolen: float, machine: Machine, limits: Limits) -> Grade:
    seconds = machine.spin.seconds if machine.spin else 0.0
    what = f"the hypervisor took {stolen:.1%} of processor {machine.worker} away in {seconds:.1f} s of work"
    fix = "use a machine type whose processors are not shared or burstable (AWS: not t2 or t3)"
    return _graded(stolen, limits.steal_warn, limits.steal_bad), what, fix


@_check("processor quota", "the quota of the control group", lambda machine: machine.cgroup)
def quota(group: Cgroup, machine: Machine, limits: Limits) -> Grade:
    spin = machine.spin
    limit = "no quota" if group.quota is None else f"a quota of {group.quota:g} processors"
    throttled = (spin.throttled_seconds or 0.0) / spin.seconds if spin is not None and spin.seconds else 0.0
    fix = "raise the limit (docker --cpus, Kubernetes resources.limits.cpu) or remove it; a cpuset adds no noise"
    if throttled >= limits.throttled_bad:
        return BAD, f"{limit}, and it stopped this group for {throttled:.0%} of the time", fix
    if group.quota is None or group.quota >= limits.quota_warn:
        return OK, limit, ""
    state = _graded_low(group.quota, limits.quota_warn, limits.quota_bad)
    return state, f"{limit}: a group that uses it up is stopped for up to 0.1 s", fix


def _least_memory(machine: Machine) -> int | None:
    """Return the free bytes of the machine, or below the limit of the control group if that is less."""
    free = machine.memory.available if machine.memory else None
    both = free, machine.cgroup.memory_left if machine.cgroup else None
    return min((left for left in both if left is not None), default=None)


@_check("memory", "free memory", _least_memory)
def available(least: int, machine: Machine, limits: Limits) -> Grade:
    limited = machine.cgroup is not None and least == machine.cgroup.memory_left
    where = " below the limit of the control group" if limited else ""
    what = f"{max(0, least) / GIB:.1f} GiB free{where}"
    fix = "12 zygotes per side need up to 180 MB each: free memory, raise the container's limit, or use --policy quick"
    return _graded_low(least, limits.memory_warn, limits.memory_bad), what, fix


@_check("swap", "memory shortage", lambda machine: machine.memory)
def swap(memory: Memory, machine: Machine, limits: Limits) -> Grade:
    pressure = memory.pressure or 0.0
    used = f"{memory.swap_used / GIB:.1f} GiB in swap" if memory.swap_used else "swap is empty"
    waits = "" if memory.pressure is None else f"; processes waited for memory {pressure:.0f}% of the last 10 s"
    state = _graded(pressure, limits.pressure_warn, limits.pressure_bad)
    if state is OK and memory.swap_used > limits.swap_warn:
        state = WARN
    return state, used + waits, "end the programs that fill memory, then sudo swapoff -a && sudo swapon -a"


@_check("heat", "clock reductions caused by heat", lambda machine: machine.thermal_events, hidden=True)
def heat(events: int, machine: Machine, limits: Limits) -> Grade:
    spin = machine.spin
    if spin is not None and spin.thermal_events:
        what = (
            f"heat lowered the processor's clock {plural(round(spin.thermal_events), 'time')} in {spin.seconds:.0f} s"
        )
        return BAD, what, "clean or improve the cooling, or cap the clock: sudo cpupower frequency-set -u RATE"
    if events:
        what = f"heat lowered the processor's clock {plural(events, 'time')} since boot, but not just now"
        return WARN, what, "cap the clock for long runs: sudo cpupower frequency-set -u RATE"
    return OK, "heat has not lowered the processor's clock since boot", ""


@_check("governor", "the policy of the processor's clock", lambda machine: machine.governor, hidden=True)
def governor(policy: str, machine: Machine, limits: Limits) -> Grade:
    if policy == "performance":
        return OK, policy, ""
    what = f"{policy}: the clock follows the load, so a block's time depends on what ran before it"
    return WARN, what, "sudo cpupower frequency-set -g performance"


@_check("turbo", "whether the clock may exceed its nominal rate", lambda machine: machine.turbo, hidden=True)
def turbo(on: bool, machine: Machine, limits: Limits) -> Grade:
    if not on:
        return OK, "off: the clock stays at or below its nominal rate", ""
    return WARN, "on: the clock depends on heat and on the load of the other cores", machine.turbo_switch


@_check("SMT siblings", "processors on the same core", lambda machine: machine.siblings, hidden=True)
def siblings(cpus: tuple[int, ...], machine: Machine, limits: Limits) -> Grade:
    others = ", ".join(str(cpu) for cpu in cpus if cpu != machine.worker)
    if not others:
        return OK, f"processor {machine.worker} has its core to itself", ""
    what = f"processor {machine.worker} shares its core with {others}: processes there slow it down"
    fix = "echo off | sudo tee /sys/devices/system/cpu/smt/control, or keep the sibling out of every other cpuset"
    return WARN, what, fix


@_check("virtualisation", "whether this is a virtual machine", lambda machine: machine.hypervisor)
def virtualisation(hypervisor: str, machine: Machine, limits: Limits) -> Grade:
    if not hypervisor:
        return OK, "bare metal", ""
    what = f"a virtual machine ({hypervisor}): neighbours that it cannot see share its caches and memory"
    return WARN, what, "gate by live races, not by saved times; bare metal or a dedicated host is quieter"


@_check("transparent huge pages", "the setting of huge pages", lambda machine: machine.hugepages)
def huge_pages(setting: str, machine: Machine, limits: Limits) -> Grade:
    if setting != "always":
        return OK, setting, ""
    what = "always: whether a process gets huge pages depends on the current fragmentation of memory"
    return WARN, what, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"


@_check("address layout", "whether addresses are random", lambda machine: machine.aslr)
def address_layout(randomness: int, machine: Machine, limits: Limits) -> Grade:
    if randomness:
        return OK, "random: each process has its own layout, and launches average the differences", ""
    what = "the same in every process, so a lucky layout looks like an effect"
    return WARN, what, "sudo sysctl kernel.randomize_va_space=2 (and no setarch -R)"


@_check("clock", "the timer", lambda machine: machine.clock_step)
def clock(step: float, machine: Machine, limits: Limits) -> Grade:
    state = _graded(step, limits.clock_warn, limits.clock_bad)
    if state is OK and machine.clock_source in _SLOW_CLOCKS:
        state = WARN
    what = f"{machine.clock_source or 'the system timer'}, in steps of {step * 1e9:.0f} ns"
    fix = "boot with clocksource=tsc tsc=reliable if the processor's TSC is steady (see `dmesg | grep -i tsc`)"
    return state, what, fix


@_check("TensorFlow", "", lambda machine: machine)
def tensorflow(_: Machine, machine: Machine, limits: Limits) -> Grade:
    found = machine.tensorflow
    if found is None:
        return WARN, "not installed in the environment of tfbench", "pip install tensorflow, in this environment"
    share = found.compiled / found.seen if found.seen else 1.0
    if share >= limits.compiled_warn:
        return OK, "installed, and compiled to bytecode", ""
    missing = f"{found.seen - found.compiled} of {found.seen} sampled modules have no compiled bytecode"
    never = "" if machine.writes_bytecode else ", and PYTHONDONTWRITEBYTECODE prevents it"
    fix = f"python -m compileall -q -j 0 {found.path}; with uv: uv pip install --compile-bytecode"
    return WARN, f"{missing}, so every zygote starts seconds slower{never}", fix


@_check("bytecode", "", lambda machine: machine.writes_bytecode)
def bytecode(written: bool, machine: Machine, limits: Limits) -> Grade:
    if written:
        return OK, "Python writes bytecode files", ""
    what = "PYTHONDONTWRITEBYTECODE is set, so every zygote compiles the same modules again"
    return WARN, what, "unset PYTHONDONTWRITEBYTECODE"


@_check("GPU", "", lambda machine: machine)
def devices(_: Machine, machine: Machine, limits: Limits) -> Grade:
    if machine.gpus is None:
        fix = "install nvidia-smi, or start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        silent: Grade = State.UNKNOWN, "an NVIDIA driver is present, but nvidia-smi does not answer", fix
        return silent if machine.gpu_driver else _NO_DEVICE
    gpus = machine.gpus.devices
    if held := [f"{gpu.index}: {', '.join(why)}" for gpu in gpus if (why := hardware_reasons(gpu.throttled or 0))]:
        fix = "improve its cooling and check its power supply, or lock a lower clock: sudo nvidia-smi -lgc RATE"
        return BAD, f"the clock is held down on {'; '.join(held)}", fix
    what = "; ".join(map(_describe, gpus)) or "nvidia-smi lists no device"
    if unloaded := ", ".join(str(gpu.index) for gpu in gpus if gpu.persistence is False):
        what = f"{what}; without persistence mode on {unloaded}, every start reloads the driver"
        return WARN, what, "sudo nvidia-smi -pm 1; for steady clocks: sudo nvidia-smi -lgc RATE"
    return OK, what, ""


def _describe(gpu: Gpu) -> str:
    clock = f" at {gpu.clock:.0f} of {gpu.clock_limit:.0f} MHz" if gpu.clock and gpu.clock_limit else ""
    return f"{gpu.name}{clock}{', MIG' if gpu.mig else ''}"


@_check("GPU processes", "", lambda machine: machine)
def processes(_: Machine, machine: Machine, limits: Limits) -> Grade:
    if machine.gpus is None:
        return (State.UNKNOWN, "nvidia-smi does not answer", "") if machine.gpu_driver else _NO_DEVICE
    busy = max((gpu.utilization or 0.0 for gpu in machine.gpus.devices), default=0.0)
    listed = ", ".join(machine.gpus.processes)
    state = _graded(busy, limits.gpu_busy_warn, limits.gpu_busy_bad)
    if state is OK and not listed:
        return OK, "no other process uses a device", ""
    what = f"{listed or 'a process outside this container'}; the busiest device is in use {busy:.0f}% of the time"
    fix = "end the process, choose an idle device with CUDA_VISIBLE_DEVICES, or run one job per runner"
    return BAD if state is BAD else WARN, what, fix
