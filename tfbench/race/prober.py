"""Launches in which nothing is timed, several at once: what a case shows beside its time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfbench.errors import BenchmarkError, BenchmarkSkipped
from tfbench.metrics.probe_output import ProbeOutput
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.race.child import Process
from tfbench.race.interfaces import Entrant
from tfbench.race.launch import Failure
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.worker.probes.xla import FOLDER, of_module


class Prober:
    """Probes cases in processes forked from the zygotes of their sides."""

    def __init__(self, launcher: ProcessLauncher, policy: Policy) -> None:
        self._launcher = launcher
        self._policy = policy

    def probe(self, entrants: Sequence[Entrant]) -> list[ProbeOutput | Failure]:
        """What each shows; as many at once as there are processors, since nothing is timed.

        Raises:
            SideError: A zygote does not start.
        """
        cpus = self._launcher.processors.every
        at_once = max(1, len(cpus))
        found: list[ProbeOutput | Failure] = []
        for first in range(0, len(entrants), at_once):
            found += self._side_by_side(entrants[first : first + at_once], cpus)
        return found

    def share(self, entrants: Sequence[Entrant]) -> None:
        """Have what their launches share made, where they ask for it, before the seconds of a race are counted.

        Raises:
            SideError: A zygote does not start.
        """
        if asking := [entrant for entrant in entrants if entrant.case.shared]:
            self.probe(asking)

    def _side_by_side(self, entrants: Sequence[Entrant], cpus: Sequence[int]) -> list[ProbeOutput | Failure]:
        with ExitStack() as stack:
            started: list[_Probed | Failure] = []
            for index, entrant in enumerate(entrants):
                try:
                    own = list(cpus) if entrant.case.cpus == "all" else [cpus[index % len(cpus)]]
                    started.append(stack.enter_context(_Probed.start(self._launcher, self._policy, entrant, own)))
                except BenchmarkError as error:
                    started.append(error)
            return [one.output() if isinstance(one, _Probed) else one for one in started]


@dataclass
class _Probed:
    """One launched process, and the folder that it writes to."""

    process: Process
    folder: tempfile.TemporaryDirectory[str]
    policy: Policy

    @classmethod
    def start(cls, launcher: ProcessLauncher, policy: Policy, entrant: Entrant, cpus: list[int]) -> _Probed:
        """Fork it.

        Raises:
            BenchmarkError: The side cannot run the case.
        """
        zygote = launcher.zygote(entrant, 0)
        if (reason := zygote.skip_reason(entrant.case)) is not None:
            raise BenchmarkError(reason)
        folder = tempfile.TemporaryDirectory(prefix="tfbench-")
        process = Process.start(
            zygote, entrant.case, probe=folder.name, calls=policy.probe_calls, cpus=cpus, threads=len(cpus)
        )
        return cls(process, folder, policy)

    def __enter__(self) -> _Probed:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.end(kill=True)
        self.folder.cleanup()

    def output(self) -> ProbeOutput | Failure:
        """Wait for it and read what it wrote."""
        try:
            answer = self.process.answer("probed", "probed", self.policy.setup_seconds)
            # What stands behind bench is part of the benchmark.
            self.process.answer("done", "probed", self.policy.answer_seconds)
        except (BenchmarkError, BenchmarkSkipped) as error:
            return error
        return self._read(answer)

    def _read(self, answer: JSON) -> ProbeOutput:
        found, root = answer["found"], Path(self.folder.name)
        names = found["xla"]["modules"] if "xla" in found else []
        modules: dict[str, str] = {}
        for name in names:
            text = (root / FOLDER / name).read_text(encoding="utf-8", errors="replace")
            again = sum(of_module(name) == known.partition(" #")[0] for known in modules)
            modules[f"{of_module(name)} #{again + 1}" if again else of_module(name)] = text
        assigned = [
            path
            for name in names
            if (path := root / FOLDER / f"{name.removesuffix('.txt')}-buffer-assignment.txt").exists()
        ]
        return ProbeOutput(
            found=found,
            absent=answer["absent"],
            facts=answer["facts"],
            modules=modules,
            assignments=[path.read_text(encoding="utf-8", errors="replace") for path in assigned],
            outputs=tuple(_arrays(root / found["outputs"]["file"])) if "outputs" in found else (),
        )


def _arrays(path: Path) -> Iterator[np.ndarray]:
    """Numbers only: numpy refuses Python objects unless it is told otherwise."""
    with np.load(path) as arrays:
        for number in range(len(arrays.files)):
            yield arrays[f"arr_{number}"]
