"""Read metrics other than time, in launches of their own."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from tfbench import protocol
from tfbench.errors import BenchmarkError, BenchmarkSkipped
from tfbench.fs import atomic_dir
from tfbench.gpus.monitor import GpuMonitor
from tfbench.metrics.catalog import LEAK_BYTES, LEAK_OBJECTS
from tfbench.metrics.parity import Output, ProbeOutput
from tfbench.model import JSON, LEAKS
from tfbench.policy import Policy
from tfbench.profiles.folders import RUNS
from tfbench.protocol import XLA_FOLDER, Done
from tfbench.race.launch import Entrant, Failure
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.zygote import Process

ENERGY_SECONDS = 2.0
"""Duration of the repetition in which such a launch reads the energy. Devices update the counter at least every tenth
of a second, an error of 5% at most."""
PROBES_AT_ONCE = 8
"""Most probing launches at the same time, besides the limit of one per processor. Each has its own TensorFlow, which
takes memory of the host. On a GPU, its memory limits them as well, see `GPU_PROCESS_MEMORY`."""
LEAK_SECONDS = (0.4, 10.0, 30.0)
"""Seconds of all windows. With `@no_leak` the first is for more calls than the usual most, the second for ten calls in
each window of steps of 0.25 s, and the third for one call in each, of steps of 7 s."""
LEAK_NOISE = (65536.0, 262144.0, 100.0)
"""Growth of a short window that is none: bytes of the allocator if it has fewer than ten calls, resident bytes of two
windows together, and objects if it has fewer than 50 calls. Four windows of one `Model.fit` each (TensorFlow 2.21) grow
by at least 2 kB, 8 kB and 9 objects."""

MANY_CALLS = 5000
"""Calls that a probing launch times to see whether later ones take longer: what happens once in a thousand is in them."""
MANY_SECONDS = 3.5
"""Seconds of them with `@no_leak`, which takes as long as it must: what a process does every three seconds is in them."""

# Sampling launches: the Python functions that a step runs in, and what it leaves in memory


SECONDS = 1.0
"""A repeated step is sampled for so long, a thousand samples."""


def sample(
    launcher: ProcessLauncher, policy: Policy, entrant: Entrant, first: bool = False, memory: bool = False
) -> protocol.Sampled:
    """Return the samples of one launch.

    Raises `SideError` if a zygote does not start, `BenchmarkError` if the case breaks, and `BenchmarkSkipped` if it
    cannot run here.

    Args:
        first: Sample the first call of the step alone.
        memory: Count memory instead of functions, since counting slows Python down.
    """
    request = protocol.SampleCase(launcher.cpus(entrant), entrant.case.name, SECONDS, first, memory)
    seconds = launcher.policy_of(policy, [entrant]).setup_seconds
    with launcher.start(entrant, 0, request) as process:
        answer = process.answer(protocol.Sampled, "while it was sampled", seconds)
        process.answer(Done, "after it was sampled", seconds)
    return answer


# Profile cases in launches of their own, one after the other and without timing


STEPS = (10, 60)
"""Fewest and most steps of a profile. The profiler guide recommends about ten. Short steps need more, because noise hits each
of them differently, and their files stay small."""
PROFILE_SECONDS = 0.04
"""Between the two, as many steps as fit into this time: a pipeline of small records writes 70,000 events per second."""
ZYGOTES = 2
"""Zygotes per side for the launches. A race starts these first. They differ by about 1%, less than the overhead of profiling."""


@dataclass(frozen=True)
class Profiler:
    """Profiles cases in processes that are forked from the same zygotes as the timed ones."""

    launcher: ProcessLauncher
    policy: Policy

    def profile(
        self, entrant: Entrant, logs: Path, launch: int, pair: int, gpu_monitor: GpuMonitor | None = None
    ) -> tuple[Path, float | None]:
        """Profile one launch.

        Args:
            launch: Number of the launch, which names the folder.
            pair: The pair of zygotes that its process comes from.
            gpu_monitor: Reads the energy of the GPUs while the step repeats before.

        Returns:
            The folder below ``logs`` with its files, in TensorBoard's layout; and the joules of a step on all GPUs, idling
            included, ``None`` if they are unknown.

        Raises:
            SideError: A zygote does not start.
            BenchmarkError, BenchmarkSkipped: The case broke, or cannot run here.
        """
        place, policy = logs / RUNS / f"launch-{launch + 1}", self.launcher.policy_of(self.policy, [entrant])
        with atomic_dir(place) as half:
            request = protocol.ProfileCase(
                self.launcher.cpus(entrant), entrant.case.name, folder=str(half), steps=STEPS, seconds=PROFILE_SECONDS,
                warmup=policy.warmup(), energy=ENERGY_SECONDS if gpu_monitor else 0.0,
            )  # fmt: skip
            with self.launcher.start(entrant, pair, request) as process:
                joules = _joules(process, entrant, gpu_monitor, policy.setup_seconds) if gpu_monitor else None
                process.answer(protocol.Profiled, "while it was profiled", policy.setup_seconds)
                # The code after bench belongs to the benchmark.
                process.answer(Done, "after it was profiled", policy.setup_seconds)
            files = sorted(half.glob(f"{RUNS.as_posix()}/*/*.xplane.pb"))
            if not files:
                raise BenchmarkError("the profiler wrote no file: another profiler may be running in its process")
            for file in files:
                file.rename(half / file.name)
            shutil.rmtree(half / RUNS.parts[0])
        return place, joules


def _joules(process: Process, entrant: Entrant, gpu_monitor: GpuMonitor, limit: float) -> float | None:
    """Return the joules of a step that repeats; ``None`` for one that runs once, or if a GPU was disturbed."""
    doing = "while it was repeated for its energy"
    process.answer(protocol.Reached, doing, limit)
    with gpu_monitor.watching((entrant.case.name, entrant.side.name, "energy")) as launch_monitor:
        process.ask(protocol.Begin())
        calls = process.answer(protocol.Sampled, doing, limit).calls
    joules = launch_monitor.energy
    return joules / calls if joules is not None and calls and not launch_monitor.cause else None


# Probing launches, several at once: the metrics other than time


@dataclass(frozen=True)
class Prober:
    """Probes cases in processes that are forked from zygotes of their sides."""

    launcher: ProcessLauncher
    policy: Policy
    files: bool = False
    """Whether to report what each case reads and loads. Its zygote then collects its file only, so that files of other
    benchmarks do not count."""

    def probe(self, entrants: Iterable[Entrant], pairs: Sequence[int] = ()) -> Iterator[ProbeOutput | Failure]:
        """Yield the evidence of each entrant, in order. Each processor takes one after the other: none is timed.

        ``pairs`` names the pair of zygotes that each entrant's process comes from, by default the first.
        On a GPU, no more run at once than its memory has room for. They share the processors, on which XLA compiles.
        Raises `SideError` if a zygote does not start.
        """
        entrants = list(entrants)
        if pairs and not self.files:  # at once, since each may have an ancestor to start
            self.launcher.start_pairs([one for one in entrants if not one.case.shared], sorted({*pairs}))
        every, each, most = self.launcher.processors.every, 1, PROBES_AT_ONCE
        if self.launcher.on_gpu(entrants):
            most = min(self.launcher.gpu_room, most)
            each = max(1, len(every) // most)
        shares = [every[first : first + each] for first in range(0, len(every), each)]
        idle = SimpleQueue[tuple[int, ...]]()
        for share in shares[:most] or [()]:
            idle.put(share)
        threads, launches = ThreadPoolExecutor(most), deque[Future[ProbeOutput | Failure]]()
        try:
            for entrant, pair in zip(entrants, pairs or [0] * len(entrants), strict=True):
                cpus = idle.get()
                launches.append(threads.submit(self._output, *self._start(entrant, pair, cpus)))
                launches[-1].add_done_callback(lambda _, cpus=cpus: idle.put(cpus))  # type: ignore[misc]
                while launches and launches[0].done():
                    yield launches.popleft().result()
            while launches:
                yield launches.popleft().result()
        except KeyboardInterrupt:
            self.launcher.stop()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def share(self, entrants: Sequence[Entrant]) -> None:
        """Build the shared set-ups, so that a race spends no time on them. Raises `SideError` as `probe` does."""
        deque(self.probe(entrant for entrant in entrants if entrant.case.shared), maxlen=0)

    def _start(
        self, entrant: Entrant, pair: int, idle: tuple[int, ...]
    ) -> tuple[Process | BenchmarkError, Path, float]:
        """Start a launch; return its process or why there is none, its folder, and the seconds that it may take."""
        folder = Path(tempfile.mkdtemp(prefix="probe-", dir=self.launcher.scratch))
        cpus = idle if entrant.case.cpus == 1 else self.launcher.cpus(entrant)
        # After so many calls and seconds it is known whether later calls take longer.
        many = MANY_CALLS, max(MANY_SECONDS * bool(entrant.case.claims_on(LEAKS)), self.policy.many_seconds)
        windows, most, quick = self.policy.leak_windows
        calls, times, limits = (windows, most, most), (LEAK_SECONDS[0],) * 3, tuple[float, ...]()
        if entrant.case.claims_on(LEAKS):  # a contract takes more calls, longer, and names allocation sites
            calls, times, limits = (windows, most, quick), LEAK_SECONDS, (LEAK_BYTES, LEAK_OBJECTS)
        how = self.policy.probe_calls, calls, times, LEAK_NOISE, limits, many
        request = protocol.ProbeCase(cpus, entrant.case.name, str(folder), *how)
        # What a shared set-up is built from counts as well, so it is built without the other benchmarks' files.
        apart = self.files or entrant.case.shared
        seconds = self.launcher.policy_of(self.policy, [entrant]).setup_seconds
        try:
            return self.launcher.start(entrant, pair, request, apart=apart), folder, seconds
        except BenchmarkError as error:
            return error, folder, seconds

    def _output(self, process: Process | BenchmarkError, folder: Path, seconds: float) -> ProbeOutput | Failure:
        """Return the evidence of a launch, once it has ended."""
        try:
            if isinstance(process, BenchmarkError):
                return process
            with process:
                answer = process.answer(protocol.Probed, "while it was probed", seconds)
                # The code after bench belongs to the benchmark.
                process.answer(Done, "after it was probed", self.policy.answer_seconds)
            return _read(answer, folder)
        except (BenchmarkError, BenchmarkSkipped) as error:
            return error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _read(answer: protocol.Probed, folder: Path) -> ProbeOutput:
    """Return the evidence, with the files that the process left in its folder."""
    evidence = answer.found
    dumped = [folder / XLA_FOLDER / name for name in evidence.get("xla", {}).get("modules", ())]
    assigned = [file.with_name(f"{file.stem}-buffer-assignment.txt") for file in dumped]
    modules, assignments = (
        [file.read_text(encoding="utf-8", errors="replace") for file in files]
        for files in (dumped, filter(Path.exists, assigned))
    )
    results = tuple(_results(folder, evidence["outputs"])) if "outputs" in evidence else ()
    return ProbeOutput(evidence, answer.absent, answer.facts, modules, assignments, results)


def _results(folder: Path, evidence: JSON) -> Iterator[Output]:
    """Yield the arrays of a file with their names, types, containers and calls. numpy refuses pickled Python objects by default."""
    with np.load(folder / evidence["file"]) as arrays:
        described = zip(*(evidence[part] for part in ("names", "dtypes", "inside", "calls")), strict=True)
        for number, (name, dtype, inside, call) in enumerate(described):
            yield Output(arrays[f"arr_{number}"], name, dtype, inside, call)
