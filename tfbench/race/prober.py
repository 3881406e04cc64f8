"""Probing launches, several at once: the metrics other than time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from tfbench.errors import BenchmarkError, BenchmarkSkipped
from tfbench.metrics.probe_output import ProbeOutput
from tfbench.model import LEAKS
from tfbench.policy import Policy
from tfbench.protocol.messages import Done, ProbeCase, Probed
from tfbench.race.child import Process
from tfbench.race.interfaces import Entrant, Failure
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.worker.probes.graph import FOLDER, of_module


class Prober:
    """Probes cases in processes that are forked from the zygotes of their sides.

    Args:
        files: Whether to list the project's files that each case imports.
    """

    def __init__(self, launcher: ProcessLauncher, policy: Policy, *, files: bool = False) -> None:
        self._launcher = launcher
        self._policy = policy
        self._files = files

    def probe(self, entrants: Sequence[Entrant]) -> list[ProbeOutput | Failure]:
        """Return the evidence of each entrant. As many run at once as there are processors, since none is timed.

        Raises:
            SideError: A zygote does not start.
        """
        at_once = max(1, len(self._launcher.processors.every))
        found: list[ProbeOutput | Failure] = []
        for first in range(0, len(entrants), at_once):
            found += self._in_parallel(entrants[first : first + at_once])
        return found

    def share(self, entrants: Sequence[Entrant]) -> None:
        """Build the shared set-ups of these entrants, so that a race does not spend its time on them.

        Raises:
            SideError: A zygote does not start.
        """
        if asking := [entrant for entrant in entrants if entrant.case.shared]:
            self.probe(asking)

    def _in_parallel(self, entrants: Sequence[Entrant]) -> list[ProbeOutput | Failure]:
        every = self._launcher.processors.every
        with ExitStack() as stack:
            started: list[tuple[Process, Path] | Failure] = []
            for index, entrant in enumerate(entrants):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-", dir=self._launcher.scratch))
                cpus = every if entrant.case.cpus == "all" else (every[index % len(every)],)
                seconds = self._policy.leak_seconds[bool(entrant.case.claims_on(LEAKS))]
                windows = *self._policy.leak_windows, seconds
                request = ProbeCase(cpus, entrant.case.name, folder, self._policy.probe_calls, windows, self._files)
                try:
                    process = stack.enter_context(self._launcher.start(entrant, 0, request))
                    started.append((process, Path(folder)))
                except BenchmarkError as error:
                    started.append(error)
            return [self._output(*one) if isinstance(one, tuple) else one for one in started]

    def _output(self, process: Process, folder: Path) -> ProbeOutput | Failure:
        try:
            answer = process.answer(Probed, "while it was probed", self._policy.setup_seconds)
            # The code after bench belongs to the benchmark.
            process.answer(Done, "after it was probed", self._policy.answer_seconds)
        except (BenchmarkError, BenchmarkSkipped) as error:
            return error
        return _read(answer, folder)


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
        outputs=tuple(_arrays(folder / found["outputs"]["file"])) if "outputs" in found else (),
    )


def _arrays(path: Path) -> Iterator[np.ndarray]:
    """Yield the arrays of a file. numpy refuses pickled Python objects by default."""
    with np.load(path) as arrays:
        for number in range(len(arrays.files)):
            yield arrays[f"arr_{number}"]
