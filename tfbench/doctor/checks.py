"""Grade the readings of a machine, with a fix for each fault; and try its GPUs: libraries, visibility, CUPTI and races."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from tfbench.doctor.machine import GIB, MPS, Finding, Gpu, Limits, Machine, Memory, ObservationWindow, State
from tfbench.errors import BenchmarkError, LaunchDisturbed, TfbenchError
from tfbench.facts import Cgroup
from tfbench.fs import scratch_dir
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.nvml import Identity, hardware_reasons
from tfbench.model import TIME, Case, Outcome, Plan, Run
from tfbench.policy import Policy
from tfbench.profiles import xplane
from tfbench.profiles.xplane import NO_KERNELS
from tfbench.protocol import Prepared
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant, make_plan
from tfbench.race.prober import Profiler
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import run_launch
from tfbench.race.workers import Suite
from tfbench.report.screen import add_columns, add_row, table
from tfbench.sides.spec import Side
from tfbench.untrusted import plural

# Grade readings. Pure: reads no file and no clock


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
            if hidden and machine.hypervisor:
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
    version = machine.tensorflow
    if version is None:
        return WARN, "not installed in the environment of tfbench", "pip install tensorflow, in this environment"
    share = version.compiled / version.seen if version.seen else 1.0
    if share >= limits.compiled_warn:
        return OK, "installed, and compiled to bytecode", ""
    missing = f"{version.seen - version.compiled} of {version.seen} sampled modules have no compiled bytecode"
    never = "" if machine.writes_bytecode else ", and PYTHONDONTWRITEBYTECODE prevents it"
    fix = f"python -m compileall -q -j 0 {version.path}; with uv: uv pip install --compile-bytecode"
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


@_check("GPU sharing", "", lambda machine: machine)
def sharing(_: Machine, machine: Machine, limits: Limits) -> Grade:
    if (gpus := machine.gpus) is None:
        return (State.UNKNOWN, "nvidia-smi does not answer", "") if machine.gpu_driver else _NO_DEVICE
    allowed = ("", "Default", "[N/A]", *(("Exclusive_Process",) if gpus.mps else ()))
    if refused := [gpu for gpu in gpus.devices if gpu.compute_mode not in allowed]:
        modes = ", ".join(f"{gpu.index} ({gpu.compute_mode})" for gpu in refused)
        fix = f"sudo nvidia-smi -i {refused[0].index} -c DEFAULT"
        return BAD, f"a race has two processes on a GPU, which the compute mode forbids on {modes}", fix
    if gpus.mps:
        return OK, f"by MPS, whose pipes are in {gpus.mps}: both sides of a race are clients of one process", ""
    start = f"; MPS would spare that: {MPS} -d starts it, echo quit | {MPS} ends it" if gpus.has_mps else ""
    return OK, f"without MPS: the GPU switches between the processes of a race at each turn{start}", ""


# Try GPUs. Each step needs the steps before it, so the first failure ends the check


GPU_FILE = Path(__file__).resolve().parents[1] / "worker" / "workloads" / "test_product.py"
GPU_CASE = Case(f"{GPU_FILE.name}::test_product", "test_product", f"{GPU_FILE.name}::test_product")
_LIGHT_CASE = Case(f"{GPU_FILE.name}::test_sum", "test_sum", f"{GPU_FILE.name}::test_sum")
_BLOCKS = (1e-3, 3e-3, 1e-2)
"""Seconds of a block in which power and heat may fall before the turn of the other side."""
_LOCK = "lock a clock that the GPU holds: sudo nvidia-smi -lgc RATE"
GPU_SLOWDOWN = 0.1
"""The injected slowdown of the last step."""
Tell = Callable[[str], None]


class GpuCheck:
    """Try the GPUs of this machine step by step. The caller must `close` it.

    ``kind`` is the device that TensorFlow must see: ``GPU``, or ``CPU`` to test the check without a GPU.
    """

    def __init__(self, gpu_session: GpuSession, where: Processors, policy: Policy, kind: str = "GPU") -> None:
        self._gpu_session = gpu_session
        self._policy = policy
        self._kind = kind
        suite = Suite((GPU_FILE.name,), "", "importlib", made="", cpus=where.every)
        self._launcher = ProcessLauncher(suite, policy, where, gpu_session.gpu_monitor)

    def close(self) -> None:
        """End every process and unlock the GPUs."""
        self._launcher.close()
        self._gpu_session.close()

    def findings(self, tell: Tell) -> Iterator[Finding]:
        """Yield the finding of each step, up to the first that is bad."""
        for step in (self._devices, self._seen, self._profiled, self._same, self._slower, self._power):
            try:
                finding = step(tell)
            except TfbenchError as error:
                finding = Finding(step.__name__.strip("_"), State.BAD, error.headline, error.rest.strip()[-400:])
            yield finding
            if finding.state is State.BAD:
                return

    def _side(self, name: str, slowdown: float = 0.0) -> Side:
        return Side(name, sys.executable, GPU_FILE.parent, env=self._gpu_session.environment, slowdown=slowdown)

    def _devices(self, tell: Tell) -> Finding:
        tell("reading the devices")
        gpus = self._gpu_session.gpus
        if not gpus:
            return Finding("devices", State.UNKNOWN, "no GPU is monitored here")
        described = "; ".join(map(_identified, gpus))
        if sleepy := [gpu.place for gpu in gpus if gpu.persistence is False]:
            fix = "sudo nvidia-smi -pm 1; without it, every start reloads the driver and resets the clocks"
            return Finding("devices", State.WARN, f"{described}; no persistence mode on {', '.join(sleepy)}", fix)
        return Finding("devices", State.OK, described)

    def _seen(self, tell: Tell) -> Finding:
        tell("starting the processes that import TensorFlow")
        side = self._side("contender")
        # Those of the races too, since they import at the same time.
        self._launcher.ready([(raced, ()) for raced in (self._side("baseline"), side)], range(self._policy.looks[0]))
        devices = self._launcher.devices(side).get(self._kind, [])
        packages = self._launcher.environment(side).get("packages", {})
        version = next((f"{name} {packages[name]}" for name in packages if name.startswith("tensorflow")), "TensorFlow")
        if not devices:
            fix = "pip install 'tensorflow[and-cuda]'; its CUDA must not be newer than the driver's"
            return Finding("TensorFlow", State.BAD, f"{version} sees no {self._kind}", fix)
        return Finding("TensorFlow", State.OK, f"{version} sees {', '.join(devices)}")

    def _profiled(self, tell: Tell) -> Finding:
        tell("profiling a matrix product")
        with tempfile.TemporaryDirectory(prefix="check-", dir=scratch_dir()) as folder:
            profiler, entrant = Profiler(self._launcher, self._policy), Entrant(GPU_CASE, self._side("contender"))
            place, _ = profiler.profile(entrant, Path(folder), 0)
            spaces = [xplane.load(file) for file in place.iterdir()]
        prefix = xplane.DEVICE if self._kind == "GPU" else "/host:CPU"
        events = sum(len(line.events) for space in spaces for plane in space.of(prefix) for line in plane.lines)
        errors = "; ".join(error for space in spaces for error in space.errors)
        if not events:
            what = f"the profile has no GPU kernel{f' ({errors})' if errors else ''}"
            return Finding("CUPTI", State.BAD, what, NO_KERNELS)
        return Finding("CUPTI", State.OK, f"the profile has {events} device events")

    def _same(self, tell: Tell) -> Finding:
        return self._raced(tell, "A/A", 0.0, Outcome.UNCHANGED)

    def _slower(self, tell: Tell) -> Finding:
        return self._raced(tell, f"{GPU_SLOWDOWN:.0%} slower", GPU_SLOWDOWN, Outcome.REGRESSED)

    def _raced(self, tell: Tell, name: str, slowdown: float, wanted: Outcome) -> Finding:
        tell(f"racing a matrix product against itself{f' plus {slowdown:.0%}' if slowdown else ''}")
        entrants = [Entrant(GPU_CASE, self._side("baseline")), Entrant(GPU_CASE, self._side("contender", slowdown))]
        race = ConfirmedRace(
            entrants, self._launcher, self._policy, 1, time.perf_counter, random.Random(), metrics=(TIME,)
        )
        race.run()
        if race.failures:
            raise BenchmarkError(str(next(iter(race.failures.values()))))
        if race.abort_reason:
            return Finding(name, State.BAD, f"too many launches were disturbed: {race.abort_reason}")
        if race.decision is None or race.decision.outcome is None:
            return Finding(name, State.BAD, "the race ended without a decision")
        outcome, message = race.decision.outcome, race.decision.reason.message
        what = f"{outcome}: {message}, in {plural(race.launches, 'launch')}, {race.wall_seconds:.1f} s"
        if outcome is wanted:
            return Finding(name, State.OK, what)
        state = State.WARN if outcome is Outcome.INCONCLUSIVE else State.BAD
        return Finding(name, state, what, f"tfbench doctor; {_LOCK}")

    def _power(self, tell: Tell) -> Finding:
        """Test whether a heavy step lowers the clock of a light one whose turns follow its own, in blocks of three lengths."""
        lowest, parts = 1.0, []
        for seconds in _BLOCKS:
            tell(f"racing a light step against itself and a matrix product, in blocks of {1e3 * seconds:g} ms")
            try:
                runs = [self._light(other, seconds) for other in (_LIGHT_CASE, GPU_CASE)]
            except LaunchDisturbed as error:
                return Finding("power", State.WARN, f"in blocks of {1e3 * seconds:g} ms: {error}", _LOCK)
            if not all(run.clocks for run in runs):
                return Finding("power", State.UNKNOWN, "; ".join(self._launcher.notes) or "no clock was read")
            itself, beside = (median(run.clocks) for run in runs)
            lowest = min(lowest, beside / itself)
            parts.append(f"{itself:.0f} and {beside:.0f} MHz in blocks of {1e3 * seconds:g} ms")
        what = f"clock of a light step beside itself and beside a matrix product: {'; '.join(parts)}"
        if 1 - lowest <= self._policy.gpu_carried:
            return Finding("power", State.OK, what)
        what = f"one side's power lowers the clock of the other side. {what[0].upper()}{what[1:]}"
        return Finding("power", State.WARN, what, f"for such sides, {_LOCK}")

    def _light(self, other: Case, seconds: float) -> Run:
        """Return the measurements of the light step in a launch beside another step, in blocks of this length."""
        entrants = [Entrant(other, self._side("baseline")), Entrant(_LIGHT_CASE, self._side("contender"))]
        policy = replace(self._policy, device_block_seconds=seconds)

        def plan(prepared: Mapping[int, Prepared], spent: float) -> Plan:
            iteration = {entrant: ready.iteration for entrant, ready in prepared.items()}
            return make_plan(entrants, iteration, policy, any(ready.on_device for ready in prepared.values()))

        launch, failures = run_launch(
            entrants, (0, 1), self._launcher.open(entrants, 0), self._launcher.stopwatch, plan, time.perf_counter,
            random.Random(), 2,
        )  # fmt: skip
        if launch is None or (run := launch.runs[1]) is None:
            raise BenchmarkError(str(next(iter(failures.values()))))
        return run


def _identified(gpu: Identity) -> str:
    parts = [f"{gpu.place}: {gpu.name}", f"driver {gpu.driver}", f"CUDA {gpu.cuda}", gpu.pcie or ""]
    parts += [f"limit {gpu.power_limit:g} W" if gpu.power_limit else "", "MIG" if gpu.mig else ""]
    return ", ".join(filter(None, parts))
