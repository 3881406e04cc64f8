"""Profile cases in launches of their own, one after the other and without timing."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import BenchmarkError
from tfbench.fs import atomic_dir
from tfbench.model import JSON
from tfbench.policy import Policy
from tfbench.profiles.folders import RUNS
from tfbench.protocol.messages import Done, ProfileCase, Profiled
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.sides.side import Side

METHODS = ("session", "context", "sampling")
"""Methods of TensorFlow's profiler, see `tfbench.worker.profiler`."""
HIGHEST = {"host": 3, "device": 1, "python": 1}
"""Tracer -> highest level. Level 0 turns it off."""


@dataclass(frozen=True)
class ProfilerConfig:
    """How profiles are collected."""

    method: str = "session"
    """One of `METHODS`."""
    levels: Mapping[str, int] | None = None
    """Levels of the ``host``, ``device`` and ``python`` tracers. Unnamed tracers have the worker's default level."""


USUAL = ProfilerConfig()
"""The defaults."""


class Profiler:
    """Profiles cases in processes that are forked from the same zygotes as the timed ones."""

    def __init__(self, launcher: ProcessLauncher, policy: Policy, profiler_config: ProfilerConfig) -> None:
        self._launcher = launcher
        self._policy = policy
        self._profiler_config = profiler_config

    def ready(self, entrants: Iterable[Entrant], launches: int) -> None:
        """Start the missing zygotes for so many launches, in parallel.

        Raises:
            SideError: A zygote does not start.
        """
        pairs = range(min(launches, self._policy.profile_zygotes))
        self._launcher.start_pairs(entrants, pairs)

    @property
    def levels(self) -> Mapping[str, int]:
        """Requested levels of the tracers."""
        return self._profiler_config.levels or {}

    def environment(self, side: Side) -> JSON:
        """Return the environment info of a side that is ready."""
        return self._launcher.environment(side)

    def profile(self, entrant: Entrant, logs: Path, launch: int) -> Path:
        """Profile one launch; return the folder below ``logs`` with its files, in TensorBoard's layout.

        Args:
            launch: Number of the launch. It selects the zygote in turn, and names the folder.

        Raises:
            SideError: A zygote does not start.
            BenchmarkError, BenchmarkSkipped: The case broke, or cannot run here.
        """
        place = logs / RUNS / f"launch-{launch + 1}"
        with atomic_dir(place) as half:
            self._collect(entrant, launch % self._policy.profile_zygotes, half)
            found = sorted(half.glob(f"{RUNS.as_posix()}/*/*.xplane.pb"))
            if not found:
                raise BenchmarkError("the profiler wrote no file: another profiler may be running in its process")
            for file in found:
                file.rename(half / file.name)
            shutil.rmtree(half / RUNS.parts[0])
        return place

    def _collect(self, entrant: Entrant, pair: int, folder: Path) -> None:
        policy = self._policy
        request = ProfileCase(
            self._launcher.processors.of(entrant.case),
            entrant.case.name,
            folder=str(folder),
            steps=policy.profile_steps,
            seconds=policy.profile_seconds,
            method=self._profiler_config.method,
            levels=dict(self.levels),
            warmup=policy.warmup(),
        )
        with self._launcher.start(entrant, pair, request) as process:
            process.answer(Profiled, "while it was profiled", policy.setup_seconds)
            # The code after bench belongs to the benchmark.
            process.answer(Done, "after it was profiled", policy.setup_seconds)
