"""Time entrants that are measured alone, and the phases of a run."""

from __future__ import annotations

import enum
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from tfbench.stats.rounds import without_interrupts

# Measure how the wall time of a run divides into phases


class Phase(str, enum.Enum):
    """What a run spends its wall time on."""

    STARTING = "starting"
    """Making the sides and starting their zygotes, which import TensorFlow and collect the benchmarks."""
    PREPARING = "preparing"
    """Set-up, first call and warm-up of timed launches."""
    SHARED_SETUP = "shared set-up"
    """Building shared set-ups, such as trained models, including the probing launches that need them first."""
    ROUNDS = "rounds"
    """Timed rounds, until their processes have ended."""
    CONFIRMING = "confirming"
    """Second races of changes that a first race found, with all that they start and prepare."""
    PROBING = "probing"
    """Probing launches, and judging the metrics other than time."""
    PROFILING = "profiling"
    """Profiling launches, and reading their profiles."""
    OTHER = "other"
    """The rest, such as pytest's own work and judging times."""


@dataclass
class _Count:
    """What one thread has spent, and on what it is now."""

    since: float
    open: list[Phase] = field(default_factory=list)
    spent: dict[tuple[Phase, Phase], float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by the phase that they count for and the innermost phase."""


class Stopwatch:
    """Counts each moment of each thread for one phase.

    Phases nest. The innermost one counts, but everything inside of `Phase.CONFIRMING` counts as confirming.
    A thread counts from its first phase on; the one that makes the stopwatch counts at once.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._created = clock()
        self._counts: list[_Count] = []
        self._of_thread = threading.local()
        self._count()

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Count the time until the block ends for this phase. The result also decorates functions."""
        own = self._count()
        own.open.append(phase)
        try:
            yield
        finally:
            self._count()
            own.open.pop()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time until the block ends for no phase: this thread waits for others, which count their own."""
        own = self._count()
        try:
            yield
        finally:
            own.since = self._clock()

    def restart(self) -> None:
        """Count this thread from its next phase on: it has waited for work since the last one."""
        self._of_thread.count = None

    def _count(self) -> _Count:
        """Count the time since this thread's last call for the phases that are open, and return what it has spent."""
        now = self._clock()
        own: _Count | None = getattr(self._of_thread, "count", None)
        if own is None:
            own = self._of_thread.count = _Count(now)
            self._counts.append(own)
        innermost = own.open[-1] if own.open else Phase.OTHER
        own.spent[Phase.CONFIRMING if Phase.CONFIRMING in own.open else innermost, innermost] += now - own.since
        own.since = now
        return own

    @property
    def wall_seconds(self) -> float:
        """The time since the stopwatch was created."""
        return self._clock() - self._created

    @property
    def seconds(self) -> dict[Phase, float]:
        """The seconds of each phase so far, of all threads. In a run of one thread, their sum is the wall time."""
        self._count()
        spent = dict.fromkeys(Phase, 0.0)
        for count in self._counts:
            for (phase, _), seconds in list(count.spent.items()):
                spent[phase] += seconds
        return spent

    @property
    def seconds_of_cases(self) -> float:
        """This thread's seconds so far, without the start of zygotes and shared set-ups, which serve several cases."""
        common = (Phase.STARTING, Phase.SHARED_SETUP)
        return sum(seconds for (_, innermost), seconds in self._count().spent.items() if innermost not in common)


# The load of processors by other programs


_STAT = Path("/proc/stat")
_STEALS = 8
"""Field of a processor in ``/proc/stat`` with the time that the host took, in ticks. Fields 4 and 5 have the idle time."""
_COARSE_LOAD = 0.025, 0.02
"""Seconds, and a share of the time, by which the load of others is not known: the ticks of both readings, and what
processes use before and after their rounds."""


class Load:
    """Tells how long other programs run on these processors, from now on."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = tuple(cpus)
        self._began, self._idle = time.monotonic(), self._read()
        self._ended, self._idle_at_end = self._began, self._idle

    def end(self) -> None:
        """End the time that `foreign` is about."""
        self._ended, self._idle_at_end = time.monotonic(), self._read()

    def foreign(self, used: int) -> float:
        """Return the nanoseconds that other programs have run, 0 if that is within the resolution of the reading.

        The result is infinite where the system does not report it. ``used`` is the processor time of the race, in nanoseconds.
        """
        if self._idle_at_end is None or self._idle is None:
            return math.inf
        elapsed = self._ended - self._began
        foreign = len(self._cpus) * elapsed - (self._idle_at_end - self._idle) - used * 1e-9
        return foreign * 1e9 if foreign > _COARSE_LOAD[0] + _COARSE_LOAD[1] * elapsed else 0.0

    def _read(self) -> float | None:
        """Return for how many seconds the processors had nothing to do, or were taken away by the host of a virtual machine."""
        try:
            rows = [line.split() for line in _STAT.read_text().splitlines() if line.startswith("cpu")]
            ticks = {row[0]: int(row[4]) + int(row[5]) + int(row[_STEALS]) for row in rows}
            return sum(ticks[f"cpu{cpu}"] for cpu in self._cpus) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, LookupError):
            return None


# The interrupts of the system's timer: when they happen, and the times of blocks without them


_COARSE = 6
"""CLOCK_MONOTONIC_COARSE of <linux/time.h>, which goes on at every interrupt of the timer."""
_LOOKS = 60
"""Interrupts that are watched at most. Beside four busy processes, half of them are seen late."""
_AGREEING = 15
"""Interrupts that must be seen together. Of 60, 28 to 44 were seen together in time, and at most 9 together but late."""
_TOGETHER = 40
"""Part of the period within which interrupts are seen together, as its divisor: 0.1 ms of 4 ms."""
_GIVE_UP = 10
"""Periods after which a clock that has not gone on stands still."""
_SHORT = 0.5
"""Longest blocks, as a fraction of the period. An interrupt is a small part of the noise of longer ones."""

Blocks = Sequence[tuple[int, int]]
"""Begin and end of each block in nanoseconds of `time.perf_counter_ns`."""


@dataclass(frozen=True)
class Timer:
    """A timer that interrupts all processors at the same times. Nanoseconds of `time.perf_counter_ns`."""

    period: int
    phase: int
    """When an interrupt happens, from 0 to the period."""

    def interrupts(self, blocks: Blocks) -> list[int]:
        """Return how many interrupts each block contains."""
        return [(end - self.phase) // self.period - (begin - self.phase) // self.period for begin, end in blocks]

    def shortened(self, blocks: Mapping[int, Blocks]) -> dict[int, list[float]]:
        """Return the times of each side's blocks without the interrupts in them, in nanoseconds."""
        times = {side: np.array([end - begin for begin, end in of_side], float) for side, of_side in blocks.items()}
        quiet = [*times.values()]
        if all(np.median(of_side) <= _SHORT * self.period for of_side in quiet):
            quiet = without_interrupts(quiet, [np.array(self.interrupts(of_side)) for of_side in blocks.values()])
        return {side: of_side.tolist() for side, of_side in zip(times, quiet, strict=True)}


@lru_cache(maxsize=1)
def timer() -> Timer | None:
    """Return the timer of this machine, ``None`` if its interrupts cannot be watched. It takes a few periods.

    Linux' timer interrupts all processors at once, every 1 to 10 ms. Where it does not, as with the kernel's parameter
    ``skew_tick``, blocks with a supposed interrupt are as fast as others, and nothing is taken from them.
    """
    try:
        period = round(time.clock_getres(_COARSE) * 1e9)
        phase = _phase(period) if period else None
    except OSError:
        return None
    return None if phase is None else Timer(period, phase)


def _phase(period: int) -> int | None:
    """Return when interrupts happen, from 0 to the period; ``None`` if too few of them agree.

    Each is seen shortly after it happened, apart from those during which another process ran. The result is the first
    of the moments that lie close together.
    """
    seen: list[int] = []
    for _ in range(_LOOKS):
        moment = _next_change(_GIVE_UP * period)
        if moment is None:
            return None
        seen.append(moment)
        together = [sum((other - candidate) % period < period // _TOGETHER for other in seen) for candidate in seen]
        if (most := max(together)) >= _AGREEING:
            return seen[together.index(most)] % period
    return None


def _next_change(limit: int) -> int | None:
    """Return when the coarse clock goes on; ``None`` if it does not within so many nanoseconds."""
    coarse, began = time.clock_gettime_ns(_COARSE), time.perf_counter_ns()
    while time.clock_gettime_ns(_COARSE) == coarse:
        if time.perf_counter_ns() - began > limit:
            return None
    return time.perf_counter_ns()
