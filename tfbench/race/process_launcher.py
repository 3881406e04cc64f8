"""Launches in real processes: pools of zygotes, pinned children, turns handed over through pipes."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from tfbench.errors import BenchmarkError, BenchmarkSkipped, LaunchDisturbed, ProtocolError, WorkerDied, WorkerHung
from tfbench.gpus.monitor import GpuMonitor
from tfbench.metrics.catalog import DISPATCH_TIME, GPU_CLOCK
from tfbench.model import JSON, Case, Plan
from tfbench.policy import Policy
from tfbench.protocol import ChannelClosed, TimedOut, token_pipe
from tfbench.race.child import Process
from tfbench.race.interfaces import Entrant, OpenLaunch, Prepared
from tfbench.race.schedule import followers
from tfbench.race.zygote import Suite, Zygote
from tfbench.sides.side import Side
from tfbench.worker.block import TOKEN

Environment = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Processors:
    """Where workers run: ``one`` pinned core, or ``every`` one for a workload that asks."""

    one: tuple[int, ...]
    every: tuple[int, ...]

    def of(self, case: Case) -> tuple[int, ...]:
        return self.every if case.cpus == "all" else self.one


_SPAWNS = (
    "on the side {}, CUDA is initialised while benchmarks are imported (as tf.config.list_physical_devices does), so its "
    "launches are started anew instead of forked, seconds each; ask for devices within benchmarks and fixtures"
)


class ProcessLauncher:
    """Opens launches from pools of zygotes, one pool for each side and environment.

    The pools of two sides are never shared, not even when the sides are the same program, and the
    zygotes are numbered by pair: launches of pair ``p`` come from zygote ``p`` of each side.
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
        """What the user ought to know of how launches are made."""

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int]) -> None:
        """Start the zygotes of these pairs that are not there yet, as many at a time as there are processors.

        Raises:
            SideError: One of them does not start.
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
                    dead.close()  # one that has become a launch is ended with it
                zygote = Zygote(sides[name], dict(env), self._suite, self._policy)
                self._zygotes[name, env, pair] = zygote
                starting.append(zygote)
            for zygote in starting:
                zygote.wait_ready()
                if zygote.spawns and _SPAWNS.format(zygote.side.name) not in self.notes:
                    self.notes.append(_SPAWNS.format(zygote.side.name))

    def zygote(self, entrant: Entrant, pair: int) -> Zygote:
        """The zygote of this pair, started if need be.

        Raises:
            SideError: It does not start.
        """
        key = (entrant.side.name, entrant.case.env, pair)
        if key not in self._zygotes or not self._zygotes[key].alive:
            self.ready([(entrant.side, entrant.case.env)], [pair])
        return self._zygotes[key]

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        self.ready([(entrant.side, entrant.case.env) for entrant in entrants], [pair])
        cpus = sorted({cpu for entrant in entrants for cpu in self.processors.of(entrant.case)})
        on_gpu = any(entrant.case.levels.get("device") != "cpu" for entrant in entrants)
        pool = partial(self.zygote, pair=pair)
        return ProcessLaunch(entrants, pool, cpus, self._policy, self._gpu_monitor if on_gpu else None)

    def environment(self, side: Side) -> JSON:
        """What the side's processes say they are made of, a variant's own settings left out."""
        for (name, env, _), zygote in self._zygotes.items():
            if name == side.name and zygote.environment:
                settings = {key: value for key, value in zygote.environment["settings"].items() if key not in dict(env)}
                return {**zygote.environment, "settings": settings}
        return {}

    def import_seconds(self, side: Side) -> float | None:
        """What importing TensorFlow took the side's zygotes, their median; ``None`` if none did."""
        zygotes = (zygote for (name, _, _), zygote in self._zygotes.items() if name == side.name)
        found = [zygote.import_seconds for zygote in zygotes if zygote.import_seconds is not None]
        return median(found) if found else None

    def devices(self, side: Side) -> JSON:
        """The devices TensorFlow sees on this side, asked in a process that ends afterwards."""
        zygote = self.zygote(Entrant(Case("", "", ""), side), 0)
        process = Process.start(zygote, None, cpus=list(self.processors.every), threads=1)
        try:
            found: JSON = process.channel.receive("done", timeout=self._policy.answer_seconds)["devices"]
        except ProtocolError as error:
            _, output = process.end(kill=False)
            raise WorkerDied(f"asking TensorFlow for its devices failed ({error})", output) from error
        process.end(kill=False)
        return found

    def release(self, side: Side) -> None:
        """End what was started for a side: each of its zygotes keeps some 200 MB."""
        for key in [key for key in self._zygotes if key[0] == side.name]:
            self._zygotes.pop(key).close()

    def close(self) -> None:
        """End every zygote and what it forked."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()


class ProcessLaunch:
    """One fresh process for each entrant, on the same processors, one of them running at a time."""

    def __init__(
        self,
        entrants: Sequence[Entrant],
        zygote_of: Callable[[Entrant], Zygote],
        cpus: list[int],
        policy: Policy,
        gpu_monitor: GpuMonitor | None = None,
    ) -> None:
        self._gpu_monitor = gpu_monitor
        self._entrants = entrants
        self._zygote_of = zygote_of
        self._cpus = cpus
        self._policy = policy
        self._pipes = [token_pipe() for _ in entrants]
        self._running: dict[int, Process] = {}
        self._facts: dict[int, JSON] = {}

    def prepare(self, entrant: int) -> Prepared:
        zygote, case = self._zygote_of(self._entrants[entrant]), self._entrants[entrant].case
        if (reason := zygote.skip_reason(case)) is not None:
            raise BenchmarkError(reason)
        inbox = self._pipes[entrant][0]
        outboxes = [write for _, write in self._pipes]
        policy = self._policy
        self._running[entrant] = Process.start(
            zygote,
            case,
            [inbox, *outboxes],
            own=entrant,
            cpus=self._cpus,
            threads=len(self._cpus),
            warmup=policy.warmup,
        )
        answer = self._answer(entrant, "prepared", "failed", "skipped", "done", seconds=policy.setup_seconds)
        if answer["kind"] == "prepared":
            self._facts[entrant] = answer["facts"]
            return Prepared(float(answer["iteration"]), answer["facts"], bool(answer["on_device"]))
        _, output = self._end(entrant, kill=False)
        if answer["kind"] == "skipped":
            raise BenchmarkSkipped(answer["message"])
        raise BenchmarkError(answer.get("message", "it ended early"), answer.get("trace") or output)

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        seconds = {}
        for entrant, blocks in self._guarded(plan, orders).items():
            times = [end - start for start, end in blocks]
            if len(times) != len(orders) or not all(isinstance(time, int) and time > 0 for time in times):
                raise self._broke(entrant, BenchmarkError("its blocks have no usable time: the clock stood still"))
            seconds[entrant] = [time * 1e-9 / plan.iterations[entrant] for time in times]
        return seconds

    def _guarded(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, int]]]:
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
        """Run the rounds; when each block of each entrant began and ended, in nanoseconds of one clock.

        Raises:
            BenchmarkError: A process died or hung; its ``entrant`` says whose.
        """
        follow = followers(orders)
        for entrant, turns in follow.items():
            self._ask(
                entrant, "serve", follow=turns, iterations=plan.iterations[entrant],
                prime=plan.primes[entrant], extra=plan.extra[entrant],
            )  # fmt: skip
        os.write(self._pipes[orders[0][0]][1], TOKEN)
        self._wait_for_all(list(follow))
        answers = {entrant: self._answer(entrant, "rounds", seconds=self._policy.answer_seconds) for entrant in follow}
        for entrant, answer in answers.items():
            if handed := [then - start for start, then in zip(answer["began"], answer["dispatched"], strict=False)]:
                self._facts[entrant][DISPATCH_TIME] = median(handed) * 1e-9 / plan.iterations[entrant]
        return {
            entrant: list(zip(answer["began"], answer["ended"], strict=True)) for entrant, answer in answers.items()
        }

    def close(self) -> None:
        failures = []
        for entrant in list(self._running):
            self._ask(entrant, "stop")
            answer = self._answer(entrant, "done", "failed", "skipped", seconds=self._policy.answer_seconds)
            if answer["kind"] != "done":
                text = f"after it had been timed: {answer['message']}"
                failures.append(self._broke(entrant, BenchmarkError(text, answer.get("trace", ""))))
            self._end(entrant, kill=False)
        self.kill()
        if failures:
            raise failures[0]

    def kill(self) -> None:
        for entrant in list(self._running):
            self._end(entrant, kill=True)
        for pipe in self._pipes:
            for descriptor in pipe:
                os.close(descriptor)
        self._pipes = []

    def _ask(self, entrant: int, kind: str, **fields: Any) -> None:
        try:
            self._running[entrant].channel.send(kind, **fields)
        except ChannelClosed:
            raise self._gone(entrant) from None

    def _answer(self, entrant: int, *kinds: str, seconds: float) -> JSON:
        try:
            return self._running[entrant].channel.receive(*kinds, timeout=seconds)
        except ChannelClosed:
            raise self._gone(entrant) from None
        except TimedOut:
            _, output = self._end(entrant, kill=True)
            text = f"it did not answer within {seconds:g} s and was killed"
            raise self._broke(entrant, WorkerHung(text, output)) from None

    def _wait_for_all(self, entrants: list[int]) -> None:
        """Until each has said something, or one is gone, which the others would wait for without end."""
        channels = {self._running[entrant].channel: entrant for entrant in entrants}
        limit = self._policy.launch_seconds * len(entrants) + self._policy.answer_seconds
        while channels:
            speaking = select.select(list(channels), [], [], limit)[0]
            if not speaking:
                return  # whoever is asked first is reported as hung
            for channel in speaking:
                entrant = channels.pop(channel)
                if channel.ended():
                    raise self._gone(entrant)

    def _gone(self, entrant: int) -> BenchmarkError:
        status, output = self._end(entrant, kill=False)
        how = "its process ended" if status is None else f"its process died ({_status_text(status)})"
        return self._broke(entrant, WorkerDied(how, output))

    def _broke(self, entrant: int, error: BenchmarkError) -> BenchmarkError:
        error.entrant = entrant
        return error

    def _end(self, entrant: int, *, kill: bool) -> tuple[int | None, str]:
        """As `Process.end`; it no longer counts as running."""
        return self._running.pop(entrant).end(kill=kill)


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def processors(chosen: Sequence[int] | None, available: Mapping[int, None] | Sequence[int]) -> Processors:
    """The processors of the workers: those chosen, or the last one alone.

    The last, since a system's interrupts are served by the first ones.
    """
    every = tuple(sorted(available))
    if chosen:
        return Processors(one=tuple(chosen), every=tuple(chosen))
    return Processors(one=every[-1:], every=every)
