"""Launches in real processes: pools of zygotes, processors, and the turns of a launch, which pass through pipes."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tfbench import protocol
from tfbench.errors import BenchmarkError, BenchmarkSkipped, LaunchDisturbed, SideError, UsageError, WorkerHung
from tfbench.gpus.monitor import GpuMonitor
from tfbench.gpus.selection import has_driver, visible
from tfbench.metrics.catalog import DISPATCH_TIME, GPU_CLOCK
from tfbench.model import JSON, WAITED, Case, Plan
from tfbench.policy import Policy
from tfbench.protocol import TOKEN, DevicesListed, Done, LaunchRequest, ListDevices, M, Prepared
from tfbench.race.launch import (
    Entrant,
    EntrantFailed,
    Failure,
    alone,
    followers,
    planned_seconds,
    settling_calls,
    starting_places,
    time_in_queue,
    without_first_call,
)
from tfbench.race.timer import Phase, Stopwatch, timer
from tfbench.race.workers import Scratch, Suite, check_threads, worker_environment
from tfbench.race.zygote import LOG_LOOK_SECONDS, Ancestor, Process, Zygote
from tfbench.sides.spec import Side

# One launch in real processes, whose turns pass through pipes


Start = Callable[[Entrant, int, LaunchRequest, Sequence[int]], Process]
"""Forks the process of an entrant from the zygote of a pair, with these open files."""
_NO_CLOCK = "the clock of the GPU is not read in each block ({}), so no verdict has a second opinion in its cycles"
_MEETINGS = 2
"""Points at which a process waits for the other side: before and after its first call."""


@dataclass(eq=False)
class ProcessLaunch:
    """A fresh process for each entrant, all on the same processors, of which one runs at a time."""

    start: Start
    entrants: Sequence[Entrant]
    pair: int
    policy: Policy
    cpus: tuple[int, ...]
    places: Sequence[tuple[int, ...]]
    """Processors on which processes prepare at the same time, each on one entry."""
    gpu_monitor: GpuMonitor | None
    seed: int
    note: Callable[[str], None] = lambda text: None
    """Keeps a warning for the user."""
    compiling: tuple[int, ...] = ()
    """Processors of first calls on a GPU, which compile; empty elsewhere."""
    preempted: dict[int, dict[int, float]] = field(default_factory=dict, init=False)
    """Entrant -> round during which its processor was taken from it -> processor seconds of an iteration."""
    clocks: dict[int, tuple[float, ...]] = field(default_factory=dict, init=False)
    """Entrant -> mean clock of the GPU in each of its rounds, MHz. An entrant whose clock was not read is absent."""
    _running: dict[int, Process] = field(default_factory=dict, init=False)
    _waiting: list[int] = field(default_factory=list, init=False)
    """Entrants that are not prepared yet."""
    _met: int = field(default=0, init=False)
    """How often they have waited for each other."""
    _since: float = field(default=0.0, init=False)
    """When the processes were last told to go on. All of them share the time limit."""
    _results: dict[int, Prepared | Failure] = field(default_factory=dict, init=False)
    """Results of the preparation that `prepare` has not returned."""
    _ready: dict[int, Prepared] = field(default_factory=dict, init=False)
    _scale: dict[int, float] = field(default_factory=dict, init=False)
    """Factor that takes the time in the queue from the times of a step that runs once."""

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
    ) -> dict[int, Prepared | Failure]:
        """Start and warm up the processes of these entrants, in this order. If one cannot run here, the others can go on.

        Args:
            brief: Do not warm them up: the launch is for the first call and the peak of memory.
            together: Have two sides make their first calls at once. Otherwise sides that could do so report none.
            ahead: The next launch of the same entrants. It makes its first calls at the same time where two processors
                are free for it, and then waits for its own ``prepare``.
            equal: Have all make equally many calls, see `settling_calls`.
        """
        warmup = self.policy.warmup(brief)
        two = self._are_two()
        together = together and two
        results: dict[int, Prepared | Failure] = {}
        for first in range(0, len(entrants), len(self.places)):
            if WorkerHung in map(type, results.values()) and self.entrants[0].side.name != self.entrants[-1].side.name:
                break  # one side is no race, so that the other one need not be waited for as well
            batch = entrants[first : first + len(self.places)]
            if not self.began:
                self._begin(batch, warmup, self.cpus if together else ())
                if together and ahead is not None:
                    ahead._begin(batch[::-1], warmup, self.places[1])
                    _call_first(self, ahead)
            results |= self._prepared(apart=two and not together)
        if (len(self.places) > 1 or equal) and not brief:
            calls = settling_calls(self._ready, self.policy, equal)
            for entrant, process in list(self._running.items()):
                process.ask(protocol.Settle(self.cpus, calls.get(entrant, 0)))
                settled = self._reply(entrant, protocol.Settled, "while it was warmed up", self.policy.answer_seconds)
                if not isinstance(settled, protocol.Settled):
                    results[entrant] = settled
        return results

    @property
    def began(self) -> bool:
        """Whether processes have started to prepare whose results `prepare` has not returned."""
        return bool(self._waiting or self._results)

    def _begin(self, batch: Sequence[int], warmup: tuple[float, float, float], meeting: tuple[int, ...]) -> None:
        """Start the processes of these entrants, each on a place of its own; first calls are made at once on ``meeting``."""
        self._since = time.monotonic()
        for entrant, place in zip(batch, self.places, strict=False):
            try:
                self._start(entrant, place, warmup, meeting)
                self._waiting.append(entrant)
            except BenchmarkError as error:
                self._results[entrant] = error

    def _start(
        self, entrant: int, cpus: tuple[int, ...], warmup: tuple[float, float, float], meeting: tuple[int, ...]
    ) -> None:
        who, own, seed = self.entrants[entrant], self._pipes[entrant][0], self.seed
        cold, compiling = self.policy.cold, self.compiling
        request = protocol.TimeCase(cpus, who.case.name, entrant, warmup, seed, cold, meeting, compiling)
        self._running[entrant] = self.start(who, self.pair, request, [own, *(outbox for _, outbox in self._pipes)])

    def _are_two(self) -> bool:
        """Whether these are two sides that can make their first calls at once on one processor."""
        sides = {entrant.side.name for entrant in self.entrants}
        two = len(sides) == len(self.entrants) == 2 <= len(self.places)
        return two and len(self.cpus) == 1

    def _prepared(self, apart: bool) -> dict[int, Prepared | Failure]:
        """Wait until the processes that have begun are prepared. ``apart`` drops first calls that were not made at once."""
        while self._waiting and self._met <= _MEETINGS:
            if self._met:
                self.go_on()
            self.meet()
        for entrant in self._waiting:
            self._running.pop(entrant).end(kill=True)
            self._results[entrant] = BenchmarkError("the process waits for the other side more often than it should")
        self._waiting.clear()
        results, self._results, self._met = self._results, {}, 0
        ready = {entrant: prepared for entrant, prepared in results.items() if isinstance(prepared, Prepared)}
        queue = time_in_queue(
            {entrant: prepared.first_call for entrant, prepared in ready.items() if prepared.first_call}
        )
        for entrant, prepared in ready.items():
            results[entrant] = self._ready[entrant] = shortened = (
                without_first_call(prepared) if apart else alone(prepared, queue)
            )
            self._scale[entrant] = shortened.iteration / prepared.iteration if prepared.iteration else 1.0
        return results

    def meet(self) -> None:
        """Wait until each process waits for the other one, or is prepared."""
        self._met += 1
        for entrant in tuple(self._waiting):
            loops = self.entrants[entrant].case.alone
            hung = "its method must take less time" if loops else "its set-up and first call must take less time"
            hung = "the step has not returned from its first call" if self._met > 1 else hung
            waited = time.monotonic() - self._since
            reply = self._reply(entrant, protocol.Preparing, "", self.policy.setup_seconds, waited, hung)
            if isinstance(reply, Prepared | Failure):
                self._results[entrant] = reply
                self._waiting.remove(entrant)

    def go_on(self) -> None:
        """Let the processes that wait for each other go on at once."""
        self._since = time.monotonic()
        for entrant in self._waiting:
            self._running[entrant].ask(protocol.Begin())

    def _reply(
        self, entrant: int, wanted: type[M], when: str, seconds: float, waited: float = 0.0, hung: str = ""
    ) -> M | Failure:
        """Return the answer of an entrant, or the failure with which it leaves the launch."""
        try:
            return self._running[entrant].answer(wanted, when, seconds, waited, hung)
        except (BenchmarkError, BenchmarkSkipped) as error:
            del self._running[entrant]
            return error

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        """Run all rounds and let the processes finish; return the seconds of an iteration for each entrant and round.

        Raises:
            EntrantFailed: An entrant broke or skipped itself, during its rounds or after them.
            LaunchDisturbed: A disturbance from outside makes the times useless.
        """
        blocks = self._watched_blocks(plan, orders)
        times = {entrant: [float(end - begin) for begin, end in own] for entrant, own in blocks.items()}
        for entrant, own in times.items():
            if len(own) != len(orders) or min(own) <= 0:
                error = BenchmarkError("the blocks have no usable time: the benchmark's clock stood still")
                raise EntrantFailed(entrant, error)
        # Only such blocks begin and end by the system's clock, and contain nothing that is not timed.
        by_system = not plan.sliced and all(prepared.waiting is not None for prepared in self._ready.values())
        if by_system and (known := timer()):
            times = known.shortened(blocks)
        self.finish()
        return {entrant: [time * self._unit(plan, entrant) for time in own] for entrant, own in times.items()}

    def _unit(self, plan: Plan, entrant: int) -> float:
        """Return the seconds of an iteration in a nanosecond of a block."""
        return 1e-9 * self._scale[entrant] / plan.iterations[entrant]

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
                self._ready[entrant].facts.setdefault(GPU_CLOCK, launch_monitor.sm_clock)
        return blocks

    def blocks(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, int]]]:
        """Run the rounds; return the begin and end of each block by entrant, in nanoseconds.

        The clock is the same for all entrants if they take turns. Sliced rounds have each process's own time.

        Raises:
            EntrantFailed: An entrant broke or skipped itself.
        """
        if plan.sliced:
            for entrant, process in self._running.items():
                others = tuple(other for other in self._running if other != entrant)
                places = starting_places(orders, entrant)
                slow = self._slow_calls(plan, entrant)
                process.ask(protocol.ServeSliced(places, others, plan.iterations[entrant], plan.extra[entrant], slow))
        else:
            groups = self._stopped_groups()
            for entrant, turns in followers(orders).items():
                request = protocol.Serve(
                    tuple(turns), plan.iterations[entrant], plan.primes[entrant], plan.extra[entrant], groups,
                    self._slow_calls(plan, entrant),
                )  # fmt: skip
                self._running[entrant].ask(request)
            os.write(self._pipes[orders[0][0]][1], TOKEN)
        answers = self._all_rounds(len(orders) * len(self._running), self._limit(plan))
        for entrant, answer in answers.items():
            if dispatched := [then - start for start, then in zip(answer.began, answer.dispatched, strict=False)]:
                self._ready[entrant].facts[DISPATCH_TIME] = median(dispatched) * 1e-9 / plan.iterations[entrant]
            if answer.clocks:
                self.clocks[entrant] = answer.clocks
                self._ready[entrant].facts[GPU_CLOCK] = median(answer.clocks)
            if answer.clock_failure:
                self.note(_NO_CLOCK.format(answer.clock_failure))
            unit = self._unit(plan, entrant)
            self.preempted[entrant] = {number: used * unit for number, used in answer.preempted if used > 0}
            if answer.used and not plan.sliced and self._ready[entrant].iteration >= self.policy.sliced_above_seconds:
                wall = sum(answer.ended) - sum(answer.began)
                self._ready[entrant].facts[WAITED] = max(0.0, wall / answer.used - 1)
        return {entrant: list(zip(answer.began, answer.ended, strict=False)) for entrant, answer in answers.items()}

    def _slow_calls(self, plan: Plan, entrant: int) -> tuple[float, ...]:
        slow = plan.slow[entrant] if plan.slow else None
        if slow is None:
            return ()
        return slow.share, slow.factor, self._ready[entrant].iteration * (slow.factor - 1) if slow.waits else 0.0

    def _stopped_groups(self) -> tuple[int, ...]:
        """Return the process groups to stop in the turns of others, if a waiting process could use their processors.

        TFLite's threads spin for milliseconds after a turn, on a processor that the next side may need. Threads that
        prefetch would work during another side's turn, and their own side would seem faster than it is.
        """
        ready = self._ready.values()
        alone = len(self.cpus) == 1 and not any(prepared.works_on for prepared in ready)
        if alone or any(prepared.on_device for prepared in ready):
            return ()
        numbers = range(len(self.entrants))
        return tuple(self._running[entrant].pid if entrant in self._running else 0 for entrant in numbers)

    def _limit(self, plan: Plan) -> float:
        """Return the time limit of the rounds in seconds."""
        whole = {entrant: prepared.whole for entrant, prepared in self._ready.items() if entrant in self._running}
        seconds = planned_seconds(plan, whole)
        return self.policy.overrun * seconds + self.policy.answer_seconds

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
                self._check_output(entrant)
        if waiting:
            # An entrant that waits for its turn looks like one that hangs. Given all its turns, it finishes.
            for entrant in waiting.values():
                os.write(self._pipes[entrant][1], TOKEN * turns)
                self._running[entrant].resume()
            late = {entrant: self._answer(entrant, protocol.Rounds, when, limit) for entrant in waiting.values()}
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
        for process in self._running.values():  # all before the first answer, so that they end at the same time
            process.ask(protocol.Stop())
        for entrant, process in self._running.items():
            try:
                done = self._answer(entrant, Done, "after it had been timed", self.policy.answer_seconds)
                self._ready[entrant].facts.update(done.facts)
                process.end(kill=False)
            except EntrantFailed as failed:
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
            raise EntrantFailed(entrant, error) from None


def _call_first(*launches: ProcessLaunch) -> None:
    """Have the processes of several launches make their first calls at once, each launch on a processor of its own.

    None starts before all are set up, and none goes on before all have ended: a third process on a processor would
    hide for how long the other two have waited for each other.
    """
    for launch in launches:
        launch.meet()
    for launch in launches:
        launch.go_on()
    for launch in launches:
        launch.meet()


@dataclass(frozen=True)
class Processors:
    """Processors of the workers: ``one`` pinned core, or the last of ``every`` one for a workload that asks for several."""

    one: tuple[int, ...]
    every: tuple[int, ...]
    near: tuple[int, ...] = ()
    """Processors on which processes that race on ``one`` may prepare at the same time, itself included."""

    def of(self, case: Case) -> tuple[int, ...]:
        """Return the processors that the case runs on."""
        return self.one if case.cpus == 1 else self.every[-case.cpus :]


def processors(chosen: Sequence[int] | None, available: Mapping[int, None] | Sequence[int]) -> Processors:
    """Return the processors of the workers: the chosen ones, or the last one, since the first ones serve interrupts."""
    every = tuple(sorted(available))
    if chosen:
        return Processors(one=tuple(chosen), every=tuple(chosen))
    last = every[-1:]
    near = tuple(cpu for cpu in reversed(every) if _memory_of(cpu) == _memory_of(*last))
    return Processors(last, every, near if len(near) > 1 else ())


def _memory_of(cpu: int) -> list[str]:
    """Return the name of the memory (NUMA node) of a processor, as far as the kernel says."""
    return [node.name for node in Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node*")]


Environment = tuple[tuple[str, str], ...]
_Pool = tuple[str, Environment]
_Key = tuple[str, Environment, int, str]
"""Name of a side, environment variables of a variant, number of a pair, and the only benchmark file or ``""``."""
_Origin = tuple[str, str, frozenset[tuple[str, str]], int]
"""Name of a side that has ancestors of its own, or ``""``; interpreter, environment variables and number of the pair."""
_OWN_IMPORT = "each measuring process imports TensorFlow itself, which costs seconds and makes more launches necessary, because {}"
_SPAWNS = (
    "on the side {}, CUDA is initialised while benchmarks are imported (as tf.config.list_physical_devices does), so its "
    "launches are started anew instead of forked, which takes seconds each; list devices inside benchmarks and fixtures"
)


class ProcessLauncher:
    """Opens launches from its zygotes, which are known by side, environment and number of their pair.

    Two sides never share zygotes, even if they are the same program. Launches of pair ``p`` come from zygote ``p`` of
    each side. Beyond the policy's `zygotes_alive` the least recently used zygotes end, after their processes.
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
        self._whole = processors
        self._lane = threading.local()
        self._gpu_monitor = gpu_monitor
        self._opened: Counter[str] = Counter()
        """Name of a case -> its launches so far. Each draws other random numbers, so that a difference between them cannot
        pass for one of the sides. Those of other cases do not count: the numbers do not depend on the order of the races."""
        self._suite = suite
        self._policy = policy
        self._scratch = Scratch(suite.made)
        self._lock = threading.RLock()
        """Held while zygotes are chosen, started or ended, since several threads may race."""
        self._stopping = threading.Event()
        self._zygotes: dict[_Key, Zygote] = {}
        """The least recently used one is the first."""
        self._retired: list[Zygote] = []
        """Those that end as soon as their processes have ended."""
        self._ancestors: dict[_Origin, Ancestor] = {}
        self._starter = ThreadPoolExecutor(1)
        """Starts ancestors. Linux ends them with the thread that started them, so a lane's own would end them too early."""
        self._own_import: set[Environment] = set()
        """Environments in which each side's zygotes import TensorFlow themselves."""
        self._failed: dict[_Pool, SideError] = {}
        self._described: dict[str, JSON] = {}
        """Name of a side -> its environment info."""
        self._import_seconds: dict[str, list[float]] = {}
        self.notes: list[str] = []
        """Warnings about the way launches are made, for the user."""

    @property
    def processors(self) -> Processors:
        """The processors of this thread's lane, or of the run."""
        processors_of_lane: Processors = getattr(self._lane, "processors", self._whole)
        return processors_of_lane

    @contextmanager
    def on(self, lane: Processors) -> Iterator[None]:
        """Run the launches that this thread opens until the block ends on the processors of a lane."""
        self._lane.processors = lane
        try:
            yield
        finally:
            del self._lane.processors

    def stop(self) -> None:
        """End the races of all threads, which then raise ``KeyboardInterrupt``."""
        self._stopping.set()

    def check(self, side: Side, cases: Iterable[Case]) -> None:
        """Check that all variables of a side have an effect in these cases, before a process is started.

        Raises:
            UsageError: One has none.
        """
        try:
            worker_environment(self._suite.variables, side, {})
            for cpus in {self.cpus(Entrant(case, side)) for case in cases}:
                check_threads(side, {}, cpus, self._suite.cpus)
        except (SideError, BenchmarkError) as error:
            raise UsageError(str(error)) from None

    def start(
        self, entrant: Entrant, pair: int, request: LaunchRequest, descriptors: Sequence[int] = (), apart: bool = False
    ) -> Process:
        """Fork the process of a launch from the zygote of this pair, or of this pair and the case's file.

        Raises:
            SideError: The zygote does not start.
            BenchmarkError: The side cannot run the case.
        """
        case = entrant.case
        check_threads(entrant.side, dict(case.env), self.cpus(entrant), self._suite.cpus)
        with self._using(entrant, pair, apart) as zygote:
            return Process.start(zygote, zygote.checked(request, entrant.case), descriptors)

    @contextmanager
    def _using(self, entrant: Entrant, pair: int, apart: bool = False) -> Iterator[Zygote]:
        """Provide a zygote that stays until the process of a launch that the block starts has ended.

        Raises:
            SideError: The zygote does not start.
        """
        with self._lock:
            zygote = self.zygote(entrant, pair, apart=apart)
            zygote.use(1)
        try:
            yield zygote
        except BaseException:
            zygote.use(-1)
            raise

    def start_pairs(self, entrants: Iterable[Entrant], pairs: Sequence[int]) -> None:
        """Start the missing zygotes of these pairs; see `ready`."""
        self.ready([(entrant.side, entrant.case.env) for entrant in entrants], pairs)

    def open(self, entrants: Sequence[Entrant], pair: int) -> ProcessLaunch:
        """Open a launch whose processes come from this pair of zygotes."""
        self.start_pairs(entrants, [pair])
        on_gpu = self.on_gpu(entrants)
        cpus = tuple(sorted({cpu for entrant in entrants for cpu in self.cpus(entrant)}))
        near = () if any(entrant.case.alone for entrant in entrants) else self.processors.near
        places = [(cpu,) if len(cpus) == 1 else cpus for cpu in near]
        if on_gpu:
            places = places[: self.gpu_room]
        monitor, policy = (self._gpu_monitor, self._policy.on_gpu()) if on_gpu else (None, self._policy)
        name = entrants[-1].case.name
        self._opened[name] += 1
        seed, compiling = self._opened[name], near if on_gpu else ()
        return ProcessLaunch(
            self.start, entrants, pair, policy, cpus, places or [cpus], monitor, seed, self._note, compiling
        )

    def on_gpu(self, entrants: Iterable[Entrant]) -> bool:
        """Return whether processes of these may use a GPU: there is one, a side sees it, and a case may run on it."""
        return bool(self._gpu_monitor or has_driver()) and any(
            entrant.case.levels.get("device") != "cpu" and visible({**self._suite.variables, **entrant.side.env}) != ()
            for entrant in entrants
        )

    @property
    def gpu_room(self) -> int:
        """How many processes fit into the memory of each GPU at once; one if GPUs are not monitored."""
        return self._gpu_monitor.room if self._gpu_monitor else 1

    def cpus(self, entrant: Entrant, where: Processors | None = None) -> tuple[int, ...]:
        """Return the processors that the processes of an entrant are pinned to.

        Args:
            where: Processors to choose from, by default those of this thread's lane.
        """
        return (where or self.processors).of(entrant.case)

    def policy_of(self, policy: Policy, entrants: Sequence[Entrant]) -> Policy:
        """Return the policy for a race of these entrants, which needs fewer pairs if they have common ancestors."""
        if self.on_gpu(entrants):
            policy = policy.on_gpu()
        sides = {(entrant.side.name, entrant.case.env): entrant.side for entrant in entrants}
        with self._lock:
            origins = {self._origin(side, (*pool, 0, "")) for pool, side in sides.items()}
        return policy.with_common_ancestors() if len(sides) > 1 == len(origins) else policy

    def devices(self, side: Side) -> Mapping[str, Sequence[str]]:
        """Return the names of TensorFlow's devices on this side by type, from a process that then ends.

        Raises:
            SideError: The zygote does not start.
            BenchmarkError: TensorFlow could not list its devices.
        """
        with self._using(Entrant(Case("", "", ""), side), 0) as zygote:
            process = Process.start(zygote, ListDevices(self.processors.every))
        with process:
            return process.answer(DevicesListed, "while it listed devices", self._policy.answer_seconds).devices

    @property
    def scratch(self) -> Path:
        """The folder of the workers' temporary files.

        Raises:
            SideError: It cannot be created.
        """
        return self._scratch.folder

    def ready(self, wanted: Iterable[tuple[Side, Environment]], pairs: Iterable[int]) -> None:
        """Start the missing zygotes of these pairs, as many at a time as there are processors.

        Raises:
            SideError: A zygote does not start. Later calls for its side and environment raise it again at once.
        """
        self._ready({(side.name, env): side for side, env in wanted}, pairs)

    def _ready(self, sides: Mapping[_Pool, Side], pairs: Iterable[int], only: str = "") -> None:
        """Start the missing zygotes of these pairs, which collect ``only`` one benchmark file, or every file."""
        with self.stopwatch.phase(Phase.STARTING), self._lock:
            for pool in sides:
                if (failure := self._failed.get(pool)) is not None:
                    raise failure
            # The ancestor of a pair has forked none before the first, so no side is always the first.
            pools = [*sides], [*sides][::-1]
            keys = [(*pool, pair, only) for pair in dict.fromkeys(pairs) for pool in pools[pair % 2]]
            tried: set[tuple[_Key, _Origin]] = set()
            while missing := self._missing(keys):
                self._make_room(len(missing), keys)
                origins: dict[_Origin, dict[_Key, Side]] = {}
                for key in missing:
                    side = sides[key[:2]]
                    origin = self._origin(side, key)
                    if (key, origin) in tried:
                        with self._noting_failure(key):
                            raise SideError(f"{side.name}: the measuring process ended right after its start")
                    origins.setdefault(origin, {})[key] = side
                batch = list(origins.items())[: max(1, len(self._whole.every))]
                starting = {key: (origin, side) for origin, zygotes in batch for key, side in zygotes.items()}
                tried |= {(key, origin) for key, (origin, _) in starting.items()}
                self._start_together(starting)

    def _missing(self, keys: Sequence[_Key]) -> list[_Key]:
        """Return the keys without a live zygote. The others become the most recently used ones."""
        missing = []
        for key in keys:
            zygote = self._zygotes.pop(key, None)
            if zygote is not None and zygote.alive:
                self._zygotes[key] = zygote
                continue
            if zygote is not None:
                zygote.close()
            missing.append(key)
        return missing

    def _make_room(self, count: int, kept: Sequence[_Key]) -> None:
        """End the least recently used zygotes that are not kept, so that ``count`` more stay within the limit."""
        surplus = len(self._zygotes) + count - self._policy.zygotes_alive
        self._end([key for key in self._zygotes if key not in kept][: max(0, surplus)])

    def _end(self, keys: Sequence[_Key]) -> None:
        """End these zygotes, and the ancestors that have no other."""
        self._retired += [self._zygotes.pop(key) for key in keys]
        for zygote in [zygote for zygote in self._retired if not zygote.users]:
            self._retired.remove(zygote)
            zygote.close()
        self._end_idle_ancestors()

    def _end_idle_ancestors(self) -> None:
        used = {zygote.ancestor for zygote in (*self._zygotes.values(), *self._retired)}
        for origin in [origin for origin, ancestor in self._ancestors.items() if ancestor not in used]:
            self._ancestors.pop(origin).close()

    def _origin(self, side: Side, key: _Key) -> _Origin:
        """Name the ancestor of a zygote: zygotes of one pair share it if their programs and environments are the same."""
        _, env, pair, _ = key
        variables = frozenset(worker_environment(self._suite.variables, side, dict(env), shared=True).items())
        return ("" if env not in self._own_import else side.name), side.executable, variables, pair

    def _ancestor(self, origin: _Origin, side: Side) -> Ancestor:
        known = self._ancestors.get(origin)
        if known is not None and known.alive:
            return known
        if known is not None:
            known.close()
        imports = self._suite.imports_tensorflow and not origin[0]
        variables, folder = dict(origin[2]), self._scratch.folder
        started = self._starter.submit(Ancestor, side, variables, self._suite, self._policy, imports, folder).result()
        self._ancestors[origin] = started
        return started

    def _start_together(self, wanted: Mapping[_Key, tuple[_Origin, Side]]) -> None:
        """Start these zygotes. If one fails, all of them end.

        Raises:
            SideError: A zygote does not start.
        """
        starting: dict[_Key, Zygote] = {}
        try:
            for key, (origin, side) in wanted.items():
                with self._noting_failure(key):
                    self._ancestor(origin, side)
            for key, (origin, side) in wanted.items():
                with self._noting_failure(key):
                    ancestor = self._ancestor(origin, side)
                    env = dict(key[1])
                    starting[key] = Zygote(
                        ancestor, side, env, self._suite, self._policy, self._scratch.folder, key[3], self._stopping
                    )
            for key, zygote in starting.items():
                with self._noting_failure(key):
                    zygote.wait_ready()
                self._note_ready(key, zygote)
        except BaseException:
            for zygote in starting.values():
                zygote.close()
            self._end_idle_ancestors()
            raise
        self._zygotes.update(starting)
        for key, zygote in starting.items():
            if zygote.collected.needs_own_import:
                self._separate(key[1], zygote.collected.needs_own_import)

    def _separate(self, env: Environment, reason: str) -> None:
        """End the zygotes of an environment: from now on each side imports TensorFlow itself."""
        if env not in self._own_import:
            self._own_import.add(env)
            self._end([key for key in self._zygotes if key[1] == env])
            self._note(_OWN_IMPORT.format(reason))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _note_ready(self, key: _Key, zygote: Zygote) -> None:
        (name, env, *_), ready = key, zygote.collected
        settings = {key: value for key, value in ready.environment["settings"].items() if key not in dict(env)}
        cases = sorted({*self._described.get(name, {}).get("cases", ()), *ready.cases})
        self._described[name] = {**ready.environment, "settings": settings, "cases": cases}
        if zygote.collected.import_seconds is not None:
            self._import_seconds.setdefault(name, []).append(zygote.collected.import_seconds)
        if zygote.collected.spawns:
            self._note(_SPAWNS.format(name))

    @contextmanager
    def _noting_failure(self, key: _Key) -> Iterator[None]:
        """Remember a failure in one line: its first case has shown the whole output."""
        try:
            yield
        except SideError as error:
            settings = " ".join(f"{name}={value}" for name, value in key[1])
            where = f" (with {settings})" if settings else ""
            text = f"{error.headline}{where}; it was not tried again"
            self._failed[key[:2]] = SideError(text)
            raise

    def zygote(self, entrant: Entrant, pair: int, *, apart: bool = False) -> Zygote:
        """Return the zygote of this pair, and start it if necessary.

        Args:
            apart: Whether it collects the benchmark file of the entrant's case only.

        Raises:
            SideError: The zygote does not start.
        """
        only = entrant.case.name.partition("::")[0] if apart else ""
        pool = entrant.side.name, entrant.case.env
        with self._lock:
            self._ready({pool: entrant.side}, [pair], only)
            return self._zygotes[entrant.side.name, entrant.case.env, pair, only]

    def environment(self, side: Side) -> JSON:
        """Return a side's environment info without settings of variants, and its cases; empty if it has not started."""
        return self._described.get(side.name, {})

    def import_seconds(self, side: Side) -> float | None:
        """Return the median import time of TensorFlow in the side's zygotes, ``None`` if none imports it."""
        seconds = self._import_seconds.get(side.name)
        return median(seconds) if seconds else None

    def release(self, side: Side) -> None:
        """End the zygotes of a side."""
        with self._lock:
            self._end([key for key in self._zygotes if key[0] == side.name])
            self._failed = {pool: error for pool, error in self._failed.items() if pool[0] != side.name}

    def keep_only(self, environments: Collection[Environment]) -> None:
        """End the zygotes of all other environments. A later request starts them again."""
        with self._lock:
            self._end([key for key in self._zygotes if key[1] not in environments])

    def close(self) -> None:
        """End every zygote and all that it started, and remove their temporary files."""
        try:
            for zygote in (*self._retired, *self._zygotes.values()):
                zygote.users = 0
            self._end(list(self._zygotes))
        finally:
            self._starter.shutdown()
            self._scratch.close()
