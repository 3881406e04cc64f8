"""One launch: fresh processes, which are warmed up and then race in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tfbench.errors import BenchmarkError
from tfbench.model import ONCE, Launch, Plan, Run
from tfbench.protocol.messages import Prepared
from tfbench.race.interfaces import Clock, Entrant, EntrantFailed, Failure, OpenLaunch
from tfbench.race.schedule import orders
from tfbench.race.stopwatch import Phase, Stopwatch

Planner = Callable[[Mapping[int, Prepared], float], Plan]
"""Plans the rounds from the results of the preparation, and the seconds that it took."""


def run_launch(
    entrants: Sequence[Entrant],
    active: Sequence[int],
    opened: OpenLaunch,
    stopwatch: Stopwatch,
    planner: Planner,
    clock: Clock,
    rng: random.Random,
    least: int,
    brief: bool = False,
    together: bool = True,
    ahead: OpenLaunch | None = None,
) -> tuple[Launch | None, dict[int, Failure]]:
    """Race the active entrants once. If an entrant breaks during its set-up, the others go on.

    Args:
        active: Indices of the entrants that take part.
        planner: Makes the plan of the rounds from the results of the warm-up.
        least: With fewer prepared entrants the launch ends without rounds.
        brief: The launch is for the first call and the peak of memory, so it warms nothing up and has one round.
        together: Two sides make their first calls at once.
        ahead: The next launch, which may make its first calls at the same time.

    Raises:
        LaunchDisturbed: The launch does not count.

    Returns:
        The launch, or ``None`` if it could not be finished, and the failures by entrant.
    """
    began = clock()
    try:
        with stopwatch.phase(Phase.PREPARING):
            order = rng.sample(list(active), len(active))
            ready = opened.prepare(order, brief, together, ahead)
        prepared = {entrant: one for entrant, one in ready.items() if isinstance(one, Prepared)}
        failures = {entrant: one for entrant, one in ready.items() if not isinstance(one, Prepared)}
        if len({bool(one.facts.get(ONCE)) for one in prepared.values()}) > 1:
            error = BenchmarkError("one side measures its step once (bench.once), and the other one repeatedly")
            return None, {**failures, **dict.fromkeys(prepared, error)}
        if len(prepared) < least:
            return None, failures
        plan = planner(prepared, clock() - began)
        if brief:
            plan = replace(plan, rounds=1)
        try:
            with stopwatch.phase(Phase.ROUNDS):
                seconds = opened.rounds(plan, orders(sorted(prepared), plan.rounds, rng))
        except EntrantFailed as error:
            return None, {**failures, error.entrant: error.failure}
        runs = tuple(
            Run(tuple(seconds[index]), plan.iterations[index], prepared[index].facts, opened.preempted.get(index, {}))
            if index in seconds
            else None
            for index in range(len(entrants))
        )
        return Launch(opened.pair, runs, clock() - began), failures
    finally:
        opened.kill()
