"""A clock that tests advance and entrants that follow a script, for races without real time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfbench.errors import BenchmarkError, LaunchDisturbed
from tfbench.model import BESIDE, JSON, ONCE, RESTLESS, RETRACED, SET_LATE, WAITED, Case, Plan, SlowCalls
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.race.launch import Entrant, EntrantFailed, Failure
from tfbench.race.race import Race, RaceConfig
from tfbench.race.timer import Stopwatch
from tfbench.sides.spec import Side

Script = Callable[[int, int, random.Random], float]
"""Maps launch number and pair of zygotes to the seconds of one iteration in that launch."""


class Clock:
    """Seconds that pass only if a test adds them to ``now``."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ScriptedLauncher:
    """Opens launches whose entrants take the times of their scripts."""

    def __init__(self, clock: Clock, scripts: Sequence[Script], seed: int = 0, launch_seconds: float = 0.7) -> None:
        self.clock = clock
        self.stopwatch = Stopwatch(clock)
        self.scripts = scripts
        self.rng = random.Random(seed)
        self.launch_seconds = launch_seconds
        self.started: list[int] = []
        """Pairs of zygotes that races have started ahead of their launches."""
        self.pairs: list[int] = []
        self.launches: list[ScriptedLaunch] = []
        self.active: list[list[int]] = []
        self.memory: Sequence[Script] = ()
        """Peak memory of each entrant's process, in bytes."""
        self.first_calls: Sequence[Script] = ()
        """Seconds of each entrant's first call; 0.1 by default."""
        self.warm_ups: Sequence[Script] = ()
        """Seconds of each entrant's warm-up, which brief launches do not have."""
        self.disturbed_from = math.inf
        """Launch from which on every launch is disturbed."""
        self.broken: dict[int, Failure] = {}
        """Entrant -> exception of its preparation."""
        self.dies_at: dict[int, int] = {}
        """Entrant -> launch in which it dies while racing."""
        self.slow: dict[int, SlowCalls] = {}
        """Entrant -> its slow calls."""
        self.step = Prepared(1e-4, {})
        """What each process is ready with, besides its facts."""
        self.works_on: Mapping[int, Sequence[int]] = {}
        """Launch -> entrants whose processes work on after a step."""
        self.waits: dict[int, float] = {}
        """Entrant -> share that it waits in launches whose entrants take turns."""
        self.late_waits: dict[int, float] = {}
        """The same in the others."""
        self.beside: dict[int, float] = {}
        """Entrant -> processor seconds per call that it leaves to threads."""
        self.restless: Sequence[int] = ()
        """Entrants whose threads never rest."""
        self.traces: Sequence[int] = ()
        """Entrants whose calls trace functions again."""
        self.late: Mapping[int, Mapping[str, str]] = {}
        """Entrant -> variables that it sets late; one without a value has another in each launch."""
        self.once: Sequence[int] = ()
        """Entrants that measure their step once."""
        self.preparation_seconds = 0.0
        """Time that the preparation of each entrant takes."""
        self.killed = 0

    def start_pairs(self, entrants: Sequence[Entrant], pairs: Sequence[int]) -> None:
        self.started += pairs

    def open(self, entrants: Sequence[Entrant], pair: int) -> ScriptedLaunch:
        self.pairs.append(pair)
        self.active.append([])
        self.launches.append(ScriptedLaunch(self, len(self.pairs) - 1, pair))
        return self.launches[-1]

    def policy_of(self, policy: Policy, entrants: Sequence[Entrant]) -> Policy:
        return policy


class ScriptedLaunch:
    def __init__(self, launcher: ScriptedLauncher, number: int, pair: int) -> None:
        self.launcher, self.number, self.pair = launcher, number, pair
        self.facts: dict[int, JSON] = {}
        self.preempted: dict[int, dict[int, float]] = {}
        self.ahead: ScriptedLaunch | None = None
        """The launch that was to make its first calls at the same time."""
        self.equal = False
        """Whether both sides were to make equally many calls."""

    def _seconds(self, entrant: int) -> float:
        return self.launcher.scripts[entrant](self.number, self.pair, self.launcher.rng)

    def prepare(
        self,
        entrants: Sequence[int],
        brief: bool = False,
        together: bool = True,
        ahead: ScriptedLaunch | None = None,
        equal: bool = False,
    ) -> dict[int, Prepared | Failure]:
        self.ahead, self.equal = ahead, equal
        return {entrant: self._prepared(entrant, together, brief) for entrant in entrants}

    def _prepared(self, entrant: int, together: bool, brief: bool) -> Prepared | Failure:
        self.launcher.clock.now += self.launcher.preparation_seconds
        if entrant in self.launcher.broken:
            return self.launcher.broken[entrant]
        self.launcher.active[self.number].append(entrant)
        facts: JSON = {}
        if together:
            scripts = self.launcher.first_calls
            facts["first_call"] = scripts[entrant](self.number, self.pair, self.launcher.rng) if scripts else 0.1
        if self.launcher.memory:
            facts["peak_host_memory"] = self.launcher.memory[entrant](self.number, self.pair, self.launcher.rng)
        if self.launcher.warm_ups and not brief:
            facts["warm_up"] = self.launcher.warm_ups[entrant](self.number, self.pair, self.launcher.rng)
        if entrant in self.launcher.once:
            facts[ONCE] = True
        self.facts[entrant] = facts
        return replace(self.launcher.step, facts=facts, works_on=entrant in self.launcher.works_on.get(self.number, ()))

    def rounds(self, plan: Plan, orders: Sequence[Sequence[int]]) -> dict[int, list[float]]:
        self.launcher.clock.now += self.launcher.launch_seconds
        if self.number >= self.launcher.disturbed_from:
            raise LaunchDisturbed("a busy neighbour")
        for entrant in orders[0]:
            if self.launcher.dies_at.get(entrant) == self.number:
                raise EntrantFailed(entrant, BenchmarkError("died"))
        typical = {entrant: self._seconds(entrant) for entrant in orders[0]}
        rng = self.launcher.rng
        self.plan = plan
        for entrant, share in (self.launcher.late_waits if plan.sliced else self.launcher.waits).items():
            self.facts[entrant][WAITED] = share
        for entrant, seconds in self.launcher.beside.items():
            self.facts[entrant][BESIDE] = seconds
        for entrant in self.launcher.restless:
            self.facts[entrant][RESTLESS] = True
        for entrant, variables in self.launcher.late.items():
            self.facts[entrant][SET_LATE] = [f"{name}={value or self.number}" for name, value in variables.items()]
        for entrant in self.launcher.traces:
            self.facts[entrant][RETRACED] = True
        return {
            entrant: [seconds * (1 + rng.expovariate(200)) * self._slowness(entrant) for _ in range(plan.rounds)]
            for entrant, seconds in typical.items()
        }

    def _slowness(self, entrant: int) -> float:
        slow = self.launcher.slow.get(entrant)
        return slow.factor if slow and self.launcher.rng.random() < slow.share else 1.0

    def kill(self) -> None:
        self.launcher.killed += 1


def scripted_race(
    entrants: Sequence[Entrant], scripts: Sequence[Script] = (), policy: Policy | None = None,
    pairs: Sequence[int] = range(4), cases: int = 1, seed: int = 0, **scripted: Any,
) -> tuple[Race, ScriptedLauncher]:  # fmt: skip
    """Return a race that has not begun, and its launcher with these other attributes."""
    launcher = ScriptedLauncher(Clock(), scripts, seed)
    vars(launcher).update(scripted)
    config = RaceConfig(cases, pairs)
    return Race(entrants, launcher, policy or Policy(), config, launcher.clock, random.Random(0)), launcher


def steady(seconds: float, deviation: float = 0.004) -> Script:
    """Return the script of a step with this mean time and relative deviation between launches."""
    return lambda number, pair, rng: seconds * (1 + rng.gauss(0, deviation))


def sides_of(case: Case, slowdown: float = 0.0) -> list[Entrant]:
    """Return the entrants of the same case on two sides."""
    return [
        Entrant(case, Side("baseline", "python", Path("/"))),
        Entrant(case, Side("contender", "python", Path("/"), slowdown=slowdown)),
    ]


def variants_of(*labels: str) -> list[Entrant]:
    """Return the entrants of one workload's cases on one side."""
    side = Side("contender", "python", Path("/"))
    return [
        Entrant(Case(f"w.py::w[a={label}]", "w", "w.py::w", (("a", label),), number == 0), side)
        for number, label in enumerate(labels)
    ]
