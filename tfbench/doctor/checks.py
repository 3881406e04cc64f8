"""From what was read to findings. Pure: no file, no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tfbench.doctor.model import Bytecode, Finding, Gpu, Machine, ObservationWindow, State
from tfbench.gpus.readings import HARDWARE_REASONS

_GIB = 1 << 30
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "xen", "pit")


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something is worth a word. Shares are of one, times are seconds."""

    others_bad: float = 1.0
    """Processes that wait, for each processor, beside ours: with as many as there are processors the
    worker's own is wanted by somebody else."""
    others_warn: float = 0.25
    """A quarter of the processors busy: bursts then reach the caches that all of them share."""
    share_warn: float = 0.97
    """A busy loop loses up to 3% of its processor to the kernel's own work; below, somebody else ran there."""
    share_bad: float = 0.70
    """Every third block would be cut in two."""
    steal_warn: float = 0.01
    """Above the kernel's rounding, a hundredth of a second in a second."""
    steal_bad: float = 0.10
    """One block in ten would be interrupted: medians of blocks begin to move."""
    quota_warn: float = 2.0
    """Processors: a worker takes one, and the controller shall never use up what is the worker's."""
    quota_bad: float = 1.0
    """With less than one processor, every worker is stopped in the middle of its blocks."""
    throttled_bad: float = 0.01
    """Share of the time: stops last up to 0.1 s, hundreds of blocks."""
    memory_warn: int = 9 * _GIB // 2
    """Bytes: policy standard keeps up to 12 zygotes per side of 180 MB each."""
    memory_bad: int = _GIB
    """Bytes: TensorFlow and the first processes do not fit, and something would be killed."""
    swap_warn: int = 64 << 20
    """Bytes: a little swap is what was never used again; more was pushed out."""
    pressure_warn: float = 1.0
    """Percent of the last 10 s in which somebody waited for memory."""
    pressure_bad: float = 10.0
    clock_warn: float = 5e-7
    """A block of 0.3 ms is timed with two readings: half a microsecond each is a third of a percent."""
    clock_bad: float = 3e-6
    """Two percent of a block: what is to be decided."""
    compiled_warn: float = 0.95
    """Share of modules: below, the import of TensorFlow takes seconds longer in every zygote."""
    gpu_busy_warn: float = 5.0
    """Percent: an idle device reads 0, a desktop 1 to 4."""
    gpu_busy_bad: float = 20.0
    slowdown_bad: float = 0.05
    """The smallest slowdown that a gate is worth having for: a machine on which the middle workload
    does not show it is not fit."""
    found: float = 0.95
    """A slowdown counts as found here if a race calls it regressed so often."""


Check = Callable[[Machine, Limits], Finding]


def examine(machine: Machine, limits: Limits, race: ObservationWindow | None = None) -> list[Finding]:
    """Every finding about a machine.

    Args:
        race: What was seen during the race; longer and under load, it replaces the second of watching.
    """
    if race is not None and machine.observation is not None:
        machine = replace(machine, observation=replace(machine.observation, spin=race))
    return [check(machine, limits) for check in CHECKS]


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Bad, warn, unknown, ok; each in the order of the checks."""
    order = list(State)
    return sorted(findings, key=lambda finding: order.index(finding.state))


def is_fit(findings: list[Finding]) -> bool:
    """Whether nothing is bad: what the exit code says."""
    return all(finding.state is not State.BAD for finding in findings)


def _unknown(name: str, machine: Machine, what: str, *, hidden: bool = False) -> Finding:
    """``hidden``: it is something that hypervisors keep to themselves."""
    if machine.system != "Linux":
        return Finding(name, State.UNKNOWN, f"{what}: read on Linux only, and this is {machine.system}")
    if hidden and machine.hypervisor:
        return Finding(name, State.UNKNOWN, f"{what}: a virtual machine is not shown it; only its host knows")
    return Finding(name, State.UNKNOWN, f"{what}: the kernel does not show it here")


def _graded(value: float, warn: float, bad: float) -> State:
    """The state of a value of which more is worse."""
    return State.BAD if value >= bad else State.WARN if value >= warn else State.OK


# Who else is there


def processors(machine: Machine, limits: Limits) -> Finding:
    count = len(machine.cpus)
    where = f"{count} of {machine.online}" if machine.online and machine.online > count else str(count)
    if count > 1:
        return Finding("processors", State.OK, f"{where} may be used; workers are pinned to number {machine.worker}")
    return Finding(
        "processors",
        State.BAD,
        f"{where} may be used: the controller and everything else share the worker's",
        "give the machine, the container or its cpuset (docker --cpuset-cpus, taskset) at least two processors",
    )


def load(machine: Machine, limits: Limits) -> Finding:
    observation = machine.observation
    if observation is None or observation.others is None:
        return _unknown("load", machine, "who else runs")
    average = "" if machine.load_average is None else f", load average {machine.load_average:.2f}"
    what = f"{observation.others:.1f} other processes want one of {len(machine.cpus)} processors{average}"
    each = observation.others / max(1, len(machine.cpus))
    return Finding(
        "load",
        state := _graded(each, limits.others_warn, limits.others_bad),
        what,
        ""
        if state is State.OK
        else "end what else runs (`top` names it), or wait; a CI runner takes one job at a time",
    )


def own_processor(machine: Machine, limits: Limits) -> Finding:
    observation = machine.observation
    if observation is None:
        return _unknown("worker's processor", machine, "what a busy process gets")
    what = f"a busy loop got {observation.share:.0%} of processor {machine.worker}"
    state = State.OK
    if observation.share < limits.share_warn:
        state = State.BAD if observation.share < limits.share_bad else State.WARN
    return Finding(
        "worker's processor",
        state,
        what,
        "" if state is State.OK else "choose another with --cpus, or keep it free (isolcpus=, a cpuset of its own)",
    )


def steal(machine: Machine, limits: Limits) -> Finding:
    seen = machine.observation.spin if machine.observation else None
    if seen is None or seen.steal is None:
        return _unknown("steal", machine, "time that the hypervisor takes away")
    state = _graded(seen.steal, limits.steal_warn, limits.steal_bad)
    return Finding(
        "steal",
        state,
        f"the hypervisor took {seen.steal:.1%} of processor {machine.worker} away in {seen.seconds:.1f} s of work",
        ""
        if state is State.OK
        else "take a kind of machine whose processors are not shared or burstable (AWS: not t2, t3)",
    )


def virtualisation(machine: Machine, limits: Limits) -> Finding:
    if machine.hypervisor is None:
        return _unknown("virtualisation", machine, "whether this is a virtual machine")
    if not machine.hypervisor:
        return Finding("virtualisation", State.OK, "bare metal")
    return Finding(
        "virtualisation",
        State.WARN,
        f"a virtual machine ({machine.hypervisor}): neighbours share its caches and memory, unseen",
        "let races decide, not saved times; bare metal or a dedicated host is quieter",
    )


# The processor's speed


def governor(machine: Machine, limits: Limits) -> Finding:
    if machine.governor is None:
        return _unknown("governor", machine, "who sets the processor's clock", hidden=True)
    if machine.governor == "performance":
        return Finding("governor", State.OK, "performance")
    return Finding(
        "governor",
        State.WARN,
        f"{machine.governor}: the clock follows the load, so a block's time depends on what ran before it",
        "sudo cpupower frequency-set -g performance",
    )


def turbo(machine: Machine, limits: Limits) -> Finding:
    if machine.turbo is None:
        return _unknown("turbo", machine, "whether the clock may rise above its nominal rate", hidden=True)
    if not machine.turbo:
        return Finding("turbo", State.OK, "off: the clock stays at or below its nominal rate")
    return Finding(
        "turbo",
        State.WARN,
        "on: the clock depends on heat and on what the other cores do",
        machine.turbo_switch,
    )


def siblings(machine: Machine, limits: Limits) -> Finding:
    if machine.siblings is None:
        return _unknown("SMT siblings", machine, "which processors share a core", hidden=True)
    others = [cpu for cpu in machine.siblings if cpu != machine.worker]
    if not others:
        return Finding("SMT siblings", State.OK, f"processor {machine.worker} has its core to itself")
    return Finding(
        "SMT siblings",
        State.WARN,
        f"processor {machine.worker} shares its core with {', '.join(map(str, others))}: what runs there slows it down",
        "echo off | sudo tee /sys/devices/system/cpu/smt/control, or keep the sibling out of every other cpuset",
    )


def heat(machine: Machine, limits: Limits) -> Finding:
    counters, seen = machine.counters, machine.observation.spin if machine.observation else None
    if counters is None or counters.thermal_events is None:
        return _unknown("heat", machine, "how often the processor was slowed down for its heat", hidden=True)
    if seen is not None and seen.thermal_events:
        return Finding(
            "heat",
            State.BAD,
            f"the processor was slowed down for its heat {seen.thermal_events} times in {seen.seconds:.0f} s",
            "clean or improve the cooling, or cap the clock: sudo cpupower frequency-set -u RATE",
        )
    if counters.thermal_events:
        return Finding(
            "heat",
            State.WARN,
            f"slowed down for its heat {counters.thermal_events} times since the system started, not just now",
            "cap the clock for long runs: sudo cpupower frequency-set -u RATE",
        )
    return Finding("heat", State.OK, "never slowed down for its heat since the system started")


# What a container takes away


def quota(machine: Machine, limits: Limits) -> Finding:
    seen, group = machine.observation.spin if machine.observation else None, machine.cgroup
    if group is None:
        return _unknown("processor quota", machine, "what the control group allows")
    fix = "raise the limit (docker --cpus, Kubernetes resources.limits.cpu) or set none; a cpuset spoils nothing"
    limit = "no quota" if group.quota is None else f"a quota of {group.quota:g} processors"
    throttled = (seen.throttled_seconds or 0.0) / seen.seconds if seen is not None and seen.seconds else 0.0
    if throttled >= limits.throttled_bad:
        what = f"{limit}, and it stopped this group for {throttled:.0%} of the time"
        return Finding("processor quota", State.BAD, what, fix)
    if group.quota is None or group.quota >= limits.quota_warn:
        return Finding("processor quota", State.OK, limit)
    state = State.BAD if group.quota < limits.quota_bad else State.WARN
    return Finding("processor quota", state, f"{limit}: whoever uses it up is stopped for up to 0.1 s", fix)


def memory(machine: Machine, limits: Limits) -> Finding:
    found, group = machine.memory, machine.cgroup
    left = [found.available] if found else []
    if group is not None and group.memory_left is not None:
        left.append(group.memory_left)
    if not left:
        return _unknown("memory", machine, "how much memory is free")
    least = min(left)
    state = State.BAD if least < limits.memory_bad else State.WARN if least < limits.memory_warn else State.OK
    limited = group is not None and group.memory_left == least
    what = f"{max(0, least) / _GIB:.1f} GiB free{' below the limit of the control group' if limited else ''}"
    fix = "12 zygotes per side want 180 MB each: free some, raise the container's limit, or use --policy quick"
    return Finding("memory", state, what, "" if state is State.OK else fix)


def swap(machine: Machine, limits: Limits) -> Finding:
    found = machine.memory
    if found is None:
        return _unknown("swap", machine, "whether memory is short")
    pressure = found.pressure or 0.0
    used = f"{found.swap_used / _GIB:.1f} GiB swapped out" if found.swap_used else "nothing swapped out"
    waits = "" if found.pressure is None else f"; processes waited for memory {pressure:.0f}% of the last 10 s"
    state = _graded(pressure, limits.pressure_warn, limits.pressure_bad)
    if state is State.OK and found.swap_used > limits.swap_warn:
        state = State.WARN
    fix = "end what fills the memory, then sudo swapoff -a && sudo swapon -a"
    return Finding("swap", state, used + waits, "" if state is State.OK else fix)


# The system's settings


def hugepages(machine: Machine, limits: Limits) -> Finding:
    name = "transparent huge pages"
    if machine.hugepages is None:
        return _unknown(name, machine, "whether large pages are handed out")
    if machine.hugepages != "always":
        return Finding(name, State.OK, machine.hugepages)
    return Finding(
        name,
        State.WARN,
        "always: whether a process gets them depends on how fragmented memory is just then",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )


def layout(machine: Machine, limits: Limits) -> Finding:
    name = "address layout"
    if machine.aslr is None:
        return _unknown(name, machine, "whether addresses are random")
    if machine.aslr:
        return Finding(name, State.OK, "random: every process has its own, and launches average it out")
    return Finding(
        name,
        State.WARN,
        "the same in every process, so the luck of one layout looks like an effect",
        "sudo sysctl kernel.randomize_va_space=2 (and no setarch -R)",
    )


def clock(machine: Machine, limits: Limits) -> Finding:
    if machine.clock is None:
        return _unknown("clock", machine, "what the timer is")
    source, step = machine.clock.source, machine.clock.step
    state = _graded(step, limits.clock_warn, limits.clock_bad)
    if state is State.OK and source in _SLOW_CLOCKS:
        state = State.WARN
    what = f"{source or 'the system timer'}, in steps of {step * 1e9:.0f} ns"
    fix = "boot with clocksource=tsc tsc=reliable if the processor's is steady (`dmesg | grep -i tsc` says)"
    return Finding("clock", state, what, "" if state is State.OK else fix)


# Python and TensorFlow


def tensorflow(machine: Machine, limits: Limits) -> Finding:
    found = machine.tensorflow
    if found is None:
        return Finding(
            "TensorFlow", State.WARN, "not installed beside tfbench", "pip install tensorflow, in this environment"
        )
    share = found.compiled / found.seen if found.seen else 1.0
    if share >= limits.compiled_warn:
        return Finding("TensorFlow", State.OK, "installed, and compiled to bytecode")
    missing = f"{found.seen - found.compiled} of {found.seen} modules looked at have no compiled bytecode"
    never = "" if machine.writes_bytecode else ", and PYTHONDONTWRITEBYTECODE keeps it so"
    return Finding(
        "TensorFlow", State.WARN, f"{missing}: every zygote takes seconds longer to start{never}", _compile(found)
    )


def _compile(found: Bytecode) -> str:
    return f"python -m compileall -q -j 0 {found.path}; with uv: uv pip install --compile-bytecode"


def bytecode(machine: Machine, limits: Limits) -> Finding:
    if machine.writes_bytecode:
        return Finding("bytecode", State.OK, "Python keeps what it compiles")
    return Finding(
        "bytecode",
        State.WARN,
        "PYTHONDONTWRITEBYTECODE is set: what is not compiled yet is compiled again in every zygote",
        "unset PYTHONDONTWRITEBYTECODE",
    )


# GPUs


def gpus(machine: Machine, limits: Limits) -> Finding:
    if machine.gpus is None:
        if machine.gpu_driver:
            text = "a driver of NVIDIA is there, and nvidia-smi does not answer"
            fix = "install nvidia-smi, or start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            return Finding("GPU", State.UNKNOWN, text, fix)
        return Finding("GPU", State.OK, "no NVIDIA device here")
    devices = machine.gpus.devices
    held = [f"{gpu.index}: {words}" for gpu in devices if (words := _held(gpu))]
    if held:
        return Finding(
            "GPU",
            State.BAD,
            f"the clock is held down on {'; '.join(held)}",
            "cool it and check its power supply, or lock a lower clock: sudo nvidia-smi -lgc RATE",
        )
    what = "; ".join(map(_device, devices)) or "nvidia-smi lists no device"
    if sleepy := [str(gpu.index) for gpu in devices if gpu.persistence is False]:
        return Finding(
            "GPU",
            State.WARN,
            f"{what}; without persistence on {', '.join(sleepy)} the driver is loaded anew and clocks are reset",
            "sudo nvidia-smi -pm 1; for steady clocks: sudo nvidia-smi -lgc RATE",
        )
    return Finding("GPU", State.OK, what)


def gpu_processes(machine: Machine, limits: Limits) -> Finding:
    name = "GPU processes"
    if machine.gpus is None:
        if machine.gpu_driver:
            return Finding(name, State.UNKNOWN, "nvidia-smi does not answer")
        return Finding(name, State.OK, "no NVIDIA device here")
    busy = max((gpu.utilization or 0.0 for gpu in machine.gpus.devices), default=0.0)
    listed = machine.gpus.processes
    if not listed and busy < limits.gpu_busy_warn:
        return Finding(name, State.OK, "nobody else computes there")
    who = ", ".join(listed) or "somebody outside this container"
    return Finding(
        name,
        State.BAD if busy >= limits.gpu_busy_bad else State.WARN,
        f"{who}; the busiest device is in use {busy:.0f}% of the time",
        "end it, choose an idle device with CUDA_VISIBLE_DEVICES, or have one job a runner",
    )


def _held(gpu: Gpu) -> str:
    return ", ".join(words for bit, words in HARDWARE_REASONS.items() if (gpu.throttled or 0) & bit)


def _device(gpu: Gpu) -> str:
    clock = f" at {gpu.clock:.0f} of {gpu.clock_limit:.0f} MHz" if gpu.clock and gpu.clock_limit else ""
    return f"{gpu.name}{clock}{', MIG' if gpu.mig else ''}"


CHECKS: tuple[Check, ...] = (
    processors, load, own_processor, steal, quota, memory, swap, heat, governor, turbo, siblings, virtualisation,
    hugepages, layout, clock, tensorflow, bytecode, gpus, gpu_processes,
)  # fmt: skip
