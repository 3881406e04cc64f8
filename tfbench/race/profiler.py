"""Launches that are profiled, one after the other, and never timed."""

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
from tfbench.race.child import Process
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.zygote import Zygote
from tfbench.sides.side import Side

METHODS = ("session", "context", "sampling")
"""How a launch can be profiled, see `tfbench.worker.profiler`."""
HIGHEST = {"host": 3, "device": 1, "python": 1}
"""Tracer -> its highest level; at 0 it is off."""


@dataclass(frozen=True)
class ProfilerConfig:
    """How profiles are collected."""

    method: str = "session"
    """One of `METHODS`."""
    levels: Mapping[str, int] | None = None
    """Of the host, device and Python tracers; those that are not named are the profiler's usual ones."""


USUAL = ProfilerConfig()
"""As the profiler does by itself."""


class Profiler:
    """Profiles cases in processes forked from the zygotes of their sides, where they are timed as well."""

    def __init__(self, launcher: ProcessLauncher, policy: Policy, profiler_config: ProfilerConfig) -> None:
        self._launcher = launcher
        self._policy = policy
        self._profiler_config = profiler_config

    def ready(self, entrants: Iterable[Entrant], launches: int) -> None:
        """Start the zygotes of so many launches that are not there yet, side by side.

        Raises:
            SideError: One of them does not start.
        """
        pairs = range(min(launches, self._policy.profile_zygotes))
        self._launcher.ready([(entrant.side, entrant.case.env) for entrant in entrants], pairs)

    @property
    def levels(self) -> Mapping[str, int]:
        """What was asked for of the tracers."""
        return self._profiler_config.levels or {}

    def environment(self, side: Side) -> JSON:
        """What the side is made of, once it is ready."""
        return self._launcher.environment(side)

    def profile(self, entrant: Entrant, logs: Path, launch: int) -> Path:
        """Profile one launch; the folder below ``logs`` with its files, as TensorBoard wants them.

        Args:
            launch: Its number: zygotes are gone through in turn, and runs are named so.

        Raises:
            SideError: A zygote does not start.
            BenchmarkError, BenchmarkSkipped: The case broke, or cannot run here.
        """
        zygote = self._launcher.zygote(entrant, launch % self._policy.profile_zygotes)
        if (reason := zygote.skip_reason(entrant.case)) is not None:
            raise BenchmarkError(reason)
        place = logs / RUNS / f"launch-{launch + 1}"
        with atomic_dir(place) as half:
            self._collect(entrant, zygote, half)
            found = sorted(half.glob(f"{RUNS.as_posix()}/*/*.xplane.pb"))
            if not found:
                raise BenchmarkError("the profiler wrote no file: another profiler may be running in its process")
            for file in found:
                file.rename(half / file.name)
            shutil.rmtree(half / RUNS.parts[0])
        return place

    def _collect(self, entrant: Entrant, zygote: Zygote, folder: Path) -> None:
        policy, cpus = self._policy, list(self._launcher.processors.of(entrant.case))
        process = Process.start(
            zygote,
            entrant.case,
            profile=str(folder),
            how={
                "steps": policy.profile_steps,
                "seconds": policy.profile_seconds,
                "method": self._profiler_config.method,
                "levels": dict(self._profiler_config.levels or {}),
                "warmup": policy.warmup,
            },
            cpus=cpus,
            threads=len(cpus),
        )
        try:
            for kind in ("profiled", "done"):
                process.answer(kind, "profiled", policy.setup_seconds)
        finally:
            process.end(kill=True)
