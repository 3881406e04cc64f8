"""How long a stretch of work takes without the programs that share its processor.

On one processor, the time of a step without its neighbours is the processor time of all its threads and children, and
what it waits by itself: a sleep, a file, another process. Linux tells for each thread how long it ran, and how long it was
in the queue of its processor (Documentation/scheduler/sched-stats.rst). For a single thread, the rest is its own wait.
Of several threads, each queues behind its neighbours and behind the others, so the wait lies between two bounds:

- At any moment that a neighbour takes, one thread queues at least: all times in a queue together are at least this loss.
- A thread queues behind the others for no longer than these run: the rest of its time in the queue is loss.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median
from typing import NamedTuple

from tfbench.worker import time

_PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED of Linux: with the id of a process, the clock of its processor time."""
_HIDDEN = 0.01
"""Share of the processor time that threads which are gone, or child processes, may have used unseen."""
_CERTAIN = 2_000, 0.002
"""Nanoseconds and share of a stretch that count as no loss. Reading the clocks takes about as long."""
_KNOWN = 1.01
"""Ratio of the bounds of a time that is known well enough. Threads that hand over to each other keep them so far apart."""
_FIELDS = 64
"""Bytes of a file ``schedstat`` at most: three numbers."""


class Stretch(NamedTuple):
    """Nanoseconds of a stretch of work: on processors, by all threads and children, and the bounds of its time without
    neighbours."""

    used: int
    least: int
    most: int


def waiting(stretches: Sequence[Stretch]) -> float:
    """Return the time that these stretches wait by themselves, at most, as a fraction of their processor time: the median."""
    return median([max(0.0, one.most / max(1, one.used) - 1) for one in stretches] or [0.0])


def certain(stretches: Sequence[Stretch]) -> bool:
    """Return whether the time of the median one without neighbours is known to one percent."""
    return median([one.most / max(1, one.least) for one in stretches] or [1.0]) <= _KNOWN


def bounds(wall: int, used: int, threads: Sequence[tuple[int, int]], hidden: bool) -> tuple[int, int]:
    """Return the bounds of the time that a stretch takes without neighbours.

    Args:
        wall, used: Nanoseconds by the clock, and on one processor, of all threads and children.
        threads: For each thread, how long it ran and how long it was in a queue.
        hidden: Whether there was work beside that of these threads, whose time in a queue is not known.
    """
    idle = max(0, wall - used)
    certain = max((queued - max(0, used - ran) for ran, queued in threads), default=0)
    possible = idle if hidden else sum(queued for _, queued in threads)
    most = used + idle - min(idle, max(0, certain))
    least = min(most, used + idle - min(idle, possible))
    limit = max(wall, used) - _CERTAIN[0] - _CERTAIN[1] * wall
    return (wall, wall) if least > limit else (least, most if most <= limit else wall)


class Meter:
    """Measures stretches of work of this process on one processor, which the calling thread begins and ends.

    A reading takes 2 µs. After a stretch that waited while other threads ran, the meter also reads these threads, in 2 µs each. It
    stops after a stretch that did not wait, because the readings displace the caches: the next call takes some 15 µs longer.
    """

    def __init__(self, processes: Sequence[int] = (), watch: bool = False) -> None:
        """Make a meter that counts these child processes, and from the start ``watch`` all threads."""
        self._processes = tuple(processes)
        self._watch = watch
        self._thread = threading.get_native_id()
        self._files: dict[int, int] = {}
        self._own = _open(self._thread)
        self._before: dict[int, tuple[int, int]] | None = None
        self._began = (0, 0, 0)
        self.stretches: list[Stretch] = []

    def __del__(self) -> None:
        for file in (self._own, *self._files.values()):
            if file is not None:
                os.close(file)

    def begin(self) -> None:
        """Begin a stretch. The clock of the stretch is read afterwards."""
        self._before = self._others() if self._watch else None
        used, ran = used_time(self._processes), time.thread_time_ns()
        # Last, since a call that reads processor time may end with the loss of the processor.
        self._began = (used, ran, self._queued())

    def end(self, wall: int) -> Stretch:
        """End the stretch, whose clock has been read before."""
        queued = self._queued()
        used_before, ran_before, queued_before = self._began
        used, ran = used_time(self._processes) - used_before, time.thread_time_ns() - ran_before
        queued -= queued_before
        threads = [(ran, queued)]
        beside = used - ran
        limit = _CERTAIN[0] + _CERTAIN[1] * wall
        if wall - used <= limit:
            stretch = Stretch(used, wall, wall)
            self._watch = False
        elif self._own is None:
            stretch = Stretch(used, used if queued else wall, wall)  # it was preempted or not
        else:
            if beside > limit and self._before is not None:
                for thread, (ran_then, queued_then) in self._others().items():
                    before = self._before.get(thread, (0, 0))
                    threads.append((ran_then - before[0], queued_then - before[1]))
            seen = sum(thread for thread, _ in threads)
            hidden = used - seen > _HIDDEN * used + _CERTAIN[0]
            stretch = Stretch(used, *bounds(wall, used, threads, hidden))
            self._watch = self._watch or beside > limit
        self.stretches.append(stretch)
        return stretch

    def _queued(self) -> int:
        """Return how long the calling thread was in the queue; where the system does not tell it, how often it was preempted."""
        if self._own is None:
            return getrusage(RUSAGE_SELF).ru_nivcsw + getrusage(RUSAGE_CHILDREN).ru_nivcsw
        return int(os.pread(self._own, _FIELDS, 0).split()[1])

    def _others(self) -> dict[int, tuple[int, int]]:
        """Return for each other thread how long it ran and was in a queue."""
        times = {}
        for thread in {*map(int, os.listdir("/proc/self/task"))} - {self._thread}:
            if thread not in self._files and (file := _open(thread)) is not None:
                self._files[thread] = file
            try:
                ran, queued, _ = map(int, os.pread(self._files[thread], _FIELDS, 0).split())
            except (OSError, KeyError, ValueError):  # the thread has ended
                if (file := self._files.pop(thread, None)) is not None:
                    os.close(file)
                continue
            times[thread] = (ran, queued)
        return times


def _open(thread: int) -> int | None:
    with suppress(OSError):
        return os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    return None


def own_time() -> int:
    """Return a clock of the calling thread in nanoseconds, which stands still while others have its processor.

    Where the system does not tell how long the thread was in the queue, it does not stand still.
    """
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return time.perf_counter_ns() - int(file.read().split()[1])
    return time.perf_counter_ns()


def used_time(processes: Iterable[int]) -> int:
    """Return how long this process, these children and all that it has waited for have run, in nanoseconds."""
    ended = getrusage(RUSAGE_CHILDREN)
    waited_for = round((ended.ru_utime + ended.ru_stime) * 1e9)
    return time.process_time_ns() + waited_for + sum(map(_process_time, processes))


def _process_time(process: int) -> int:
    """Return how long the threads of another process have run, the ended ones included, in nanoseconds; 0 if it is gone."""
    with suppress(OSError):
        return time.clock_gettime_ns(~process << 3 | _PROCESS_CLOCK)
    return 0
