"""Measure the harness: its share of a block, the hand-over of a turn, and the cost of a launch besides measuring."""

from __future__ import annotations

import argparse
import random
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from tfbench.model import Case, Plan
from tfbench.plugin.options import available_cpus
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.race.lanes import processors
from tfbench.race.launch import Entrant, make_plan, orders
from tfbench.race.process_launch import ProcessLaunch
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import Suite
from tfbench.sides.spec import Side

ROOT = Path(__file__).resolve().parents[2]
STEPS = "benchmarks/harness/test_steps.py"
TENSORFLOW = "benchmarks/test_linear.py"
ITERATIONS = 30
STEP_SECONDS = 10e-6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description=__doc__)
    parser.add_argument("--launches", type=int, default=8, help="launches of each measurement")
    launches = parser.parse_args().launches
    policy, rng = Policy(), random.Random(1)
    launcher = ProcessLauncher(
        Suite((STEPS, TENSORFLOW), "pytest.ini", "importlib", "", available_cpus()),
        policy,
        processors(None, available_cpus()),
    )
    sides = [Side("baseline", sys.executable, ROOT), Side("contender", sys.executable, ROOT)]

    def opened(name: str, pair: int) -> tuple[ProcessLaunch, list[Entrant]]:
        entrants = [Entrant(Case(name, name, name), side) for side in sides]
        launch = launcher.open(entrants, pair)
        assert isinstance(launch, ProcessLaunch)
        return launch, entrants

    def blocks(name: str, iterations: int, prime: int, pair: int) -> list[tuple[int, int]]:
        """Return every block of a launch of two entrants, in time order."""
        launch, _ = opened(name, pair)
        launch.prepare((0, 1))
        plan = Plan(300, (iterations,) * 2, (prime,) * 2, (0.0, 0.0))
        found = launch.blocks(plan, orders([0, 1], plan.rounds, rng))
        launch.finish()
        return sorted(block for turns in found.values() for block in turns)

    began = time.perf_counter()
    policy = policy.with_common_ancestors()
    launcher.ready([(side, ()) for side in sides], range(policy.zygotes))
    print(f"{policy.zygotes} ancestors with {2 * policy.zygotes} zygotes ready in {time.perf_counter() - began:.1f} s")

    shares, gaps, overlaps = [], [], 0
    for number in range(launches):
        empty = blocks(f"{STEPS}::test_nothing", ITERATIONS, 1, number % policy.zygotes)
        shares.append(median(end - start for start, end in empty) / (ITERATIONS * STEP_SECONDS * 1e9))
        turns = blocks(f"{STEPS}::test_ten_microseconds", ITERATIONS, 0, number % policy.zygotes)
        gaps += [after[0] - before[1] for before, after in pairwise(turns)]
        overlaps += sum(after[0] < before[1] for before, after in pairwise(turns))
    print(f"share of the harness in a block of {ITERATIONS} x 10 µs: {median(shares):.2%} (largest {max(shares):.2%})")
    tenths = quantiles(gaps, n=10)
    print(f"hand-over of a turn: median {median(gaps) / 1e3:.1f} µs, p90 {tenths[8] / 1e3:.1f} µs")
    print(f"blocks that overlap: {overlaps} of {len(gaps)}")

    overheads = []
    for number in range(launches):
        start = time.perf_counter()
        launch, entrants = opened(
            f"{TENSORFLOW}::test_matmul[compiler=none,precision=float32]", number % policy.zygotes
        )
        iteration = {index: one.iteration for index, one in launch.prepare((0, 1)).items() if isinstance(one, Prepared)}
        plan = make_plan(entrants, iteration, policy)
        measuring = time.perf_counter()
        launch.blocks(plan, orders([0, 1], plan.rounds, rng))
        measured = time.perf_counter()
        launch.finish()
        overheads.append(time.perf_counter() - start - (measured - measuring))
    print(
        f"a launch of two matmuls, besides measuring: median {median(overheads):.2f} s, largest {max(overheads):.2f} s"
    )
    launcher.close()


if __name__ == "__main__":
    main()
