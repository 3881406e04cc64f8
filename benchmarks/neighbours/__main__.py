"""Race steps of known ratios alone and beside busy loops on the same processor, and tell how often the truth is in the interval."""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from tfbench.model import Case, Outcome
from tfbench.plugin.options import available_cpus
from tfbench.policy import Policy, preset
from tfbench.race.lanes import processors
from tfbench.race.launch import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig, pairs_of
from tfbench.race.workers import Suite
from tfbench.sides.spec import Side

ROOT = Path(__file__).resolve().parents[2]
STEPS = "benchmarks/neighbours/test_steps.py"
PAIRS = {
    "loop 10 us": ("test_loop[800]", "test_loop[816]"),
    "loop 0.1 ms": ("test_loop[8000]", "test_loop[8800]"),
    "loop 5 ms, 1 ms": ("test_loop[420000]", "test_loop[60000]"),
    "loop 1 ms, 20 ms": ("test_loop[80000]", "test_loop[1600000]"),
    "loop 5 ms": ("test_loop[420000]", "test_loop[441000]"),
    "loop 100 ms": ("test_loop[8000000]", "test_loop[10400000]"),
    "matmul 1 ms, 4 ms": ("test_matmul[4]", "test_matmul[20]"),
    "matmul 10 ms": ("test_matmul[40]", "test_matmul[60]"),
    "dataset 2 ms, 10 ms": ("test_dataset[32]", "test_dataset[160]"),
    "dataset 40 ms": ("test_dataset[800]", "test_dataset[960]"),
    "first element": ("test_first_element[1]", "test_first_element[256]"),
}
LOADS = (0, 2, 4, 8)
SECONDS = 15.0
"""Time of the launches of a race."""


@contextmanager
def busy(number: int, cpu: int) -> Iterator[None]:
    """Run so many busy loops on a processor."""
    pin = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", pin]) for _ in range(number)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def race(launcher: ProcessLauncher, pair: str, policy: Policy, seed: int) -> dict[str, object]:
    """Race the steps of a pair, and return the row of the journal."""
    names = [f"{STEPS}::{name}" for name in PAIRS[pair]]
    sides = [Side("baseline", sys.executable, ROOT), Side("contender", sys.executable, ROOT)]
    entrants = [Entrant(Case(name, name, name), side) for name, side in zip(names, sides, strict=True)]
    config = RaceConfig(1, pairs_of(entrants, policy))
    began = time.monotonic()
    raced = Race(entrants, launcher, policy, config, time.monotonic, random.Random(seed))
    raced.start()
    raced.run()
    decision = raced.decisions.get(1)
    if decision is None:
        return {"failed": [str(error) for error in raced.failures.values()]}
    ratio, reason = decision.comparison.ratio, decision.reason
    return {
        "ratio": [ratio.low, ratio.center, ratio.high],
        "outcome": decision.outcome.value if decision.outcome else None,
        "reason": str(reason),
        "launches": decision.comparison.launches,
        "milliseconds": [1e3 * median(s for run in raced.runs(entrant) for s in run.seconds) for entrant in (0, 1)],
        "seconds": time.monotonic() - began,
    }


def table(rows: list[dict]) -> str:
    """Return for each pair and load the median ratio, and how many intervals hold the truth, which quiet races tell."""
    lines = [f"{'':22}{'truth':>8}" + "".join(f"{load:>20}" for load in LOADS)]
    held = count = 0
    for pair in PAIRS:
        of_pair = [row for row in rows if row["pair"] == pair and "ratio" in row]
        quiet = [row["ratio"][1] for row in of_pair if not row["neighbours"]]
        if not quiet:
            continue
        truth, line = median(quiet), ""
        for load in LOADS:
            some = [row for row in of_pair if row["neighbours"] == load]
            good = [row for row in some if row["ratio"][0] <= truth <= row["ratio"][2]]
            open_ = sum(row["outcome"] in (None, Outcome.INCONCLUSIVE.value) for row in some)
            center = median([row["ratio"][1] for row in some] or [math.nan])
            line += f"{f'{center:.3f} {len(good)}/{len(some)} open {open_}':>20}"
            held, count = held + len(good), count + len(some)
        lines.append(f"{pair:22}{truth:8.3f}{line}")
    return "\n".join([*lines, f"the truth lies in {held} of {count} intervals ({held / max(1, count):.1%})"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours", description=__doc__)
    parser.add_argument("--journal", type=Path, required=True, help="file of the races; those in it are not repeated")
    parser.add_argument("--repetitions", type=int, default=5, help="races of each pair and number of neighbours")
    parser.add_argument("--seconds", type=float, default=460.0, help="start no race after this time")
    parser.add_argument("-k", default="", help="only pairs with this text in their name")
    arguments = parser.parse_args()
    known = (
        [json.loads(line) for line in arguments.journal.read_text().splitlines()] if arguments.journal.exists() else []
    )
    done = {(row["pair"], row["neighbours"], row["repetition"]) for row in known}
    wanted = [
        (pair, load, repetition)
        for repetition in range(arguments.repetitions)
        for load in LOADS
        for pair in PAIRS
        if arguments.k in pair
    ]
    left = [one for one in wanted if one not in done]
    policy = replace(preset("quick"), case_seconds=SECONDS).with_common_ancestors()
    began = time.monotonic()
    lanes = processors(None, available_cpus())
    launcher = ProcessLauncher(Suite((STEPS,), "pytest.ini", "importlib", "", available_cpus()), policy, lanes)
    try:
        for number, (pair, load, repetition) in enumerate(left):
            if time.monotonic() - began > arguments.seconds:
                break
            with busy(load, lanes.one[0]):
                row = race(launcher, pair, policy, repetition)
            row = {"pair": pair, "neighbours": load, "repetition": repetition, **row}
            with arguments.journal.open("a") as file:
                file.write(json.dumps(row) + "\n")
            known.append(row)
            print(
                f"{len(wanted) - len(left) + number + 1} of {len(wanted)}: {pair}, {load} neighbours: "
                f"{row.get('ratio')} {row.get('outcome')} {row.get('failed', '')} {row.get('seconds', 0):.1f} s",
                flush=True,
            )
    finally:
        launcher.close()
    print(table(known))


if __name__ == "__main__":
    main()
