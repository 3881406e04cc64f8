"""Measure how many cases may race at the same time on this machine without larger errors."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

from rich.table import Table

from tfbench.doctor.noise import FILE, NUMPY, Progress, SelfRace, noise_of, own_launcher, same_code, workloads
from tfbench.errors import BenchmarkError
from tfbench.model import Case
from tfbench.policy import Policy
from tfbench.race.lanes import lanes, places, topology
from tfbench.race.launch import Clock
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.report.screen import add_columns, add_row, table
from tfbench.sides.spec import Side

STEPS = ("matmul", "elementwise")
"""A step that arithmetic limits, and one that memory limits. Caches and memory are what lanes share."""
PAIRS = 2
"""Pairs of zygotes, which all lanes fork from."""


@dataclass(frozen=True)
class LaneTest:
    """Launches of the same code in one lane while the others rest, and in all lanes at the same time."""

    count: int
    """Number of lanes."""
    alone: dict[str, float]
    """Name of a step -> standard deviation of a launch's log-ratio while the other lanes rest."""
    beside: dict[str, float]
    """The same while all lanes race."""
    launches: int
    """Launches of each step while the other lanes rest. There are as many in each lane while all race."""

    @property
    def larger(self) -> float:
        """The error of a launch beside the other lanes, divided by the error without them; of the worse step."""
        return max(self.beside[step] / self.alone[step] for step in self.alone)


def counts(where: Processors) -> list[int]:
    """Return the numbers of lanes to try: 2, 4, 8 and so on, and as many as the processors have room for."""
    room = len(places(topology(where.every)))
    return [number for number in _doubled(room) if number > 1]


def _doubled(room: int) -> list[int]:
    powers = [1 << bits for bits in range(room.bit_length()) if 1 << bits < room]
    return [*powers, room]


def measure(
    tried: Sequence[int], where: Processors, policy: Policy, tell: Progress, clock: Clock = time.perf_counter
) -> list[LaneTest]:
    """Race both steps in each of these numbers of lanes, until one is too many.

    Raises:
        TfbenchError: No process could be started, or a launch failed.
    """
    both, known, began, tests = same_code(), topology(where.every), clock(), []
    with own_launcher(policy, where) as launcher:
        tell(f"starting {2 * PAIRS} zygotes", 0.0)
        launcher.ready([(side, ()) for side in both], range(PAIRS))
        cases = [case for case in workloads(launcher, both[0]) if any(_is(case.name, step) for step in STEPS)]
        if len(cases) != len(STEPS):
            raise BenchmarkError(f"{FILE.name} has {len(cases)} of the steps {', '.join(STEPS)}")
        for number in tried:
            tests.append(_tested(cases, both, lanes(where, number, known), launcher, policy, clock, tell, began))
            if tests[-1].larger > policy.lane_error:
                break
    return tests


def _is(name: str, step: str) -> bool:
    return name.endswith((f"[{step}]", f"[{NUMPY}{step}]"))


def _tested(
    cases: Sequence[Case],
    sides: Sequence[Side],
    opened: Sequence[Processors],
    launcher: ProcessLauncher,
    policy: Policy,
    clock: Clock,
    tell: Progress,
    began: float,
) -> LaneTest:
    """Alternate between launches in the first lane alone and launches in all lanes, as noise changes over minutes."""
    alone = [SelfRace(case, sides) for case in cases]
    beside = [[SelfRace(case, sides) for case in cases] for _ in opened]

    def launch(races: Sequence[SelfRace], lane: int, turn: int) -> None:
        with launcher.on(opened[lane]):
            for place in range(len(races)):
                race = races[(place + lane) % len(races)]  # neighbours race different steps
                race.launch(launcher, turn % PAIRS, policy, clock, random.Random(f"{turn} {lane}"))
                if race.failure:
                    raise BenchmarkError(f"{race.name}: {race.failure}")

    with ThreadPoolExecutor(len(opened)) as pool:
        for turn in range(policy.lane_launches):
            tell(f"racing in {len(opened)} lanes, turn {turn + 1} of {policy.lane_launches}", clock() - began)
            launch(alone, 0, turn)
            list(pool.map(launch, beside, count(), [turn] * len(opened)))
    return LaneTest(
        len(opened),
        {race.name: noise_of(race.effects, policy).launch_deviation for race in alone},
        {
            races[0].name: noise_of([effect for race in races for effect in race.effects], policy).launch_deviation
            for races in zip(*beside, strict=True)
        },
        policy.lane_launches,
    )


def borne(tests: Sequence[LaneTest], policy: Policy) -> int:
    """Return the largest number of lanes in which the error of a launch is not larger than the policy allows."""
    return max((test.count for test in tests if test.larger <= policy.lane_error), default=1)


def table_of(tests: Sequence[LaneTest], policy: Policy) -> Table:
    """Show the errors of launches by number of lanes."""
    made = table(f"Error of a launch beside other lanes, {policy.lane_launches} launches of each step in each lane")
    add_columns(made, "step")
    add_columns(made, "lanes", "alone", "beside the others", "ratio", right=True)
    for test in tests:
        for step, error in test.alone.items():
            other = test.beside[step]
            add_row(made, step, str(test.count), f"{error:.2%}", f"{other:.2%}", f"{other / error:.2f}")
    return made
