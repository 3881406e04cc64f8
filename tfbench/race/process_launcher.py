"""Launches in real processes: pools of zygotes, pinned processes, and turns that pass through pipes."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tfbench.errors import BenchmarkError, BenchmarkSkipped, LaunchDisturbed, WorkerHung
from tfbench.gpus.monitor import GpuMonitor
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
    Stop,
    TimeCase,
)  # fmt: skip
from tfbench.race.child import Process
from tfbench.race.interfaces import Entrant, EntrantFailed, OpenLaunch
from tfbench.race.schedule import followers
from tfbench.race.zygote import Suite, Zygote
from tfbench.sides.side import Side
from tfbench.worker.block import TOKEN

Environment = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Processors:
    """Processors of the workers: ``one`` pinned core, or ``every`` one for a workload that asks."""

    one: tuple[int, ...]
    every: tuple[int, ...]

    def of(self, case: Case) -> tuple[int, ...]:
        """Return the processors that the case runs on."""
        return self.every if case.cpus == "all" else self.one


_SPAWNS = (
    "on the side {}, CUDA is initialised while benchmarks are imported (as tf.config.list_physical_devices does), so its "
    "launches are started anew instead of forked, which takes seconds each; list devices inside benchmarks and fixtures"
)


class ProcessLauncher:
    """Opens launches from pools of zygotes, one pool per side and environment.

    Two sides never share a pool, even if they are the same program.
    Zygotes are numbered by pair: launches of pair ``p`` come from zygote ``p`` of each side.
    """

    def __init__(
        self, suite: Suite, policy: Policy, processors: Processors, gpu_monitor: GpuMonitor | None = None
    ) -> None:
        self._gpu_monitor = gpu_monitor
        self._suite = suite
        self._policy = policy
        self.processors = processors
        self._zygotes: dict[tuple[str, Environment, int], Zygote] = {}
        self.notes: list[str] = []
        """Warnings about the way launches are made, for the user."""

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int]) -> None:
        """Start the missing zygotes of these pairs, as many at a time as there are processors.

        Raises:
            SideError: A zygote does not start.
        """
        numbers, wanted = list(pairs), list(wanted)
        missing = [
            (side, env, pair)
            for side, env in dict.fromkeys((side.name, env) for side, env in wanted)
            for pair in numbers
            if (zygote := self._zygotes.get((side, env, pair))) is None or not zygote.alive
        ]
        sides = {side.name: side for side, _ in wanted}
        at_once = max(1, len(self.processors.every))
        for first in range(0, len(missing), at_once):
            starting = []
            for name, env, pair in missing[first : first + at_once]:
                if (dead := self._zygotes.get((name, env, pair))) is not None and not dead.used:
                    dead.close()  # a zygote that became a launch ends with it
                zygote = Zygote(sides[name], dict(env), self._suite, self._policy)
                self._zygotes[name, env, pair] = zygote
                starting.append(zygote)
            for zygote in starting:
                zygote.wait_ready()
                if zygote.spawns and _SPAWNS.format(zygote.side.name) not in self.notes:
                    self.notes.append(_SPAWNS.format(zygote.side.name))

    def zygote(self, entrant: Entrant, pair: int) -> Zygote:
        """Return the zygote of this pair, and start it if necessary.

        Raises:
            SideError: The zygote does not start.
        """
        key = (entrant.side.name, entrant.case.env, pair)
        if key not in self._zygotes or not self._zygotes[key].alive:
            self.ready([(entrant.side, entrant.case.env)], [pair])
        return self._zygotes[key]

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
        return ProcessLaunch(self, entrants, pair, self._policy, self._gpu_monitor if on_gpu else None)

    def environment(self, side: Side) -> JSON:
        """Return the environment info of a side, without the settings of variants."""
        for (name, env, _), zygote in self._zygotes.items():
            if name == side.name and zygote.environment:
                settings = {key: value for key, value in zygote.environment["settings"].items() if key not in dict(env)}
                return {**zygote.environment, "settings": settings}
        return {}

    def import_seconds(self, side: Side) -> float | None:
        """Return the median import time of TensorFlow in the side's zygotes, ``None`` if none imports it."""
        zygotes = (zygote for (name, _, _), zygote in self._zygotes.items() if name == side.name)
        found = [zygote.import_seconds for zygote in zygotes if zygote.import_seconds is not None]
        return median(found) if found else None

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
        """End the zygotes of a side, each of which holds about 200 MB."""
        for key in [key for key in self._zygotes if key[0] == side.name]:
            self._zygotes.pop(key).close()

    def close(self) -> None:
        """End every zygote and the processes it forked."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()


class ProcessLaunch:
    """A fresh process for each entrant, all on the same processors, of which one runs at a time."""

    def __init__(
        self,
        launcher: ProcessLauncher,
        entrants: Sequence[Entrant],
        pair: int,
        policy: Policy,
        gpu_monitor: GpuMonitor | None = None,
    ) -> None:
        self._launcher = launcher
        self._entrants = entrants
        self._pair = pair
        self._policy = policy
        self._gpu_monitor = gpu_monitor
        self._cpus = tuple(sorted({cpu for entrant in entrants for cpu in launcher.processors.of(entrant.case)}))
        self._pipes = [os.pipe() for _ in entrants]
        """The inbox of each entrant: the process that reads a byte has the turn."""
        self._running: dict[int, Process] = {}
        self._facts: dict[int, JSON] = {}

    def prepare(self, entrant: int) -> Prepared:
        request = TimeCase(self._cpus, self._entrants[entrant].case.name, entrant, self._policy.warmup)
        pipes = [self._pipes[entrant][0], *(outbox for _, outbox in self._pipes)]
        process = self._launcher.start(self._entrants[entrant], self._pair, request, pipes)
        self._running[entrant] = process
        try:
            prepared = process.answer(Prepared, "", self._policy.setup_seconds)
        except (BenchmarkError, BenchmarkSkipped):
            del self._running[entrant]
            raise
        self._facts[entrant] = prepared.facts
        return prepared

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
        answers = self._all_rounds(len(orders))
        for entrant, answer in answers.items():
            if dispatched := [then - start for start, then in zip(answer.began, answer.dispatched, strict=False)]:
                self._facts[entrant][DISPATCH_TIME] = median(dispatched) * 1e-9 / plan.iterations[entrant]
        return {entrant: list(zip(answer.began, answer.ended, strict=False)) for entrant, answer in answers.items()}

    def _all_rounds(self, turns: int) -> dict[int, Rounds]:
        """Receive the times of all entrants. The first one that sends anything else ends the wait for the others."""
        when, seconds = "while it was timed", self._policy.answer_seconds
        waiting = {process.channel: entrant for entrant, process in self._running.items()}
        limit = self._policy.launch_seconds * len(waiting) + seconds
        answers: dict[int, Rounds] = {}
        while waiting:
            for channel in (ready := select.select(list(waiting), [], [], limit)[0]):
                entrant = waiting.pop(channel)
                answers[entrant] = self._answer(entrant, Rounds, when, seconds)
            if not ready:
                break
        if waiting:
            # An entrant that waits for its turn looks like one that hangs. Given all its turns, it finishes.
            for entrant in waiting.values():
                os.write(self._pipes[entrant][1], TOKEN * turns)
            late = {entrant: self._answer(entrant, Rounds, when, seconds) for entrant in waiting.values()}
            slowest = max(late, key=lambda entrant: sum(late[entrant].ended) - sum(late[entrant].began))
            raise EntrantFailed(slowest, WorkerHung(f"the rounds took longer than {limit:g} s"))
        return answers

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
    return Processors(one=every[-1:], every=every)
