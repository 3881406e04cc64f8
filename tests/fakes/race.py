"""A clock that nobody waits for and entrants that follow a script: the race without time passing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from tfbench.errors import BenchmarkError
from tfbench.model import JSON, Case, Plan
from tfbench.race.interfaces import Entrant, OpenLaunch, Prepared
from tfbench.sides.side import Side

Script = Callable[[int, int, random.Random], float]
"""From launch number and pair to the seconds that one iteration takes in that launch."""


class Clock:
    """Seconds that pass only when somebody lets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ScriptedLauncher:
    """Opens launches whose entrants take the time that their scripts say."""

    def __init__(self, clock: Clock, scripts: Sequence[Script], seed: int = 0, launch_seconds: float = 0.7) -> None:
        self.clock = clock
        self.scripts = scripts
        self.rng = random.Random(seed)
        self.launch_seconds = launch_seconds
        self.pairs: list[int] = []
        self.active: list[list[int]] = []
        self.memory: Sequence[Script] = ()
        """Bytes that each entrant's process takes at most."""
        self.broken: dict[int, Exception] = {}
        """Entrant -> what its preparation raises."""
        self.dies_at: dict[int, int] = {}
        """Entrant -> the launch in which it dies while racing."""
        self.killed = 0

    def open(self, entrants: Sequence[Entrant], pair: int) -> OpenLaunch:
        self.pairs.append(pair)
        self.active.append([])
        return ScriptedLaunch(self, len(self.pairs) - 1, pair)


class ScriptedLaunch:
    def __init__(self, launcher: ScriptedLauncher, number: int, pair: int) -> None:
        self.launcher, self.number, self.pair = launcher, number, pair

    def _seconds(self, entrant: int) -> float:
        return self.launcher.scripts[entrant](self.number, self.pair, self.launcher.rng)

    def prepare(self, entrant: int) -> Prepared:
        if entrant in self.launcher.broken:
            raise self.launcher.broken[entrant]
        self.launcher.active[-1].append(entrant)
        facts: JSON = {"first_call": 0.1}
        if self.launcher.memory:
            facts["peak_host_memory"] = self.launcher.memory[entrant](self.number, self.pair, self.launcher.rng)
        return Prepared(1e-4, facts)

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        self.launcher.clock.now += self.launcher.launch_seconds
        for entrant in orders[0]:
            if self.launcher.dies_at.get(entrant) == self.number:
                raise BenchmarkError("died", entrant=entrant)
        typical = {entrant: self._seconds(entrant) for entrant in orders[0]}
        rng = self.launcher.rng
        return {entrant: [seconds * (1 + rng.expovariate(200)) for _ in orders] for entrant, seconds in typical.items()}

    def close(self) -> None:
        pass

    def kill(self) -> None:
        self.launcher.killed += 1


def steady(seconds: float, deviation: float = 0.004) -> Script:
    """A step that takes so long, with launches that differ by this deviation."""
    return lambda number, pair, rng: seconds * (1 + rng.gauss(0, deviation))


def sides_of(case: Case, slowdown: float = 0.0) -> list[Entrant]:
    """The same case on two sides."""
    return [
        Entrant(case, Side("baseline", "python", Path("/"))),
        Entrant(case, Side("contender", "python", Path("/"), slowdown=slowdown)),
    ]


def variants_of(*labels: str) -> list[Entrant]:
    """Cases of one workload on one side."""
    side = Side("contender", "python", Path("/"))
    return [
        Entrant(Case(f"w.py::w[a={label}]", "w", "w.py::w", (("a", label),), number == 0), side)
        for number, label in enumerate(labels)
    ]
