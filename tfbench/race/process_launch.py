"""One launch in real processes, whose turns pass through pipes."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from statistics import median

from tfbench import protocol
from tfbench.errors import BenchmarkError, BenchmarkSkipped, LaunchDisturbed, WorkerHung
from tfbench.gpus.monitor import GpuMonitor
from tfbench.metrics.catalog import DISPATCH_TIME, GPU_CLOCK
from tfbench.model import DOUBT, HANDED, Plan
from tfbench.policy import Policy, preset
from tfbench.protocol import TOKEN, Done, LaunchRequest, M, Prepared
from tfbench.race import launch as launching
from tfbench.race.timer import Load, timer
from tfbench.race.zygote import LOG_LOOK_SECONDS, Process
from tfbench.stats.rounds import without_neighbours

OVERRUN = 3.0
"""The rounds of a launch may take this many times their planned time, besides `answer_seconds`. Neighbours that use the
processor slow a launch down, rarely by more."""

Start = Callable[[launching.Entrant, int, LaunchRequest, Sequence[int]], Process]
"""Forks the process of an entrant from the zygote of a pair, with these open files."""


@dataclass(eq=False)
class ProcessLaunch:
    """A fresh process for each entrant, all on the same processors, of which one runs at a time."""

    start: Start
    entrants: Sequence[launching.Entrant]
    pair: int
    policy: Policy
    cpus: tuple[int, ...]
    places: Sequence[tuple[int, ...]]
    """Processors on which processes prepare at the same time, each on one entry."""
    gpu_monitor: GpuMonitor | None
    seed: int
    compiling: tuple[int, ...] = ()
    """Processors of first calls on a GPU, which compile; empty elsewhere."""
    waits: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Case, side and specification -> what the step waits by itself, as `Prepared.waiting`: the least of all launches so far.

    Each launch has a bound from above, which neighbours of its warm-up raise."""
    _running: dict[int, Process] = field(default_factory=dict, init=False)
    waiting: list[int] = field(default_factory=list, init=False)
    """Entrants that are not prepared yet, in the order of their start."""
    _met: int = field(default=0, init=False)
    """How often they have waited for each other."""
    _since: float = field(default=0.0, init=False)
    """When the processes were last told to go on. All of them share the time limit."""
    _results: dict[int, Prepared | launching.Failure] = field(default_factory=dict, init=False)
    """Results of the preparation that `prepare` has not returned."""
    _ready: dict[int, Prepared] = field(default_factory=dict, init=False)
    _least: dict[int, dict[int, float]] = field(default_factory=dict, init=False)
    """Entrant -> round whose time without neighbours is not certain -> the least that it can be, in nanoseconds."""
    _used: int = field(default=0, init=False)
    """Processor time of all processes in the rounds, in nanoseconds."""
    _meeting: tuple[int, ...] = field(default=(), init=False)
    _loads: dict[int, Load] = field(default_factory=dict, init=False)
    """Entrant -> load of its processor while it made its first call in turn."""
    _scale: dict[int, float] = field(default_factory=dict, init=False)
    """Factor that takes the time of neighbours from the times of a step that runs once."""

    def __post_init__(self) -> None:
        self._pipes = [os.pipe() for _ in self.entrants]
        """The inbox of each entrant: the process that reads a byte has the turn."""

    def prepare(
        self,
        entrants: Sequence[int],
        brief: bool = False,
        together: bool = True,
        ahead: ProcessLaunch | None = None,
        equal: bool = False,
    ) -> dict[int, Prepared | launching.Failure]:
        """Start and warm up the processes of these entrants, in this order. If one cannot run here, the others can go on.

        Args:
            brief: Do not warm them up: the launch is for the first call and the peak of memory.
            together: Have two sides make their first calls in turn. Otherwise sides that could do so report none.
            ahead: The next launch of the same entrants. It makes its first calls at the same time where two processors
                are free for it, and then waits for its own ``prepare``.
            equal: Have all make equally many calls, see `settling_calls`.
        """
        warmup = self.policy.warmup(brief)
        sides = {entrant.side.name for entrant in self.entrants}
        # Whether two sides can make their first calls in turn on one processor.
        two = len(sides) == len(self.entrants) == 2 <= len(self.places) and len(self.cpus) == 1
        together = together and two
        results: dict[int, Prepared | launching.Failure] = {}
        for first in range(0, len(entrants), len(self.places)):
            if WorkerHung in map(type, results.values()) and len(sides) > 1:
                break  # one side is no race, so that the other one need not be waited for as well
            batch = entrants[first : first + len(self.places)]
            if not self.began:
                self._begin(batch, warmup, self.cpus if together else ())
                if together and ahead is not None:
                    ahead._begin(batch[::-1], warmup, self.places[1])
                if together:
                    _call_first(self, *filter(None, [ahead]))
            results |= self._prepared(apart=two and not together)
        if (len(self.places) > 1 or equal) and not brief:
            calls = launching.settling_calls(self._ready, equal)
            elsewhere = tuple(cpu for place in self.places for cpu in place if cpu not in self.cpus)
            for entrant, process in list(self._running.items()):
                process.ask(protocol.Settle(self.cpus, calls.get(entrant, 0), elsewhere))
                settled = self._reply(entrant, protocol.Settled, "while it was warmed up", self.policy.answer_seconds)
                if not isinstance(settled, protocol.Settled):
                    results[entrant] = settled
                elif settled.waiting is not None:
                    results[entrant] = self._ready[entrant] = replace(self._ready[entrant], waiting=settled.waiting)
        return results

    @property
    def began(self) -> bool:
        """Whether processes have started to prepare whose results `prepare` has not returned."""
        return bool(self.waiting or self._results)

    def _begin(self, batch: Sequence[int], warmup: tuple[float, float, float, float], meeting: tuple[int, ...]) -> None:
        """Start the processes of these entrants, each on a place of its own; first calls are made in turn on ``meeting``."""
        self._since, self._meeting = time.monotonic(), meeting
        how = warmup, self.seed, meeting, self.compiling
        for entrant, place in zip(batch, self.places, strict=False):
            who, pipes = self.entrants[entrant], [self._pipes[entrant][0], *(outbox for _, outbox in self._pipes)]
            try:
                request = protocol.TimeCase(place, who.case.name, entrant, *how)
                self._running[entrant] = self.start(who, self.pair, request, pipes)
                self.waiting.append(entrant)
            except BenchmarkError as error:
                self._results[entrant] = error

    def _prepared(self, apart: bool) -> dict[int, Prepared | launching.Failure]:
        """Wait until the processes that have begun are prepared. ``apart`` drops first calls that were not made in turn."""
        while self.waiting:
            if self._met:
                self.go_on()
            self.meet()
        results, self._results, self._met = self._results, {}, 0
        ready = {entrant: prepared for entrant, prepared in results.items() if isinstance(prepared, Prepared)}
        for entrant, prepared in ready.items():
            foreign = self._loads[entrant].foreign(prepared.first_call[2]) if prepared.first_call else 0.0
            results[entrant] = self._ready[entrant] = shortened = (
                launching.without_first_call(prepared) if apart else launching.alone(prepared, foreign)
            )
            self._scale[entrant] = shortened.iteration / prepared.iteration if prepared.iteration else 1.0
        return results

    def meet(self) -> None:
        """Wait until each process waits for the other one, or is prepared."""
        self._met += 1
        for entrant in tuple(self.waiting):
            self._wait_for(entrant)

    def _wait_for(self, entrant: int) -> None:
        if entrant in self.waiting:
            loops = self.entrants[entrant].case.alone
            hung = "its method must take less time" if loops else "its set-up and first call must take less time"
            hung = "the step has not returned from its first call" if self._met > 1 else hung
            limit = preset("strict").setup_seconds
            hung += f", or give --policy strict, which waits {limit:g} s" if self.policy.setup_seconds < limit else ""
            waited = time.monotonic() - self._since
            reply = self._reply(entrant, protocol.Preparing, "", self.policy.setup_seconds, waited, hung)
            if isinstance(reply, Prepared | launching.Failure):
                self._results[entrant] = reply
                self.waiting.remove(entrant)

    def go_on(self, *entrants: int) -> None:
        """Let these processes that wait for each other go on at once, all of them by default."""
        self._since = time.monotonic()
        for entrant in entrants or self.waiting:
            if entrant in self.waiting:
                self._running[entrant].ask(protocol.Begin())

    def begin_call(self, entrant: int) -> None:
        """Let a process that waits make its first call."""
        self._loads[entrant] = Load(self._meeting)
        self.go_on(entrant)

    def end_call(self, entrant: int) -> None:
        """Wait until a process has made its first call."""
        self._met = 2  # before the call, and after it
        self._wait_for(entrant)
        self._loads[entrant].end()
        if isinstance(self._results.get(entrant), WorkerHung):
            # One side is no race, so that the other one need not be waited for as well.
            for other in tuple(self.waiting):
                self.waiting.remove(other)
                self._running.pop(other).end(kill=True)

    def _reply(
        self, entrant: int, wanted: type[M], when: str, seconds: float, waited: float = 0.0, hung: str = ""
    ) -> M | launching.Failure:
        """Return the answer of an entrant, or the failure with which it leaves the launch."""
        try:
            return self._running[entrant].answer(wanted, when, seconds, waited, hung)
        except (BenchmarkError, BenchmarkSkipped) as error:
            del self._running[entrant]
            return error

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        """Run all rounds and let the processes finish; return the seconds of an iteration for each entrant and round.

        Raises `EntrantFailed` if an entrant breaks or skips itself, during its rounds or after them, and
        `LaunchDisturbed` if a disturbance from outside makes the times useless.
        """
        load = Load(self.cpus)
        blocks = self._watched_blocks(plan, orders)
        load.end()
        foreign = load.foreign(self._used) if not plan.sliced else 0.0
        times = {entrant: [float(end - begin) for begin, end in own] for entrant, own in blocks.items()}
        for entrant, own in times.items():
            if len(own) != len(orders) * plan.blocks or min(own) <= 0:
                error = BenchmarkError("the blocks have no usable time: the benchmark's clock stood still")
                raise launching.EntrantFailed(entrant, error)
        # Only such blocks begin and end by the system's clock, and contain nothing that is not timed.
        by_system = not plan.sliced and all(prepared.waiting is not None for prepared in self._ready.values())
        if by_system and (known := timer()):
            times = known.shortened(blocks)
        self.finish()
        if not any(prepared.on_device for prepared in self._ready.values()):
            times = self._without_neighbours(times, foreign)
        # Seconds of an iteration in a nanosecond of a block.
        units = {entrant: 1e-9 * self._scale[entrant] / plan.iterations[entrant] for entrant in times}
        return {entrant: [time * units[entrant] for time in own] for entrant, own in times.items()}

    def _without_neighbours(self, times: dict[int, list[float]], foreign: float) -> dict[int, list[float]]:
        """Return the times of blocks without neighbours, which ran for ``foreign`` nanoseconds, and note their doubt."""
        share = foreign / max(1.0, sum(map(sum, times.values())))
        quiet = {}
        for entrant, most in times.items():
            least = self._least.get(entrant, {}) if len(self.cpus) == 1 else dict.fromkeys(range(len(most)), 0.0)
            waits, who = self._ready[entrant].waiting, self.entrants[entrant]
            if waits is not None:
                name = who.case.name, who.side.name, who.side.spec
                waits = self.waits[name] = min(waits, self.waits.get(name, waits))
            quiet[entrant], doubt = without_neighbours(most, least, waits, share)
            if doubt:
                self._ready[entrant].facts[DOUBT] = doubt
            if not (share and least):
                self._ready[entrant].facts.pop(HANDED, None)
        return quiet

    def _watched_blocks(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, int]]]:
        if self.gpu_monitor is None:
            return self.blocks(plan, orders)
        who = tuple((entrant.case.name, entrant.side.name) for entrant in self.entrants)
        with self.gpu_monitor.watching(who) as launch_monitor:
            blocks = self.blocks(plan, orders)
        if launch_monitor.cause:
            raise LaunchDisturbed(launch_monitor.cause)
        if launch_monitor.sm_clock is not None:
            for entrant in blocks:
                self._ready[entrant].facts[GPU_CLOCK] = launch_monitor.sm_clock
        return blocks

    def blocks(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, int]]]:
        """Run the rounds; return the begin and end of each block by entrant, in nanoseconds.

        The clock is the same for all entrants if they take turns. Sliced rounds have each process's own time.
        Raises `EntrantFailed` if an entrant breaks or skips itself.
        """
        if plan.sliced:
            for entrant, process in self._running.items():
                others = tuple(other for other in self._running if other != entrant)
                places = launching.starting_places(orders, entrant)
                slow = self._slow_calls(plan, entrant)
                process.ask(protocol.ServeSliced(places, others, plan.iterations[entrant], plan.extra[entrant], slow))
        else:
            groups = self._stopped_groups(plan.works_on)
            for entrant, turns in launching.followers(orders).items():
                drain = plan.drain[entrant] if plan.drain and groups else 0.0
                request = protocol.Serve(
                    tuple(turns), plan.iterations[entrant], plan.primes[entrant], plan.extra[entrant], groups,
                    self._slow_calls(plan, entrant), drain, plan.blocks,
                )  # fmt: skip
                self._running[entrant].ask(request)
            os.write(self._pipes[orders[0][0]][1], TOKEN)
        whole = {entrant: prepared.whole for entrant, prepared in self._ready.items() if entrant in self._running}
        limit = OVERRUN * launching.planned_seconds(plan, whole) + self.policy.answer_seconds
        answers = self._all_rounds(len(orders) * len(self._running), limit)
        for entrant, answer in answers.items():
            if dispatched := [then - start for start, then in zip(answer.began, answer.dispatched, strict=False)]:
                self._ready[entrant].facts[DISPATCH_TIME] = median(dispatched) * 1e-9 / plan.iterations[entrant]
            self._least[entrant] = dict(answer.least)
        self._used = sum(answer.used for answer in answers.values())
        return {entrant: list(zip(answer.began, answer.ended, strict=False)) for entrant, answer in answers.items()}

    def _slow_calls(self, plan: Plan, entrant: int) -> tuple[float, ...]:
        slow = plan.slow[entrant] if plan.slow else None
        if slow is None:
            return ()
        return slow.share, slow.factor, self._ready[entrant].iteration * (slow.factor - 1) if slow.waits else 0.0

    def _stopped_groups(self, works_on: bool) -> tuple[int, ...]:
        """Return the process groups to stop in the turns of others, if a waiting process could use their processors.

        TFLite's threads spin for milliseconds after a turn, on a processor that the next side may need. Threads that
        prefetch would work during another side's turn, and their own side would seem faster than it is.
        """
        alone = len(self.cpus) == 1 and not works_on
        if alone or any(prepared.on_device for prepared in self._ready.values()):
            return ()
        processes = map(self._running.get, range(len(self.entrants)))
        return tuple(process.pid if process else 0 for process in processes)

    def _all_rounds(self, turns: int, limit: float) -> dict[int, protocol.Rounds]:
        """Receive the times of all entrants. The first one that sends anything else ends the wait for the others."""
        when, seconds = "while it was timed", self.policy.answer_seconds
        waiting = {process.channel: entrant for entrant, process in self._running.items()}
        deadline = time.monotonic() + limit
        answers: dict[int, protocol.Rounds] = {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            for channel in select.select(list(waiting), [], [], min(left, LOG_LOOK_SECONDS))[0]:
                entrant = waiting.pop(channel)
                answers[entrant] = self._answer(entrant, protocol.Rounds, when, seconds)
            for entrant in waiting.values():
                try:
                    self._running[entrant].check_output()
                except BenchmarkError as error:
                    raise launching.EntrantFailed(entrant, error) from None
        if waiting:
            # An entrant that waits for its turn looks like one that hangs. Given all its turns, it finishes.
            for entrant in waiting.values():
                os.write(self._pipes[entrant][1], TOKEN * turns)
                self._running[entrant].resume()
            late = {entrant: self._answer(entrant, protocol.Rounds, when, limit) for entrant in waiting.values()}
            slowest = max(late, key=lambda entrant: sum(late[entrant].ended) - sum(late[entrant].began))
            raise launching.EntrantFailed(slowest, WorkerHung(f"the rounds took longer than {limit:.3g} s"))
        return dict(sorted(answers.items()))

    def finish(self) -> None:
        """Let the benchmarks return and the processes end. Raises `EntrantFailed` if one fails after its timing."""
        failures = []
        for process in self._running.values():  # all before the first answer, so that they end at the same time
            process.ask(protocol.Stop())
        for entrant, process in self._running.items():
            try:
                done = self._answer(entrant, Done, "after it had been timed", self.policy.answer_seconds)
                self._ready[entrant].facts.update(done.facts)
                process.end(kill=False)
            except launching.EntrantFailed as failed:
                failures.append(failed)
        self.kill()
        if failures:
            raise failures[0]

    def kill(self) -> None:
        """End all processes at once. It never raises."""
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
            raise launching.EntrantFailed(entrant, error) from None


def _call_first(*launches: ProcessLaunch) -> None:
    """Have the processes of several launches make their first calls in turn, each launch on a processor of its own.

    None starts before all are set up, and none goes on before all have ended.
    """
    for launch in launches:
        launch.meet()
    for entrants in zip_longest(*(tuple(launch.waiting) for launch in launches)):
        turn = [(launch, entrant) for launch, entrant in zip(launches, entrants, strict=True) if entrant is not None]
        for launch, entrant in turn:
            launch.begin_call(entrant)
        for launch, entrant in turn:
            launch.end_call(entrant)
