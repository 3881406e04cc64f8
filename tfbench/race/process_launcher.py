"""Launches in real processes: pools of zygotes, pinned processes, and turns that pass through pipes."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tfbench.errors import BenchmarkError, BenchmarkSkipped, LaunchDisturbed, WorkerHung
from tfbench.gpus.monitor import GpuMonitor
from tfbench.gpus.selection import has_driver
from tfbench.metrics.catalog import DISPATCH_TIME, GPU_CLOCK
from tfbench.model import JSON, Case, Plan
from tfbench.policy import Policy
from tfbench.protocol.messages import (
    DevicesListed,
    Done,
    LaunchRequest,
    ListDevices,
    M,
    Prepared,
    Rounds,
    Serve,
    Settle,
    Settled,
    Stop,
    TimeCase,
)  # fmt: skip
from tfbench.race.child import LOG_LOOK_SECONDS, Process
from tfbench.race.interfaces import Entrant, EntrantFailed, Failure, OpenLaunch
from tfbench.race.schedule import followers, planned_seconds
from tfbench.race.stopwatch import Phase, Stopwatch
from tfbench.race.workers import Suite
from tfbench.race.zygote import Zygote
from tfbench.race.zygote_pool import Environment, ZygotePool
from tfbench.sides.side import Side
from tfbench.worker.block import TOKEN


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
        self.processors = processors
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

    def zygote(self, entrant: Entrant, pair: int) -> Zygote:
        """Return the zygote of this pair, and start it if necessary.

        Raises:
            SideError: The zygote does not start.
        """
        with self.stopwatch.phase(Phase.STARTING):
            return self._pool.zygote(entrant, pair)

    def start(self, entrant: Entrant, pair: int, request: LaunchRequest, descriptors: Sequence[int] = ()) -> Process:
        """Fork the process of a launch from the zygote of this pair.

        Raises:
            SideError: The zygote does not start.
            BenchmarkError: The side cannot run the case.
        """
        zygote = self.zygote(entrant, pair)
        if (reason := zygote.skip_reason(entrant.case)) is not None:
            raise BenchmarkError(reason)
        return Process.start(zygote, request, descriptors)

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        self.ready([(entrant.side, entrant.case.env) for entrant in entrants], [pair])
        on_gpu = any(entrant.case.levels.get("device") != "cpu" for entrant in entrants)
        # Two processes that prepare on one GPU at once would time kernels against each other, and choose others.
        together = not (on_gpu and (self._gpu_monitor or has_driver()))
        return ProcessLaunch(self, entrants, pair, self._policy, together, self._gpu_monitor if on_gpu else None)

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


class ProcessLaunch:
    """A fresh process for each entrant, all on the same processors, of which one runs at a time."""

    def __init__(
        self,
        launcher: ProcessLauncher,
        entrants: Sequence[Entrant],
        pair: int,
        policy: Policy,
        together: bool,
        gpu_monitor: GpuMonitor | None,
    ) -> None:
        self._launcher = launcher
        self._entrants = entrants
        self._pair = pair
        self._policy = policy
        self._gpu_monitor = gpu_monitor
        self._cpus = tuple(sorted({cpu for entrant in entrants for cpu in launcher.processors.of(entrant.case)}))
        near = launcher.processors.near if together else ()
        self._places = [(cpu,) if len(self._cpus) == 1 else self._cpus for cpu in near] or [self._cpus]
        """The processors on which processes prepare at the same time, each on one entry."""
        self._pipes = [os.pipe() for _ in entrants]
        """The inbox of each entrant: the process that reads a byte has the turn."""
        self._running: dict[int, Process] = {}
        self._facts: dict[int, JSON] = {}
        self._iteration: dict[int, float] = {}

    def prepare(self, entrants: Sequence[int], brief: bool = False) -> dict[int, Prepared | Failure]:
        warmup = self._policy.warmup(brief)
        found: dict[int, Prepared | Failure] = {}
        for first in range(0, len(entrants), len(self._places)):
            batch = entrants[first : first + len(self._places)]
            for entrant, place in zip(batch, self._places, strict=False):
                try:
                    self._start(entrant, place, warmup)
                except BenchmarkError as error:
                    found[entrant] = error
            found |= {entrant: self._prepared(entrant) for entrant in batch if entrant in self._running}
        if len(self._places) > 1 and not brief:
            for entrant, process in list(self._running.items()):
                process.ask(Settle(self._cpus, self._policy.settle_seconds))
                settled = self._reply(entrant, Settled, "while it was warmed up", self._policy.answer_seconds)
                if not isinstance(settled, Settled):
                    found[entrant] = settled
        return found

    def _start(self, entrant: int, cpus: tuple[int, ...], warmup: tuple[float, float, float]) -> None:
        request = TimeCase(cpus, self._entrants[entrant].case.name, entrant, warmup)
        pipes = [self._pipes[entrant][0], *(outbox for _, outbox in self._pipes)]
        self._running[entrant] = self._launcher.start(self._entrants[entrant], self._pair, request, pipes)

    def _prepared(self, entrant: int) -> Prepared | Failure:
        prepared = self._reply(entrant, Prepared, "", self._policy.setup_seconds)
        if isinstance(prepared, Prepared):
            self._facts[entrant] = prepared.facts
            self._iteration[entrant] = prepared.iteration
        return prepared

    def _reply(self, entrant: int, wanted: type[M], when: str, seconds: float) -> M | Failure:
        """Return the answer of an entrant, or the failure with which it leaves the launch."""
        try:
            return self._running[entrant].answer(wanted, when, seconds)
        except (BenchmarkError, BenchmarkSkipped) as error:
            del self._running[entrant]
            return error

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        seconds = {}
        for entrant, blocks in self._watched_blocks(plan, orders).items():
            times = [end - start for start, end in blocks]
            if len(times) != len(orders) or min(times) <= 0:
                error = BenchmarkError("the blocks have no usable time: the benchmark's clock stood still")
                raise EntrantFailed(entrant, error)
            seconds[entrant] = [time * 1e-9 / plan.iterations[entrant] for time in times]
        self.finish()
        return seconds

    def _watched_blocks(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, int]]]:
        if self._gpu_monitor is None:
            return self.blocks(plan, orders)
        who = tuple((entrant.case.name, entrant.side.name) for entrant in self._entrants)
        with self._gpu_monitor.watching(who) as launch_monitor:
            blocks = self.blocks(plan, orders)
        if launch_monitor.cause:
            raise LaunchDisturbed(launch_monitor.cause)
        if launch_monitor.sm_clock is not None:
            for entrant in blocks:
                self._facts[entrant][GPU_CLOCK] = launch_monitor.sm_clock
        return blocks

    def blocks(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, int]]]:
        """Run the rounds; return the begin and end of each block by entrant, in nanoseconds of one clock.

        Raises:
            EntrantFailed: An entrant broke or skipped itself.
        """
        for entrant, turns in followers(orders).items():
            request = Serve(tuple(turns), plan.iterations[entrant], plan.primes[entrant], plan.extra[entrant])
            self._running[entrant].ask(request)
        os.write(self._pipes[orders[0][0]][1], TOKEN)
        answers = self._all_rounds(len(orders), self._limit(plan))
        for entrant, answer in answers.items():
            if dispatched := [then - start for start, then in zip(answer.began, answer.dispatched, strict=False)]:
                self._facts[entrant][DISPATCH_TIME] = median(dispatched) * 1e-9 / plan.iterations[entrant]
        return {entrant: list(zip(answer.began, answer.ended, strict=False)) for entrant, answer in answers.items()}

    def _limit(self, plan: Plan) -> float:
        """Return the time limit of the rounds in seconds."""
        seconds = planned_seconds(plan, {entrant: self._iteration[entrant] for entrant in self._running})
        return self._policy.overrun * seconds + self._policy.answer_seconds

    def _all_rounds(self, turns: int, limit: float) -> dict[int, Rounds]:
        """Receive the times of all entrants. The first one that sends anything else ends the wait for the others."""
        when, seconds = "while it was timed", self._policy.answer_seconds
        waiting = {process.channel: entrant for entrant, process in self._running.items()}
        deadline = time.monotonic() + limit
        answers: dict[int, Rounds] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            for channel in select.select(list(waiting), [], [], min(left, LOG_LOOK_SECONDS))[0]:
                entrant = waiting.pop(channel)
                answers[entrant] = self._answer(entrant, Rounds, when, seconds)
            for entrant in waiting.values():
                self._check_output(entrant)
        if waiting:
            # An entrant that waits for its turn looks like one that hangs. Given all its turns, it finishes.
            for entrant in waiting.values():
                os.write(self._pipes[entrant][1], TOKEN * turns)
            late = {entrant: self._answer(entrant, Rounds, when, limit) for entrant in waiting.values()}
            slowest = max(late, key=lambda entrant: sum(late[entrant].ended) - sum(late[entrant].began))
            raise EntrantFailed(slowest, WorkerHung(f"the rounds took longer than {limit:.3g} s"))
        return answers

    def _check_output(self, entrant: int) -> None:
        try:
            self._running[entrant].check_output()
        except BenchmarkError as error:
            raise EntrantFailed(entrant, error) from None

    def finish(self) -> None:
        """Let the benchmarks return and the processes end.

        Raises:
            EntrantFailed: A benchmark failed after it had been timed.
        """
        failures = []
        for entrant, process in self._running.items():
            process.ask(Stop())
            try:
                self._answer(entrant, Done, "after it had been timed", self._policy.answer_seconds)
                process.end(kill=False)
            except EntrantFailed as failed:
                failures.append(failed)
        self.kill()
        if failures:
            raise failures[0]

    def kill(self) -> None:
        for process in self._running.values():
            process.end(kill=True)
        self._running.clear()
        for pipe in self._pipes:
            for descriptor in pipe:
                os.close(descriptor)
        self._pipes = []

    def _answer(self, entrant: int, wanted: type[M], when: str, seconds: float) -> M:
        try:
            return self._running[entrant].answer(wanted, when, seconds)
        except (BenchmarkError, BenchmarkSkipped) as error:
            raise EntrantFailed(entrant, error) from None


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
