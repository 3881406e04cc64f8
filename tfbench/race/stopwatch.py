"""Measure how the wall time of a run divides into phases."""

from __future__ import annotations

import enum
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
    """Profiling launches, reading their profiles, and energy."""
    OTHER = "other"
    """The rest, such as pytest's own work and judging times."""


class Stopwatch:
    """Counts each moment since its creation for one phase.

    Phases nest. The innermost one counts, but everything inside of `Phase.CONFIRMING` counts as confirming.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._open: list[Phase] = []
        self._since = clock()
        self._spent: dict[tuple[Phase, Phase], float] = defaultdict(float)
        """Seconds by the phase that they count for and the innermost phase."""

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Count the time until the block ends for this phase. The result also decorates functions."""
        self._count()
        self._open.append(phase)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def _count(self) -> None:
        """Count the time since the last call for the phases that are open."""
        innermost = self._open[-1] if self._open else Phase.OTHER
        now = self._clock()
        self._spent[Phase.CONFIRMING if Phase.CONFIRMING in self._open else innermost, innermost] += now - self._since
        self._since = now

    @property
    def seconds(self) -> dict[Phase, float]:
        """The seconds of each phase so far. Their sum is the time since the stopwatch was created."""
        self._count()
        return {phase: sum(self._spent[phase, inner] for inner in Phase) for phase in Phase}

    @property
    def seconds_of_cases(self) -> float:
        """All seconds so far, without the start of zygotes and shared set-ups, which serve several cases."""
        self._count()
        common = (Phase.STARTING, Phase.SHARED_SETUP)
        return sum(seconds for (_, innermost), seconds in self._spent.items() if innermost not in common)
