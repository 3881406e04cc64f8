"""Probing launches, several at once: the metrics other than time."""

from __future__ import annotations

import select
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tfbench.errors import BenchmarkError, BenchmarkSkipped
from tfbench.metrics.probe_output import Output, ProbeOutput
from tfbench.model import JSON, LEAKS
from tfbench.policy import Policy
from tfbench.protocol.messages import Done, ProbeCase, Probed
from tfbench.race.child import LOG_LOOK_SECONDS, Process
from tfbench.race.interfaces import Entrant, Failure
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.worker.probes.graph import FOLDER, of_module


@dataclass
class _Launch:
    """A probing launch that is under way."""

    process: Process
    folder: tempfile.TemporaryDirectory[str]
    cpus: tuple[int, ...]
    """The processor that no other probing launch uses meanwhile."""
    began: float = field(default_factory=time.monotonic)

    @property
    def waited(self) -> float:
        """Seconds for which its evidence has been awaited."""
        return time.monotonic() - self.began

    def end(self) -> None:
        self.process.end(kill=True)
        self.folder.cleanup()


class Prober:
    """Probes cases in processes that are forked from zygotes of their sides.

    Args:
        files: Whether to report what each case reads and loads. Its zygote then collects its file only, so that files
            of other benchmarks do not count.
    """

    def __init__(self, launcher: ProcessLauncher, policy: Policy, *, files: bool = False) -> None:
        self._launcher = launcher
        self._policy = policy
        self._files = files

    def probe(self, entrants: Iterable[Entrant]) -> Iterator[ProbeOutput | Failure]:
        """Yield the evidence of each entrant, in order. Each processor takes one after the other: none is timed.

        Raises:
            SideError: A zygote does not start.
        """
        waiting = deque(enumerate(entrants))
        running: dict[int, _Launch] = {}
        found: dict[int, ProbeOutput | Failure] = {}
        every = self._launcher.processors.every
        idle: list[tuple[int, ...]] = [(cpu,) for cpu in every[: self._policy.probes_at_once]] or [()]
        try:
            for wanted in range(len(waiting)):
                while wanted not in found:
                    while waiting and idle:
                        number, entrant = waiting.popleft()
                        try:
                            running[number] = self._start(entrant, idle[0])
                            del idle[0]
                        except BenchmarkError as error:
                            found[number] = error
                    found.update(self._ended(running))
                    for number in found.keys() & running.keys():
                        launch = running.pop(number)
                        launch.end()
                        idle.append(launch.cpus)
                yield found.pop(wanted)
        finally:
            for launch in running.values():
                launch.end()

    def share(self, entrants: Sequence[Entrant]) -> None:
        """Build the shared set-ups of these entrants, so that a race does not spend its time on them.

        Raises:
            SideError: A zygote does not start.
        """
        for _ in self.probe(entrant for entrant in entrants if entrant.case.shared):
            pass

    def _start(self, entrant: Entrant, idle: tuple[int, ...]) -> _Launch:
        folder = tempfile.TemporaryDirectory(prefix="probe-", dir=self._launcher.scratch)
        cpus = self._launcher.processors.every if entrant.case.cpus == "all" else idle
        windows = *self._policy.leak_windows, self._policy.leak_seconds[bool(entrant.case.claims_on(LEAKS))]
        request = ProbeCase(cpus, entrant.case.name, folder.name, self._policy.probe_calls, windows)
        try:
            # What a shared set-up is built from counts as well, so it is built without the other benchmarks' files.
            apart = self._files or entrant.case.shared
            return _Launch(self._launcher.start(entrant, 0, request, apart=apart), folder, idle)
        except BaseException:
            folder.cleanup()
            raise

    def _ended(self, running: Mapping[int, _Launch]) -> Iterator[tuple[int, ProbeOutput | Failure]]:
        """Wait a moment; yield the launches that have ended, with their evidence."""
        if not running:
            return
        ready = select.select([launch.process.channel for launch in running.values()], [], [], LOG_LOOK_SECONDS)[0]
        for number, launch in running.items():
            if launch.process.channel in ready or launch.waited > self._policy.setup_seconds:
                yield number, self._output(launch)
            else:
                try:
                    launch.process.check_output()
                except BenchmarkError as error:
                    yield number, error

    def _output(self, launch: _Launch) -> ProbeOutput | Failure:
        process = launch.process
        try:
            answer = process.answer(Probed, "while it was probed", self._policy.setup_seconds, launch.waited)
            # The code after bench belongs to the benchmark.
            process.answer(Done, "after it was probed", self._policy.answer_seconds)
        except (BenchmarkError, BenchmarkSkipped) as error:
            return error
        return _read(answer, Path(launch.folder.name))


def _read(answer: Probed, folder: Path) -> ProbeOutput:
    """Return the evidence, with the files that the process left in its folder."""
    found = answer.found
    names = found["xla"]["modules"] if "xla" in found else []
    modules: dict[str, str] = {}
    for name in names:
        text = (folder / FOLDER / name).read_text(encoding="utf-8", errors="replace")
        again = sum(of_module(name) == known.partition(" #")[0] for known in modules)
        modules[f"{of_module(name)} #{again + 1}" if again else of_module(name)] = text
    assigned = (folder / FOLDER / f"{name.removesuffix('.txt')}-buffer-assignment.txt" for name in names)
    return ProbeOutput(
        found=found,
        absent=answer.absent,
        facts=answer.facts,
        modules=modules,
        assignments=[path.read_text(encoding="utf-8", errors="replace") for path in assigned if path.exists()],
        outputs=tuple(_outputs(folder, found["outputs"])) if "outputs" in found else (),
    )


def _outputs(folder: Path, found: JSON) -> Iterator[Output]:
    """Yield the arrays of a file with their names and types. numpy refuses pickled Python objects by default."""
    with np.load(folder / found["file"]) as arrays:
        for number, (name, dtype) in enumerate(zip(found["names"], found["dtypes"], strict=True)):
            yield Output(arrays[f"arr_{number}"], name, dtype)
