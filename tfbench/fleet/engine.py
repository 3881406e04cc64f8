"""Define what a fleet needs of an engine. Each engine is one module of `tfbench.fleet.engines`."""

from __future__ import annotations

import enum
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class State(str, enum.Enum):
    """The state of a submitted job, as its engine sees it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    """The engine has finished with it. Only its report shows whether it succeeded."""


@dataclass(frozen=True)
class Submission:
    """One job for an engine."""

    index: int
    file: Path
    log: Path
    """File for the output of the job."""
    seconds: float
    """Expected time on the machine."""


class Engine(Protocol):
    """Runs jobs on machines. Every method may raise `EngineError`, and `EngineAway` if the engine does not answer."""

    @property
    def slots(self) -> int:
        """Number of jobs that run at once as far as known, at least 1; for the time left."""
        ...

    def submit(self, jobs: Sequence[Submission], avoid: Collection[str]) -> None:
        """Start jobs as machines become free, on other machines than those to avoid."""
        ...

    def poll(self) -> Mapping[int, State]:
        """Return the state of every job that was submitted and has not been reported as ended."""
        ...

    def avoid(self, hosts: Collection[str]) -> None:
        """Keep jobs that still wait off these machines, as far as the engine can."""
        ...

    def cancel(self) -> None:
        """End all submitted jobs."""
        ...

    def close(self) -> None:
        """Release what this process holds of the engine. Submitted jobs go on."""
        ...


PROGRAM = (sys.executable, "-m", "tfbench", "job", "run")
"""The command that does a job; the path of the job follows."""
