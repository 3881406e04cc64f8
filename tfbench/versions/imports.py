"""Race imports: every launch starts a fresh interpreter of each side and times the import in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.errors import BenchmarkError, WorkerHung
from tfbench.model import ONCE, Case, Plan
from tfbench.policy import Policy
from tfbench.protocol.messages import Prepared
from tfbench.race.interfaces import Entrant, Failure, OpenLaunch
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import check_threads, worker_environment
from tfbench.race.zygote_pool import Environment
from tfbench.sides.side import Side

CASES = tuple(Case(name, name, name) for name in ("import tensorflow", "import tensorflow, then Keras"))
"""What is raced. TensorFlow imports Keras at its first use."""
_PROGRAM = """
import json, os, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, json.loads(sys.argv[1]))
began = time.perf_counter()
import tensorflow as tf
if sys.argv[2] == "Keras":
    tf.keras.layers.Dense
sys.stdout.write(json.dumps([time.perf_counter() - began, len(sys.modules)]))
"""


class ImportLauncher(ProcessLauncher):
    """Opens launches of fresh interpreters, which import and end. Zygotes tell only what the sides are."""

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int]) -> None:
        # A race asks for several pairs. One zygote describes its side, and has read the files of its packages once.
        super().ready(wanted, [0])

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        self.ready([(entrant.side, ()) for entrant in entrants], [pair])
        return ImportLaunch(entrants, pair, self.processors.one, self._policy)


@dataclass
class ImportLaunch:
    """One import on each side, one after the other on the same processor."""

    entrants: Sequence[Entrant]
    pair: int
    cpus: Sequence[int]
    policy: Policy
    _seconds: dict[int, float] = field(default_factory=dict, init=False)

    def prepare(
        self,
        entrants: Sequence[int],
        brief: bool = False,
        together: bool = True,
        ahead: OpenLaunch | None = None,
    ) -> dict[int, Prepared | Failure]:
        found: dict[int, Prepared | Failure] = {}
        for entrant in entrants:
            try:
                seconds, modules = self._import(self.entrants[entrant])
            except BenchmarkError as error:
                found[entrant] = error
            else:
                self._seconds[entrant] = seconds
                found[entrant] = Prepared(seconds, {ONCE: True, "modules": modules})
        return found

    def _import(self, entrant: Entrant) -> tuple[float, int]:
        """Return the seconds of an import, and how many modules it loads."""
        check_threads(entrant.side, {}, self.cpus, self.cpus)
        env = worker_environment(dict(os.environ), entrant.side, {})
        command = [entrant.side.executable, "-c", _PROGRAM, json.dumps(list(self.cpus)), entrant.case.name.split()[-1]]
        try:
            done = subprocess.run(
                command, cwd=Path(entrant.side.root), env=env, capture_output=True, text=True,
                timeout=self.policy.start_seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise WorkerHung(f"the import takes longer than {self.policy.start_seconds:.0f} s") from None
        if done.returncode:
            last = (done.stderr.strip() or f"exit code {done.returncode}").rpartition("\n")[2]
            raise BenchmarkError(f"the import fails: {last}", done.stderr)
        seconds, modules = json.loads(done.stdout.strip().rpartition("\n")[2])
        return float(seconds), int(modules)

    @property
    def preempted(self) -> Mapping[int, Mapping[int, float]]:
        """Return nothing: an import is timed by the clock alone."""
        return {}

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        return {entrant: [seconds] * len(orders) for entrant, seconds in self._seconds.items()}

    def kill(self) -> None:
        """Do nothing: the processes have ended."""
