"""The inner loops: one timed block, and the turns of a launch. Everything here is on the hot path."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from statistics import median

Clock = Callable[[], int]
"""Nanoseconds of a clock that all processes of the machine share."""
Call = Callable[[], object]

TOKEN = b"1"


class Block:
    """A step made ready to be timed.

    Args:
        call: One iteration.
        synchronise: Waits until the device has finished; ``None`` where a call returns finished.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(self, call: Call, synchronise: Call | None, clock: Clock) -> None:
        self._call = call
        self._synchronise = synchronise
        self._clock = clock
        self.dispatched: list[int] = []
        """When each block had handed its work to the device, in nanoseconds; none where calls return finished."""

    def __call__(self, iterations: int, prime: int, extra: int, spins: int) -> tuple[int, int]:
        """Prime, then time ``iterations`` calls; returns when the block began and ended.

        ``extra`` calls and ``spins`` turns of an empty loop are done inside the timed block and
        counted by nobody: the slowdown that ``--inject-slowdown`` puts there on purpose.
        """
        call, clock = self._call, self._clock
        for _ in repeat(None, prime):
            call()
        self.wait()
        total = iterations + extra
        began = clock()
        for _ in repeat(None, total):
            call()
        if spins:
            spin(spins)
        if self._synchronise is not None:
            self.dispatched.append(clock())
            self._synchronise()
        return began, clock()

    def wait(self) -> None:
        """Until the device has finished what it was given."""
        if self._synchronise is not None:
            self._synchronise()


def spin(turns: int) -> None:
    """An empty loop: extra work finer than one iteration."""
    for _ in repeat(None, turns):
        pass


def spins_for(nanoseconds: float, clock: Clock) -> int:
    """Turns of `spin` that take this long on this processor now."""
    if nanoseconds <= 0:
        return 0
    turns, costs = 20_000, []
    for _ in range(9):
        began = clock()
        spin(turns)
        costs.append((clock() - began) / turns)
    return max(1, round(nanoseconds / median(costs)))


def slowdown(block: Block, iterations: int, prime: int, fraction: float, clock: Clock) -> tuple[int, int]:
    """How a block is made slower by a fraction: whole extra iterations, and spins for what is left.

    A block of thirty iterations does three more for a tenth. A block of one cannot: there the rest
    is an empty loop, as long as that fraction of primed blocks takes on this processor now.
    """
    surplus = fraction * iterations
    whole = math.floor(surplus + 1e-9)
    rest = (surplus - whole) / iterations
    if rest < 1e-6:
        return whole, 0
    blocks = [end - start for start, end in (block(iterations, prime, 0, 0) for _ in range(9))]
    return whole, spins_for(rest * median(blocks), clock)


@contextmanager
def gc_disabled() -> Iterator[None]:
    """No garbage collection inside; what is alive now is not looked at again."""
    was = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


def warm_up(block: Block, seconds: float, limit: float, steady: float, clock: Clock) -> float:
    """Run until the floors of two successive stretches agree within ``steady``, at most ``limit`` seconds.

    Returns:
        Median seconds of an iteration in the last stretch.
    """
    began = clock()
    first, last = block(1, 0, 0, 0)
    size = max(1, int(1e5 / max(1, last - first)))
    previous = float("inf")
    while True:
        stretch = clock()
        times: list[float] = []
        while len(times) < 2 or clock() - stretch < seconds * 5e8:
            start, end = block(size, 0, 0, 0)
            times.append((end - start) / size)
        floor = min(times)
        agreed = abs(floor - previous) <= steady * floor
        if agreed or (clock() - began) * 1e-9 > limit:
            return median(times) * 1e-9
        previous = floor


def serve_turns(
    block: Block,
    *,
    own: int,
    follow: Sequence[int],
    inbox: int,
    outboxes: Sequence[int],
    iterations: int,
    prime: int,
    extra: int,
    spins: int,
) -> tuple[list[int], list[int]]:
    """Time one block at each of one's turns and hand the turn on; nobody else is asked in between.

    Args:
        own: This entrant's index.
        follow: For each of one's turns, who has the next turn; -1 after the last turn of all.
        inbox: Descriptor that one's turn arrives on, one byte a turn.
        outboxes: Descriptor of every entrant's inbox to write to.

    Returns:
        When each block began and ended, in nanoseconds of the clock.
    """
    began, ended = [], []
    read, write = os.read, os.write
    held = False
    for following in follow:
        if not held and not read(inbox, 1):
            break
        start, end = block(iterations, prime, extra, spins)
        began.append(start)
        ended.append(end)
        held = following == own
        if not held and following >= 0:
            write(outboxes[following], TOKEN)
    return began, ended
