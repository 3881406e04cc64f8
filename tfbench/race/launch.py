"""One launch: fresh processes, warmed one after the other, racing in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from tfbench.errors import BenchmarkError, BenchmarkSkipped
from tfbench.model import Launch, Plan, Run
from tfbench.race.interfaces import Clock, Entrant, Launcher, Prepared
from tfbench.race.schedule import orders

Failure = BenchmarkError | BenchmarkSkipped
Planner = Callable[[Mapping[int, Prepared]], Plan]


def run_launch(
    entrants: Sequence[Entrant],
    active: Sequence[int],
    launcher: Launcher,
    pair: int,
    planner: Planner,
    clock: Clock,
    rng: random.Random,
    least: int,
) -> tuple[Launch | None, dict[int, Failure]]:
    """Race the active entrants once; those that break are named and the others go on.

    Args:
        active: Indices of the entrants that take part.
        planner: From what the warm-up saw to the plan of the rounds.
        least: With fewer entrants left than this there is nothing to time.

    Raises:
        LaunchDisturbed: The launch does not count, whoever took part.

    Returns:
        The launch, or ``None`` if it could not be finished, and who broke.
    """
    failures: dict[int, Failure] = {}
    opened = launcher.open(entrants, pair)
    began = clock()  # zygotes that had to be started for it are no cost of this case
    try:
        prepared: dict[int, Prepared] = {}
        for entrant in rng.sample(list(active), len(active)):
            try:
                prepared[entrant] = opened.prepare(entrant)
            except (BenchmarkError, BenchmarkSkipped) as error:
                failures[entrant] = error
        if len(prepared) < least:
            return None, failures
        plan = planner(prepared)
        try:
            seconds = opened.rounds(plan, orders(sorted(prepared), plan.rounds, rng))
            opened.close()
        except BenchmarkError as error:
            if error.entrant is None:
                raise
            failures[error.entrant] = error
            return None, failures
        runs = tuple(
            Run(tuple(seconds[index]), plan.iterations[index], prepared[index].facts) if index in seconds else None
            for index in range(len(entrants))
        )
        return Launch(pair, runs, clock() - began), failures
    finally:
        opened.kill()
