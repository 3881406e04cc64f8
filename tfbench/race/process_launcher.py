"""Launches in real processes: pools of zygotes, and the processors that their processes are pinned to."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import BenchmarkError, SideError, UsageError
from tfbench.gpus.monitor import GpuMonitor
from tfbench.gpus.selection import has_driver
from tfbench.model import JSON, Case
from tfbench.policy import Policy
from tfbench.protocol.messages import DevicesListed, LaunchRequest, ListDevices
from tfbench.race.child import Process
from tfbench.race.interfaces import Entrant, OpenLaunch
from tfbench.race.process_launch import ProcessLaunch
from tfbench.race.stopwatch import Phase, Stopwatch
from tfbench.race.workers import Suite, check_threads, worker_environment
from tfbench.race.zygote import Zygote
from tfbench.race.zygote_pool import Environment, ZygotePool
from tfbench.sides.side import Side


@dataclass(frozen=True)
class Processors:
    """Processors of the workers: ``one`` pinned core, or ``every`` one for a workload that asks."""

    one: tuple[int, ...]
    every: tuple[int, ...]
    near: tuple[int, ...] = ()
    """Processors on which processes that race on ``one`` may prepare at the same time, itself included."""

    def of(self, case: Case) -> tuple[int, ...]:
        """Return the processors that the case runs on."""
        return self.every if case.cpus == "all" else self.one


class ProcessLauncher:
    """Opens launches from pools of zygotes, one pool per side and environment.

    Two sides never share a pool, even if they are the same program.
    Zygotes are numbered by pair: launches of pair ``p`` come from zygote ``p`` of each side.
    """

    def __init__(
        self,
        suite: Suite,
        policy: Policy,
        processors: Processors,
        gpu_monitor: GpuMonitor | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.stopwatch = stopwatch or Stopwatch()
        self._gpu_monitor = gpu_monitor
        self._policy = policy
        self._suite = suite
        self.processors = processors
        self._seeds = itertools.count(1)
        """Every launch draws other random numbers, so that a difference between them cannot pass for one of the sides."""
        self._pool = ZygotePool(suite, policy, max(1, len(processors.every)))

    @property
    def scratch(self) -> Path:
        """The folder of the workers' temporary files.

        Raises:
            SideError: It cannot be created.
        """
        return self._pool.scratch

    @property
    def notes(self) -> list[str]:
        """Warnings about the way launches are made, for the user."""
        return self._pool.notes

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int]) -> None:
        """Start the missing zygotes of these pairs, as many at a time as there are processors.

        Raises:
            SideError: A zygote does not start. Later calls for its side and environment raise it again at once.
        """
        with self.stopwatch.phase(Phase.STARTING):
            self._pool.ready(wanted, pairs)

    def check(self, side: Side, cases: Iterable[Case]) -> None:
        """Check that all variables of a side have an effect in these cases, before a process is started.

        Raises:
            UsageError: One has none.
        """
        try:
            worker_environment(self._suite.variables, side, {})
            for cpus in {self.processors.of(case) for case in cases}:
                check_threads(side, {}, cpus, self._suite.cpus)
        except (SideError, BenchmarkError) as error:
            raise UsageError(str(error)) from None

    def zygote(self, entrant: Entrant, pair: int, *, apart: bool = False) -> Zygote:
        """Return the zygote of this pair, and start it if necessary.

        Args:
            apart: Whether it collects the benchmark file of the entrant's case only.

        Raises:
            SideError: The zygote does not start.
        """
        with self.stopwatch.phase(Phase.STARTING):
            return self._pool.zygote(entrant, pair, apart=apart)

    def start(
        self,
        entrant: Entrant,
        pair: int,
        request: LaunchRequest,
        descriptors: Sequence[int] = (),
        *,
        apart: bool = False,
    ) -> Process:
        """Fork the process of a launch from the zygote of this pair, or of this pair and the case's file.

        Raises:
            SideError: The zygote does not start.
            BenchmarkError: The side cannot run the case.
        """
        case = entrant.case
        check_threads(entrant.side, dict(case.env), self.processors.of(case), self._suite.cpus)
        zygote = self.zygote(entrant, pair, apart=apart)
        return Process.start(zygote, zygote.checked(request, entrant.case), descriptors)

    def start_pairs(self, entrants: Iterable[Entrant], pairs: Sequence[int]) -> None:
        self.ready([(entrant.side, entrant.case.env) for entrant in entrants], pairs)

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        self.start_pairs(entrants, [pair])
        on_gpu = any(entrant.case.levels.get("device") != "cpu" for entrant in entrants)
        # Two processes that prepare on one GPU at once would time kernels against each other, and choose others.
        together = not (on_gpu and (self._gpu_monitor or has_driver()))
        cpus = tuple(sorted({cpu for entrant in entrants for cpu in self.processors.of(entrant.case)}))
        near = self.processors.near if together and not any(entrant.case.alone for entrant in entrants) else ()
        monitor = self._gpu_monitor if on_gpu else None
        return ProcessLaunch(self.start, entrants, pair, self._policy, cpus, near, monitor, next(self._seeds))

    def policy_of(self, policy: Policy, entrants: Sequence[Entrant]) -> Policy:
        common = self._pool.have_common_ancestors([(entrant.side, entrant.case.env) for entrant in entrants])
        return policy.with_common_ancestors() if common else policy

    def environment(self, side: Side) -> JSON:
        """Return the environment info of a side, without the settings of variants; empty if it has not started."""
        return self._pool.environment(side)

    def import_seconds(self, side: Side) -> float | None:
        """Return the median import time of TensorFlow in the side's zygotes, ``None`` if none imports it."""
        return self._pool.import_seconds(side)

    def devices(self, side: Side) -> Mapping[str, Sequence[str]]:
        """Return the names of TensorFlow's devices on this side by type, from a process that then ends.

        Raises:
            SideError: The zygote does not start.
            BenchmarkError: TensorFlow could not list its devices.
        """
        zygote = self.zygote(Entrant(Case("", "", ""), side), 0)
        with Process.start(zygote, ListDevices(self.processors.every)) as process:
            return process.answer(DevicesListed, "while it listed devices", self._policy.answer_seconds).devices

    def release(self, side: Side) -> None:
        """End the zygotes of a side."""
        self._pool.release(side)

    def keep_only(self, environments: Collection[Environment]) -> None:
        """End the zygotes of all other environments. A later request starts them again."""
        self._pool.keep_only(environments)

    def close(self) -> None:
        """End every zygote and all that it started, and remove their temporary files."""
        self._pool.close()


def processors(chosen: Sequence[int] | None, available: Mapping[int, None] | Sequence[int]) -> Processors:
    """Return the processors of the workers: the chosen ones, or the last one, since the first ones serve interrupts."""
    every = tuple(sorted(available))
    if chosen:
        return Processors(one=tuple(chosen), every=tuple(chosen))
    one = every[-1:]
    near = tuple(cpu for cpu in reversed(every) if _memory_of(cpu) == _memory_of(*one))
    return Processors(one, every, near if len(near) > 1 else ())


def _memory_of(cpu: int) -> list[str]:
    """Return the name of the memory (NUMA node) of a processor, as far as the kernel says."""
    return [node.name for node in Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node*")]
