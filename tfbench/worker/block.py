"""Timed blocks."""

from __future__ import annotations

import ctypes
import math
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import repeat
from resource import RUSAGE_SELF, RUSAGE_THREAD, getrusage
from statistics import fmean, median

from tfbench.errors import BenchmarkError
from tfbench.model import BESIDE, HANDED, JSON, RESTLESS
from tfbench.protocol import TOKEN, Rounds, Serve, ServeSliced
from tfbench.worker import gc, time
from tfbench.worker.quiet import Meter, used_time

# The inner loops: one timed block, and the turns of a launch. All of it is on the hot path


Clock = Callable[[], int]
"""Monotonic nanoseconds that all processes of the machine share."""
Call = Callable[[], object]


@dataclass(frozen=True)
class PreparedStep:
    """A step with work before and after each iteration that is not timed."""

    bind: Callable[[], Call]
    """Prepares an iteration, and returns it."""
    clear: Call = lambda: None
    """Cleans up after it."""

    def __call__(self) -> object:
        """Run an iteration together with that work."""
        result = self.bind()()
        self.clear()
        return result


_REST = 2e-3
"""Seconds to watch for threads that keep working after a step: as long as several turns of the other side."""
_BUSY = 0.1
"""Share of this time that they must use."""
_RESTED = 5
"""Calls after a rest, at most."""
REST_LIMIT = 1.0
"""Seconds to wait for threads that finish their work. Work that takes longer has no known amount."""
_FASTER = 0.75
"""They work ahead if they take less than this share of the time of calls in succession."""
_NO_CLOCK = "the benchmark's clock stood still or went back during its warm-up; use a clock that runs"


@dataclass
class Block:
    """A timed sequence of iterations."""

    call: Call
    """One iteration."""
    synchronise: Call | None
    """Waits until the device has finished, ``None`` where a call returns finished."""
    clock: Clock = time.perf_counter_ns
    dispatched: list[int] = field(default_factory=list, init=False)
    """When each block had dispatched its work to the device, in nanoseconds. Empty where calls return finished."""
    calls: int = field(default=0, init=False)
    """Iterations of all blocks so far."""
    meter: Meter | None = None
    """Takes the time of neighbours out of that of a block, ``None`` where the clock or several processors forbid it."""
    least: list[int] = field(default_factory=list, init=False)
    """For each block the least time that it takes without neighbours, in nanoseconds. Its time is the most."""

    def __call__(
        self, iterations: int, prime: int = 0, extra: int = 0, rest: float = 0.0, pause: float = 0.0
    ) -> tuple[int, int]:
        """Prime, then time ``iterations`` calls; return the begin and end of the block in nanoseconds.

        The block ends as early as it would have done without neighbours, as far as `meter` is certain.
        ``extra`` calls, and an empty loop for the fraction ``rest`` of the time that all the calls took, run inside the
        timed block and are not counted. They are the slowdown of ``--inject-slowdown``. So does a ``pause`` in seconds.
        """
        self._prime(prime, iterations + extra)
        began, dispatched, _, taken = self._timed(self.call, iterations + extra, pause)
        return began, began + self._ended(began, dispatched, taken, rest)

    def _prime(self, prime: int, calls: int) -> None:
        self.calls += prime + calls
        for _ in repeat(None, prime):
            self.call()
        self.wait()

    def _timed(self, call: Call, calls: int, pause: float) -> tuple[int, int, int, int]:
        """Time so many calls, and note the least time that they take without neighbours.

        Returns when they began and, after that, nanoseconds until their work was dispatched, by the clock, and without neighbours.
        """
        clock = self.clock
        if self.meter is not None:
            self.meter.begin()
        began = clock()
        for _ in repeat(None, calls):
            call()
        dispatched = 0
        if self.synchronise is not None:
            dispatched = clock() - began
            self.synchronise()
        if pause:
            time.sleep(pause)
        wall = clock() - began
        if self.meter is None:
            return began, dispatched, wall, wall
        stretch = self.meter.end(wall)
        self.least.append(stretch.least)
        return began, dispatched, wall, stretch.most

    def _ended(self, began: int, dispatched: int, taken: int, rest: float) -> int:
        """Note the dispatch of a block, and return its time with an empty loop for this fraction of it.

        The loop comes after the device has finished, which would hide it. It ends 0.1 to 0.3 µs later. The delay is not
        part of the slowdown, so it does not count.
        """
        if self.synchronise is not None:
            self.dispatched.append(began + dispatched)
        if rest:
            until = self.clock() + rest * taken
            while self.clock() < until:
                pass
            self.least[-1:] = [round(least * (1 + rest)) for least in self.least[-1:]]
            taken = round(taken * (1 + rest))
        return taken

    def restart(self) -> None:
        """Forget the blocks so far."""
        self.dispatched.clear()
        self.least.clear()
        if self.meter is not None:
            self.meter.stretches.clear()

    def wait(self) -> None:
        """Wait until the device has finished the work dispatched so far."""
        if self.synchronise is not None:
            self.synchronise()

    @property
    def untimed(self) -> float | None:
        """Seconds of untimed work for each iteration; ``None`` if there is none, so that a block can hold several."""
        return None

    @contextmanager
    def one(self) -> Iterator[Call]:
        """Prepare one iteration, to be called inside the context."""
        yield self.call


@dataclass
class PreparedBlock(Block):
    """A block of a step whose iterations are prepared without being timed.

    Its times are sums over its iterations, so a plan should give it one.
    """

    call: PreparedStep
    _untimed: int = field(default=0, init=False)
    _iterations: int = field(default=0, init=False)

    def __call__(
        self, iterations: int, prime: int = 0, extra: int = 0, rest: float = 0.0, pause: float = 0.0
    ) -> tuple[int, int]:
        self._prime(prime, iterations + extra)
        timed, whole, dispatched, first, began = 0, 0, 0, len(self.least), self.clock()
        for left in reversed(range(iterations + extra)):
            _, handed_over, wall, taken = self._timed(self.call.bind(), 1, 0.0 if left else pause)
            dispatched = timed + handed_over
            timed, whole = timed + taken, whole + wall
            self.call.clear()
        if self.meter is not None:
            self.least[first:] = [sum(self.least[first:])]
        self._untimed += self.clock() - began - whole
        self._iterations += iterations + extra
        return began, began + self._ended(began, dispatched, timed, rest)

    @property
    def untimed(self) -> float | None:
        return self._untimed * 1e-9 / max(1, self._iterations)

    @contextmanager
    def one(self) -> Iterator[Call]:
        yield self.call.bind()
        self.call.clear()


@dataclass
class TakenBlock(Block):
    """Blocks of a step that runs once. Each of them has the time of its only call, and calls nothing."""

    taken: int = 0
    """Nanoseconds of that call."""

    def __call__(
        self, iterations: int, prime: int = 0, extra: int = 0, rest: float = 0.0, pause: float = 0.0
    ) -> tuple[int, int]:
        began = self.clock()
        return began, began + round(self.taken * (iterations + extra) * (1 + rest) + pause * 1e9)


def injection(iterations: int, extra: float, slow: Sequence[float], seed: int) -> Iterator[tuple[int, float, float]]:
    """Yield the extra calls, the fraction of an empty loop and the pause of each next block.

    They are a constant slowdown, and slow calls that are drawn at random. A block of 30 iterations does 3 more for 10%. A
    block of one iteration is followed by an empty loop that takes this fraction of the time of the iteration itself.

    Args:
        extra: Fraction of a block.
        slow: Share of slow calls, their factor, and the seconds that one waits; 0 if it makes extra calls instead.
    """
    constant = math.floor(extra * iterations + 1e-9)
    rest = extra * iterations - constant
    rest = rest / (iterations + constant) if rest >= 1e-6 * iterations else 0.0
    share, factor, waits = slow or (0.0, 1.0, 0.0)
    draw = random.Random(seed).random
    while True:
        hits = sum(draw() < share for _ in range(iterations)) if share else 0
        yield constant + (0 if waits else round(hits * (factor - 1))), rest, hits * waits


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable automatic collections. Nothing stays frozen, so that a step that collects garbage pays for all objects."""
    was = gc.isenabled()
    gc.collect()
    gc.unfreeze()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


_USUAL = gc.get_threshold()


def gc_rate() -> float:
    """Return how often Python collects garbage by itself, as a multiple of its default; 0 if it never does.

    `gc_disabled` keeps these collections out of the times. The generation that is collected most often counts.
    """
    now = gc.get_threshold()
    if not gc.isenabled() or not now[0]:
        return 0.0
    return max(usual / threshold for usual, threshold in zip(_USUAL, now, strict=True) if threshold)


@contextmanager
def gc_watched() -> Iterator[None]:
    """Unfreeze all objects once the step calls ``gc.collect``. Automatic collections leave them frozen."""
    gc.callbacks.append(_unfreeze)
    try:
        yield
    finally:
        gc.callbacks.remove(_unfreeze)


def _unfreeze(phase: str, info: Mapping[str, int]) -> None:
    # Before Python itself collects the oldest objects, it counts more collections of younger ones than the threshold.
    automatic = gc.isenabled() and gc.get_count()[2] > gc.get_threshold()[2]
    if phase == "start" and info["generation"] == 2 and not automatic:
        gc.unfreeze()


def warm_up(block: Block, order: tuple[float, float, float, float], traces: Callable[[], int] = lambda: 0) -> float:
    """Run until the fastest blocks of two successive windows agree within ``steady``, at most ``limit`` seconds.

    ``order`` has ``seconds``, ``limit``, ``steady`` and ``tracing``. Two windows take ``seconds``. A step that takes longer than ``limit`` runs once. As long as the number of ``traces`` grows,
    the step is not steady, for at most ``tracing`` seconds. Returns the median seconds of an iteration in the last window.
    Raises `BenchmarkError` if the clock stands still or goes back.
    """
    seconds, limit, steady, tracing = order
    clock = block.clock
    began = clock()
    size, taken = _block_size(block, limit)
    if taken > limit * 1e9:
        return taken * 1e-9
    previous, traced = math.inf, 0
    while True:
        window, before = clock(), traced
        times: list[float] = []
        while not times or (len(times) < 2 and clock() - window < limit * 1e9) or clock() - window < seconds * 5e8:
            start, end = block(size)
            if end <= start or start < window:
                raise BenchmarkError(_NO_CLOCK)
            times.append((end - start) / size)
        floor, traced = min(times), traces()
        is_steady = traced == before and abs(floor - previous) <= steady * floor
        if is_steady or (clock() - began) * 1e-9 > (limit if traced == before else max(limit, tracing)):
            return median(times) * 1e-9
        previous = floor


def rest(limit: float = 0.0) -> bool:
    """Wait until this process rests: its threads, such as prefetching ones, and its child processes have done their work.

    Args:
        limit: Seconds to wait at most. The first look takes 2 ms in any case.

    Returns:
        Whether they rest now.
    """
    until = time.monotonic() + limit
    last = active_time()
    while True:
        time.sleep(_REST)
        last, before = active_time(), last
        # Work may be left while another process has the processor.
        if last - before <= _BUSY * _REST * 1e9 and not any(map(_is_ready, [os.getpid(), *children()])):
            return True
        if time.monotonic() > until:
            return False


def active_time(processes: Sequence[int] | None = None) -> int:
    """Return how long the other threads of this process and these or all children have run, in nanoseconds."""
    return used_time(children() if processes is None else processes) - time.thread_time_ns()


class WorkBeside:
    """Sum the processor time that this process and its children use outside of timed blocks, from now on.

    That of the calling thread counts until `end_rounds`: while it waits for its turn, it runs handlers of signals.
    While it counts, only the children that live now do, since a look for new ones takes long.
    """

    def __init__(self, used: Callable[[Sequence[int]], int] = used_time) -> None:
        self._used = used
        self._children = children()
        self.nanoseconds = 0
        """The sum so far, to which times are added that are known otherwise."""
        self._handed = -_waits_of_others()
        self.go_on()

    def pause(self) -> None:
        """Count nothing until `go_on`."""
        self.nanoseconds += self._used(self._children)

    def go_on(self) -> None:
        """Count again."""
        self.nanoseconds -= self._used(self._children)

    def end_rounds(self) -> None:
        """Count all children from now on, since no block follows."""
        self._handed += _waits_of_others()
        self.pause()
        self._used, self._children = active_time, children()
        self.go_on()

    def facts(self, calls: int) -> JSON:
        """Wait until the process rests, `REST_LIMIT` at most, and collect the youngest garbage, which counts as well.

        So does what callbacks of the garbage collector do in each collection that Python would have begun in the rounds.

        Returns the seconds per call of so many, how often per call another thread waited for work until the rounds ended,
        and whether the process still works.
        """
        rests = rest(REST_LIMIT)
        self._children = children()
        self.pause()
        collections = gc.get_count()[0] // max(1, gc.get_threshold()[0])
        for times in (1, max(0, collections - 1)):
            began = time.thread_time_ns()
            gc.collect(0)  # the second one finds no garbage, and calls the callbacks alone
            self.nanoseconds += times * (time.thread_time_ns() - began)
        handed = {HANDED: self._handed / calls} if self._handed > 0 else {}
        return {BESIDE: max(0, self.nanoseconds) * 1e-9 / calls, **handed, **({} if rests else {RESTLESS: True})}


def _waits_of_others() -> int:
    """Return how often all threads but this one have left their processor to wait."""
    return getrusage(RUSAGE_SELF).ru_nvcsw - getrusage(RUSAGE_THREAD).ru_nvcsw


def children() -> list[int]:
    """Reap exited `multiprocessing` children, and return the process IDs of the running ones."""
    pool = sys.modules.get("multiprocessing")
    return [child.pid for child in (pool.active_children() if pool else ()) if child.pid]


def _is_ready(process: int) -> bool:
    """Return whether a thread of a process, besides this one, runs or waits for a processor."""
    own = str(threading.get_native_id())
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError), open(f"/proc/{process}/task/{thread}/stat") as file:
                if thread != own and file.read().rpartition(")")[2].split()[0] == "R":
                    return True
    return False


def waits_ahead(block: Block, seconds: float, iteration: float = 0.0) -> float | None:
    """Return the seconds of a call in succession, if calls after a rest are faster because their waits have gone on.

    Otherwise the answer is ``None``. A prefetching pipeline whose elements wait for a server uses no processor, so `rest`
    does not see it.

    Args:
        seconds: Of calls in succession to compare with. The rests take at most five times as long, or as long as a call.
        iteration: Seconds of a call in succession, as the warm-up found. One as long as ``seconds`` is not measured again.
    """
    before = iteration if iteration > seconds else pace(block, seconds)
    calls = max(1, min(_RESTED, int(seconds / before)))
    rested = 0
    for _ in range(calls):
        time.sleep(before)
        began, ended = block(1)
        rested += ended - began
    limit = rested * 1e-9 / (_FASTER * calls)
    return before if limit < before and limit < pace(block, seconds) else None


def pace(block: Block, seconds: float) -> float:
    """Return the mean seconds of an iteration over at least ``seconds`` and one call, less those of the first half.

    Where threads work ahead, many calls in succession may find their results ready and take a thousandth of the time of
    the next one, so a median says nothing about how many calls fill a block. The first half uses up what a rest has left.
    """
    times: list[int] = []
    now = block.clock()
    half, until = now + seconds * 5e8, now + seconds * 1e9
    while not times or block.clock() < until:
        start, end = block(1)
        if start >= half or end >= until:
            times.append(end - start)
    return fmean(times) * 1e-9


def drain(block: Block, seconds: float, limit: float) -> tuple[int, int]:
    """Call the step until a call takes at least so many seconds, or ``limit`` seconds are over.

    Returns the number of calls, and the nanoseconds of all.
    """
    times = [0]
    until = block.clock() + limit * 1e9
    while times[-1] < seconds * 1e9 and block.clock() < until:
        start, end = block(1)
        times.append(end - start)
    return len(times) - 1, sum(times)


def _block_size(block: Block, limit: float) -> tuple[int, float]:
    """Return the iterations that take about 0.1 ms, and the nanoseconds of one, or 0 if none had to run.

    Raises `BenchmarkError` if the clock goes back, or stands still for ``limit`` seconds of the system's clock.
    """
    if block.untimed is not None:
        return 1, 0.0
    calls, began = 1, time.monotonic()
    while True:
        first, last = block(calls)
        if last > first:
            taken = (last - first) / calls
            return max(1, int(1e5 / taken)), taken
        if last < first or time.monotonic() - began > limit:
            raise BenchmarkError(_NO_CLOCK)
        calls *= 2  # a coarse clock needs more calls


def serve_turns(
    blocks: Callable[[], Sequence[tuple[int, int]]], order: Serve, own: int, pipes: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Time the blocks of each turn of this entrant, and pass the turn on without the controller.

    Args:
        blocks: Times the blocks of a turn; returns when each began and ended.
        own: The number of this entrant.
        pipes: The inbox, from which this entrant reads one byte per turn, and for each entrant the descriptor that writes
            to its inbox.

    Returns:
        When each block began and ended, in nanoseconds of the clock.
    """
    (inbox, *outboxes), groups = pipes, order.groups
    began, ended = [], []
    read, write = os.read, os.write
    others = [group for index, group in enumerate(groups) if group and index != own]
    held = False
    try:
        for following in order.follow:
            if not held:
                read(inbox, 1)
                _signal(others, signal.SIGSTOP)
            for start, end in blocks():
                began.append(start)
                ended.append(end)
            held = following == own
            if following < 0:
                _signal(others, signal.SIGCONT)
            elif not held:
                write(outboxes[following], TOKEN)
                _signal(groups[following : following + 1], signal.SIGCONT)
    except BaseException:
        _signal(others, signal.SIGCONT)
        raise
    return began, ended


def _signal(groups: Sequence[int], which: int) -> None:
    """Stop or continue these process groups. The controller notices one that is gone."""
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, which)


# Sliced rounds: the processes of a launch run on one processor at once, and its scheduler alternates them


SLICE_SECONDS = 0.02
"""Length of a slice of the scheduler where it can be chosen (Linux 6.12). A slice of 1.4 ms is too short: the caches fill
anew after each, and a training step of 29 ms took 3 to 13% longer."""
HEAD_START = 1e-3
"""Seconds between the starts of two entrants in a round, less than a slice of the scheduler. Otherwise the one that has
waited for the other would start first in every round, and would take 1% more processor time for it."""


def _lengthen_slices() -> None:
    """Ask for longer slices for all threads of this process. Older kernels ignore or refuse that."""
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)  # sched_setattr
    if number and os.sched_getscheduler(0) == os.SCHED_OTHER:
        # struct sched_attr: its size and SCHED_OTHER, flags, nice, and the slice as a runtime in nanoseconds.
        wanted = (ctypes.c_uint64 * 6)(48, 0, os.nice(0) & 0xFFFFFFFF, int(SLICE_SECONDS * 1e9))
        for thread in os.listdir("/proc/self/task"):
            ctypes.CDLL(None).syscall(number, int(thread), wanted, 0)


def serve_slices(
    block: Block, order: ServeSliced, pipes: Sequence[int], beside: WorkBeside, seed: int = 0
) -> tuple[Rounds, float]:
    """Time blocks by the processor time of this process. The entrants start each round one shortly after the other.

    Also returns for what fraction of their times the blocks have waited, which these lack.

    Args:
        block: Has that clock.
        pipes: The inbox, from which this entrant reads one byte per round and other entrant, and for each entrant the
            descriptor that writes to its inbox.
        beside: Pauses in blocks, whose times include those of threads.
        seed: Of injected slow calls.
    """
    inbox, *outboxes = pipes
    meter, injected = Meter(children(), watch=True), injection(order.iterations, order.extra, order.slow, seed)
    others = [outboxes[entrant] for entrant in order.others]
    times, waited = list[tuple[int, int]](), 0
    _lengthen_slices()
    for place in order.places:
        for outbox in others:
            os.write(outbox, TOKEN)
        for _ in others:
            os.read(inbox, 1)
        time.sleep(place * HEAD_START)
        beside.pause()
        meter.begin()
        began = time.perf_counter_ns()
        times.append(block(order.iterations, 0, *next(injected)))
        stretch = meter.end(time.perf_counter_ns() - began)
        beside.go_on()
        waited += max(0, stretch.most - stretch.used)
    starts, ends = zip(*times, strict=True)
    return Rounds(starts, ends, ()), waited / max(1, sum(ends) - sum(starts))
