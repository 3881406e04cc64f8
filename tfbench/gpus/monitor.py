"""Watch GPUs during a run."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tfbench.errors import GpuError, UsageError
from tfbench.gpus import selection
from tfbench.gpus.nvml import Driver, GpuObservationWindow, GpuReading, Identity, Nvml, hardware_reasons
from tfbench.model import JSON, Case
from tfbench.policy import Policy

GPU_LOOK_SECONDS = 0.1
"""Interval of GPU readings during a launch of at least 0.3 s. A reading costs 1 ms of another processor, and a
throttled clock stays low for longer."""
GPU_CLOCK_DRIFT = 0.3
"""A launch counts only if its mean clock is within this of the race's other launches. A software power cap moves the
clock of large products on an H200 between 1335 and 1980 MHz, which both sides meet alike. Another power state is
farther away."""
GPU_HOT_SHARE = 0.02
"""A launch counts only if heat limited the clock for less of it, by the driver's counter, which also covers the time
between readings. A median ignores so few rounds."""
GPU_PROCESS_MEMORY = 32 << 30
"""Bytes of GPU memory for each process that prepares or is probed at the same time as others, see `gpus.monitor.room`.
ResNet-50 with a batch of 128 takes 15 to 30 GB in float32, as its allocator grows."""

# Monitor GPUs while a launch is timed: a thread reads them, and a rule decides whether the launch counts


@dataclass
class LaunchMonitor:
    """The monitoring results of one launch, set at its end."""

    cause: str = ""
    """Why the launch does not count, ``""`` if it does."""
    energy: float | None = None
    """Joules of all its GPUs, ``None`` if one does not count energy."""
    sm_clock: float | None = None
    """Mean MHz of the slowest GPU, ``None`` if unknown or if nothing ran."""


class GpuMonitor:
    """Monitor of the GPUs of a run, launch by launch. Raises `GpuError` if a GPU does not answer.

    Args:
        family: Returns the ids of all processes of this run.
        wait: Waits for an event or a timeout in seconds. Tests replace it, so that no time passes.
    """

    def __init__(
        self,
        gpus: Sequence[Identity],
        driver: Driver,
        policy: Policy,
        family: Callable[[], Iterable[int]],
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._driver = driver
        self._policy = policy
        self._family = family
        self._wait = wait
        self.discarded: Counter[str] = Counter()
        """Cause -> number of launches that do not count because of it."""
        self._counted: dict[Identity, list[tuple[Hashable, GpuObservationWindow]]] = {gpu: [] for gpu in gpus}
        """Race and window of the launches that counted, in time order."""
        self._last: dict[tuple[Identity, Hashable], GpuObservationWindow] = {}
        self._ours: set[int] = set()
        """All processes that this run has had. The driver may still list one that has just ended."""
        self._before = {gpu: driver.reading(gpu).processes or frozenset() for gpu in gpus}
        """Processes on each GPU before this run."""
        driver.listen(gpus)

    @property
    def room(self) -> int:
        """How many processes fit into the memory of each GPU at once, at least one; one if its size is unknown."""
        return max(1, min(gpu.memory or 0 for gpu in self._counted) // GPU_PROCESS_MEMORY)

    def as_json(self) -> JSON:
        """Return each GPU with its readings by valid launch, and the number of discarded launches by cause."""
        launches = {gpu: [window.as_json() for _, window in counted] for gpu, counted in self._counted.items()}
        gpus = [{**asdict(gpu), "launches": windows} for gpu, windows in launches.items()]
        return {"gpus": gpus, "discarded": dict(self.discarded)}

    @contextmanager
    def watching(self, race: Hashable) -> Iterator[LaunchMonitor]:
        """Monitor a launch of a race, whose launches compute the same. The yielded object has the results afterwards."""
        launch_monitor, over = LaunchMonitor(), threading.Event()
        seen: dict[Identity, list[GpuReading]] = {gpu: [] for gpu in self._counted}
        lost: dict[Identity, str] = {}

        def look() -> None:
            for gpu in [gpu for gpu in seen if gpu not in lost]:
                try:
                    seen[gpu].append(self._driver.reading(gpu))
                except GpuError as error:
                    lost[gpu] = str(error)

        def keep_looking() -> None:
            while not self._wait(over, GPU_LOOK_SECONDS):
                look()

        self._ours.update(self._family())
        self._driver.xids()  # discard errors from before the launch
        look()
        thread = threading.Thread(target=keep_looking, daemon=True)
        thread.start()
        try:
            yield launch_monitor
        finally:
            over.set()
            thread.join()
        look()
        self._ours.update(self._family())
        xids = tuple(self._driver.xids())
        windows = {gpu: GpuObservationWindow(tuple(reading), xids, lost.get(gpu, "")) for gpu, reading in seen.items()}
        causes = (self._cause(gpu, race, window) for gpu, window in windows.items())
        launch_monitor.cause = next(filter(None, causes), "")
        launch_monitor.sm_clock = min((window.sm_clock for window in windows.values() if window.sm_clock), default=None)
        energies = [window.energy for window in windows.values() if window.energy is not None]
        launch_monitor.energy = sum(energies) if len(energies) == len(windows) else None
        if launch_monitor.cause:
            self.discarded[launch_monitor.cause] += 1
        for gpu, window in windows.items():
            self._last[gpu, race] = window
            if not launch_monitor.cause:
                self._counted[gpu].append((race, window))

    def _cause(self, gpu: Identity, race: Hashable, window: GpuObservationWindow) -> str:
        earlier = [counted for of, counted in self._counted[gpu] if of == race]  # the clock depends on the computation
        last = self._last.get((gpu, race))
        return disturbance(window, frozenset(self._ours), self._before[gpu], earlier, last)


def disturbance(
    window: GpuObservationWindow,
    ours: frozenset[int],
    before: frozenset[int],
    earlier: Sequence[GpuObservationWindow],
    last: GpuObservationWindow | None = None,
) -> str:
    """Return why a launch does not count, ``""`` if it does.

    Args:
        ours: Process ids of this run.
        before: Process ids on the GPU before this run.
        earlier: Windows of earlier launches of the same race that counted, on this GPU.
        last: Window of the previous launch, whether it counted or not.
    """
    if window.lost:
        return window.lost
    if window.xids:
        return f"the driver reported XID {', '.join(map(str, window.xids))} during the launch: see dmesg"
    if held := dict.fromkeys(words for reading in window.readings for words in hardware_reasons(reading.reasons)):
        return f"the GPU lowered its clock ({', '.join(held)}): cool it, check its power supply, or lock a lower clock"
    if (share := window.too_hot) is not None and share > GPU_HOT_SHARE:
        return f"heat lowered the GPU's clock for {share:.0%} of the launch: cool it, or lock a lower clock"
    if strangers := sorted(foreign(window, ours, before)):
        pids = ", ".join(map(str, strangers))
        return f"another process computed on the GPU (pid {pids}): end it, or give the job its own GPU"
    # A clock that differs from earlier launches: a power cap, another power state, or a changed setting. Two launches
    # in a row at the same clock count, whatever the clock was before: a GPU that warms up settles at a lower clock,
    # which affects both sides of a race alike.
    clocks, clock = [reading.sm_clock for reading in earlier if reading.sm_clock], window.sm_clock
    if not clocks or not clock:
        return ""
    usual = median(clocks)
    known = [usual, last.sm_clock] if last is not None and last.sm_clock else [usual]
    if any(abs(clock / clock_before - 1) <= GPU_CLOCK_DRIFT for clock_before in known):
        return ""
    return (
        f"the GPU ran at {clock:.0f} MHz, and at {usual:.0f} MHz in other launches: "
        "lock its clock with sudo nvidia-smi -lgc RATE"
    )


def foreign(window: GpuObservationWindow, ours: frozenset[int], before: frozenset[int]) -> set[int]:
    """Return the processes that compute on the GPU and do not belong to this run.

    If the driver does not report who computes, all processes with access to the GPU count. In a container, the driver
    may report the host's process ids, of which none is ours. Then only processes from before this run count.
    """
    listed = {pid for reading in window.readings for pid in reading.processes or ()}
    strangers = listed - ours if listed & ours else listed & before
    return strangers if window.computing is None else strangers & window.computing


def family(first: int | None = None) -> set[int]:
    """Return the ids of a process, by default of this one, and of its descendants."""
    import psutil  # it is for the system on which benchmarks run

    process = psutil.Process(first)
    return {process.pid, *(child.pid for child in process.children(recursive=True))}


# The GPUs of a run: selected, locked and monitored


class GpuSession:
    """The GPUs that a run measures on. Call `close` at the end.

    Args:
        kind: ``cpu``, ``gpu`` or ``all``.
        names: Indices or UUIDs, empty for all GPUs.
        required: Whether a missing GPU is an error. The workers report it.
        locks: Folder of the lock files, by default of this user.

    Raises:
        UsageError: A named GPU is missing.
        GpuError: A named GPU is not usable: no driver, no library, or another run's lock.
    """

    def __init__(
        self,
        kind: str,
        names: Sequence[str],
        policy: Policy,
        required: bool = False,
        opened: Callable[[], Driver] = Nvml,
        locks: Path | None = None,
        driver: Callable[[], bool] = selection.has_driver,
    ) -> None:
        self.gpus: list[Identity] = []
        self.gpu_monitor: GpuMonitor | None = None
        self._doubts: list[str] = []
        self.environment: dict[str, str] = {}
        """Environment of the workers."""
        self._held = ExitStack()
        """The driver and the locks."""
        left = selection.visible(os.environ)
        there = bool(names) or (driver() and left != ())
        self._kind = kind
        self._may_have_gpus = kind != "cpu" and (there or required)
        if kind == "cpu":
            self.environment = {selection.VISIBLE: "-1"}
        if kind == "cpu" or not there:
            return
        try:
            nvml = opened()
        except GpuError as error:
            if names:
                raise
            # Without names, the run goes on with the GPUs that TensorFlow sees.
            self._doubts.append(f"GPUs are not monitored, so throttling and sharing go unnoticed: {error}")
            return
        with ExitStack() as held:
            held.callback(nvml.close)
            self.gpus = self._chosen(nvml.identities(), names, left)
            if self.gpus:
                _check_modes(self.gpus)
                held.enter_context(selection.lock(self.gpus, locks))
                self.gpu_monitor = GpuMonitor(self.gpus, nvml, policy, family)
                self.environment = selection.environment(self.gpus) if names or left else {}
                self._held = held.pop_all()

    def _chosen(self, there: Sequence[Identity], names: Sequence[str], left: tuple[str, ...] | None) -> list[Identity]:
        """Return the GPUs that the user named; otherwise the visible ones, or all."""
        if names:
            return selection.choose(there, names)
        if left is not None:
            if doubt := selection.doubtful_order(there, left, os.environ):
                self._doubts.append(doubt)
            return selection.choose(there, left, f"{selection.VISIBLE}=")
        if len(there) > 1 and (parts := [gpu.uuid for gpu in there if gpu.instance is not None]):
            text = "CUDA sees one part of a divided GPU (MIG) at a time"
            raise UsageError(f"{text}: select one with --device gpu:UUID, from {', '.join(parts)}")
        return list(there)

    def skip_reason(self, case: Case) -> str:
        """Return why a case cannot run here for want of a GPU, ``""`` if it may.

        Under ``--device gpu`` this is every case, and otherwise a case of the level ``device=gpu`` whose process needs
        variables, because its start would fail without a reason. Others report it themselves.
        """
        alone = case.levels.get("device") == "gpu" and bool(case.env)
        if self._may_have_gpus or not (alone or self._kind == "gpu"):
            return ""
        return "no GPU here: there is no NVIDIA driver"

    @property
    def notes(self) -> list[str]:
        """Notes for the user so far."""
        causes = self.gpu_monitor.discarded if self.gpu_monitor else {}
        counts = (
            (cause, "1 launch was" if count == 1 else f"{count} launches were") for cause, count in causes.items()
        )
        return self._doubts + [f"{were} discarded: {cause}" for cause, were in counts]

    @property
    def machine(self) -> dict[str, str]:
        """The properties that runs must share for their times to be comparable."""
        return {key: value for gpu in self.gpus for key, value in gpu.as_machine().items()}

    def as_json(self) -> JSON:
        """Return the GPUs and discarded launches for the report, ``{}`` without a GPU."""
        return self.gpu_monitor.as_json() if self.gpu_monitor else {}

    def close(self) -> None:
        """Release the GPUs for other runs."""
        self._held.close()


def _check_modes(gpus: Sequence[Identity]) -> None:
    """Refuse exclusive modes: a race has two processes on a GPU, in turns."""
    for gpu in gpus:
        if gpu.compute_mode not in (None, "default"):
            text = f"GPU {gpu.index} is in compute mode {gpu.compute_mode!r}, but a race needs two processes on it"
            raise GpuError(f"{text}: run sudo nvidia-smi -i {gpu.index} -c DEFAULT")
