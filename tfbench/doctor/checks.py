"""Read what the machine is, and grade it, with a fix for each fault; and try its GPUs: visibility, CUPTI and races."""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table
from rich.text import Text

from tfbench.errors import BenchmarkError, GpuError, TfbenchError
from tfbench.facts import read_proc
from tfbench.fs import scratch_dir
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.nvml import GpuReading, Identity, Nvml, hardware_reasons
from tfbench.gpus.selection import has_driver
from tfbench.model import TIME, Case, Outcome, Word
from tfbench.policy import Policy
from tfbench.profiles import xplane
from tfbench.profiles.xplane import NO_KERNELS
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.prober import Profiler
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import Suite
from tfbench.report.screen import add_row, folded, table
from tfbench.sides.spec import Side
from tfbench.untrusted import plural

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
    # First, before this process is a load itself.
    others, share, spin = observe(root, worker, seconds) if seconds else (None, None, None)
    return Machine(
        cpus=tuple(cpus), worker=worker, online=os.cpu_count(), others=others, share=share, spin=spin,
        governor=read_proc(cpu / "cpufreq/scaling_governor") or None,
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


# Grade readings. Pure: reads no file and no clock


Check = Callable[[Machine], Finding]
Grade = tuple[State, str, str]
"""State, reading and fix."""
T = TypeVar("T")
Rule = Callable[[T, Machine], Grade]
Register = Callable[[Rule[T]], Check]
OK, WARN, BAD = State.OK, State.WARN, State.BAD

CHECKS: list[Check] = []
"""In the order of the table, which is the order of their definitions."""


def examine(machine: Machine, race: Counters | None = None) -> list[Finding]:
    """Run every check on a machine. The window of the doctor's race is longer and replaces the spin window."""
    machine = replace(machine, spin=race or machine.spin)
    return [check(machine) for check in CHECKS]


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sort by state (bad, warn, unknown, ok), and by the order of the checks within a state."""
    return sorted(findings, key=lambda finding: list(State).index(finding.state))


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
    made = table("Sources of timing noise", "state", "check", *folded("", ratio=1))
    for finding in findings:
        add_row(made, Text(str(finding.state), COLOURS[finding.state]), finding.name, finding.what)
        if finding.fix:
            add_row(made, "", "", Text(f"fix: {finding.fix}", "cyan"))
    return made


def conclusion(findings: Sequence[Finding], code: int) -> Text:
    """Return the last line: whether the machine is fit, and how many findings have each state."""
    states = Counter(finding.state for finding in findings)
    counts = ", ".join(f"{states[state]} {state}" for state in State if states[state])
    return Text.assemble(_VERDICTS[code], f": {counts}")


def _check(name: str, missing: str, read: Callable[[Machine], T | None]) -> Register[T]:
    """Register a rule that grades a reading. Without a reading, the finding says what is `missing`."""

    def register(rule: Rule[T]) -> Check:
        def check(machine: Machine) -> Finding:
            if (reading := read(machine)) is not None:
                state, what, fix = rule(reading, machine)
                return Finding(name, state, what, "" if state is OK else fix)
            return Finding(name, State.UNKNOWN, f"{missing}: the kernel, or the hypervisor, does not report it here")

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
def processors(cpus: tuple[int, ...], machine: Machine) -> Grade:
    count = len(cpus)
    usable = f"{count} of {machine.online}" if machine.online and machine.online > count else str(count)
    if count > 1:
        return OK, f"{usable} usable; workers are pinned to processor {machine.worker}", ""
    what = f"{usable} usable: the controller and all other processes share the worker's processor"
    fix = "give the machine, the container or its cpuset (docker --cpuset-cpus, taskset) at least two processors"
    return BAD, what, fix


@_check("load", "processors that other processes use", lambda machine: machine.others)
def load(others: float, machine: Machine) -> Grade:
    # With a quarter of the processors busy, bursts reach the caches that all processors share. With nearly all of them
    # busy, another process wants the worker's processor too.
    state = _graded(others / max(1, machine.online or len(machine.cpus)), 0.25, 0.9)
    what = f"other processes keep {others:.1f} of {plural(machine.online or len(machine.cpus), 'processor')} busy"
    return state, what, "end other programs (`top` lists them), or wait; run one job at a time on a CI runner"


@_check("worker's processor", "the share that a busy process gets", lambda machine: machine.share)
def own_processor(share: float, machine: Machine) -> Grade:
    what = f"a busy loop got {share:.0%} of processor {machine.worker}"
    fix = "choose another processor with --cpus, or reserve this one (isolcpus=, a separate cpuset)"
    # A busy loop loses up to 3% of its processor to the kernel. Below 70%, every third block would be interrupted.
    return _graded_low(share, 0.97, 0.70), what, fix


@_check("steal", "time that the hypervisor takes away", lambda machine: machine.spin.stolen if machine.spin else None)
def steal(stolen: float, machine: Machine) -> Grade:
    seconds = machine.spin.seconds if machine.spin else 0.0
    share = stolen / seconds if seconds else 0.0
    what = f"the hypervisor took {share:.1%} of processor {machine.worker} away in {seconds:.1f} s of work"
    fix = "use a machine type whose processors are not shared or burstable (AWS: not t2 or t3)"
    # The kernel rounds to 1%. At 10%, one block in ten is interrupted, and medians of blocks begin to move.
    return _graded(share, 0.01, 0.10), what, fix


@_check("processor quota", "the quota of the control group", lambda machine: machine.limits)
def quota(limits: Limits, machine: Machine) -> Grade:
    spin = machine.spin or Counters()
    limit = "no quota" if limits.quota is None else f"a quota of {limits.quota:g} processors"
    throttled = (spin.throttled or 0.0) / spin.seconds if spin.seconds else 0.0
    fix = "raise the limit (docker --cpus, Kubernetes resources.limits.cpu) or remove it; a cpuset adds no noise"
    if throttled >= 0.01:  # a stop lasts up to 0.1 s, which is hundreds of blocks
        return BAD, f"{limit}, and it stopped this group for {throttled:.0%} of the time", fix
    if limits.quota is None or limits.quota >= 2:  # one for the worker, and one for the controller
        return OK, limit, ""
    return _graded_low(limits.quota, 2, 1), f"{limit}: a group that uses it up is stopped for up to 0.1 s", fix


@_check("memory", "free memory", lambda machine: machine.memory)
def available(free: int, machine: Machine) -> Grade:
    left = machine.limits.memory_left if machine.limits else None
    least = free if left is None else min(free, left)
    what = f"{max(0, least) / GIB:.1f} GiB free{' below the limit of the control group' if least == left else ''}"
    fix = "12 zygotes per side need up to 180 MB each: free memory, raise the container's limit, or use --policy quick"
    # Twelve zygotes of both sides take 4.3 GiB. Below 1 GiB, the kernel would kill one of the first processes.
    return _graded_low(least, 4.5 * GIB, GIB), what, fix


@_check("heat", "clock reductions caused by heat", lambda machine: machine.counters.heat)
def heat(events: float, machine: Machine) -> Grade:
    fix = "improve the cooling, or cap the clock: sudo cpupower frequency-set -u RATE"
    if machine.spin and machine.spin.heat:
        return BAD, f"heat lowered the processor's clock {plural(round(machine.spin.heat), 'time')} just now", fix
    if events:
        return WARN, f"heat lowered the processor's clock {plural(round(events), 'time')} since boot", fix
    return OK, "heat has not lowered the processor's clock since boot", ""


@_check("governor", "the policy of the processor's clock", lambda machine: machine.governor)
def governor(policy: str, machine: Machine) -> Grade:
    if policy == "performance":
        return OK, policy, ""
    what = f"{policy}: the clock follows the load, so a block's time depends on what ran before it"
    return WARN, what, "sudo cpupower frequency-set -g performance"


@_check("SMT siblings", "processors on the same core", lambda machine: machine.siblings)
def siblings(cpus: tuple[int, ...], machine: Machine) -> Grade:
    others = ", ".join(str(cpu) for cpu in cpus if cpu != machine.worker)
    if not others:
        return OK, f"processor {machine.worker} has its core to itself", ""
    what = f"processor {machine.worker} shares its core with {others}: processes there slow it down"
    fix = "echo off | sudo tee /sys/devices/system/cpu/smt/control, or keep the sibling out of every other cpuset"
    return WARN, what, fix


@_check("GPU", "", lambda machine: machine.gpus or Gpus(error="no NVIDIA driver"))
def devices(gpus: Gpus, machine: Machine) -> Grade:
    if gpus.error:
        return (OK if machine.gpus is None else State.UNKNOWN), gpus.error, ""
    held = {gpu.place: hardware_reasons(reading.reasons) for gpu, reading in gpus.devices}
    if any(held.values()):
        fix = "improve its cooling and check its power supply, or lock a lower clock: sudo nvidia-smi -lgc RATE"
        parts = "; ".join(f"{place}: {', '.join(why)}" for place, why in held.items() if why)
        return BAD, f"the clock is held down on {parts}", fix
    what = "; ".join(_described(*one) for one in gpus.devices) or "the driver lists no device"
    if unloaded := ", ".join(gpu.place for gpu, _ in gpus.devices if gpu.persistence is False):
        what = f"{what}; without persistence mode on {unloaded}, every start reloads the driver"
        return WARN, what, "sudo nvidia-smi -pm 1; for steady clocks: sudo nvidia-smi -lgc RATE"
    return OK, what, ""


def _described(gpu: Identity, reading: GpuReading) -> str:
    clock = f" at {reading.sm_clock:.0f} of {gpu.clock_limit:.0f} MHz" if reading.sm_clock and gpu.clock_limit else ""
    parts = [f"{gpu.place}: {gpu.name}{clock}", f"driver {gpu.driver}", f"CUDA {gpu.cuda}", gpu.pcie or ""]
    parts += [f"limit {gpu.power_limit:g} W" if gpu.power_limit else "", "MIG" if gpu.mig else ""]
    return ", ".join(filter(None, parts))


@_check("GPU sharing", "", lambda machine: machine.gpus or Gpus(error="no NVIDIA driver"))
def sharing(gpus: Gpus, machine: Machine) -> Grade:
    if gpus.error:
        return (OK if machine.gpus is None else State.UNKNOWN), gpus.error, ""
    fix = "end the process, choose an idle device with CUDA_VISIBLE_DEVICES, or run one job per runner"
    if busy := sum(len(reading.computing or ()) for _, reading in gpus.devices):
        return BAD, f"{plural(busy, 'other process')} computed on a device just now", fix
    if there := sum(len(reading.processes or ()) for _, reading in gpus.devices):
        return WARN, f"{plural(there, 'other process')} may use a device", fix
    if refused := [gpu for gpu, _ in gpus.devices if gpu.compute_mode not in (None, "default")]:
        modes = ", ".join(f"{gpu.place} ({gpu.compute_mode})" for gpu in refused)
        fix = f"sudo nvidia-smi -i {refused[0].index} -c DEFAULT"
        return BAD, f"a race has two processes on a GPU, which the compute mode forbids on {modes}", fix
    return OK, "no other process uses a device", ""


# Try GPUs. Each step needs the steps before it, so the first failure ends the check


GPU_FILE = Path(__file__).resolve().parents[1] / "worker" / "workloads" / "test_product.py"
GPU_CASE = Case(f"{GPU_FILE.name}::test_product", "test_product", f"{GPU_FILE.name}::test_product")
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
        for step in (self._devices, self._seen, self._profiled, self._same, self._slower):
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
        if not (gpus := tuple((gpu, GpuReading()) for gpu in self._gpu_session.gpus)):
            return Finding("devices", State.UNKNOWN, "no GPU is monitored here")
        return replace(devices(Machine((), 0, gpus=Gpus(gpus))), name="devices")

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
            place, _ = profiler.profile(entrant, Path(folder), 0, 0)
            spaces = [xplane.load(file) for file in place.iterdir()]
        prefix = xplane.DEVICE if self._kind == "GPU" else "/host:CPU"
        events = sum(len(plane.events) for space in spaces for plane in space.of(prefix))
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
