"""Run a calibration: repeatedly start fresh zygotes and decide on each workload, unchanged and slowed down."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench.doctor.calibration import pytest_benchmark
from tfbench.doctor.calibration.journal import RACED, CalibrationTrial, Journal, slowdown_text
from tfbench.doctor.calibration.selection import Selection
from tfbench.errors import BenchmarkError
from tfbench.model import TIME, Case, SlowCalls
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.race.workers import Suite
from tfbench.sides.environments import Environments, kept
from tfbench.sides.side import Side
from tfbench.sides.spec import parse
from tfbench.storage.layout import Layout

WORKLOADS = Path(__file__).resolve().parents[2] / "worker" / "workloads"
USUAL, UNSEEN = "test_raced.py", "test_unseen.py"
"""Files of the workloads that thresholds were chosen on, and of those of other kinds."""
SLOWDOWNS = (0.02, 0.03, 0.05, 0.10)
TAILS = {
    "5% x10": SlowCalls(0.05, 10),
    "10% x5": SlowCalls(0.1, 5),
    "33% x2": SlowCalls(1 / 3, 2),
    "2% x60": SlowCalls(0.02, 60),
    "25% wait": SlowCalls(0.25, 5 / 3, waits=True),
}
"""Injected slow calls, in turn: they leave the median of most steps where it is, and raise the mean by 17 to 118%."""
SAVED_SLOWDOWNS = (0.0, 0.05, 0.0, 0.10)
"""Slowdowns of pytest-benchmark's runs, in turn."""
_SEPARATE = {"TFBENCH_SEPARATE": "1"}
"""Environment of one side only, which keeps the sides from having common ancestors."""


@dataclass(frozen=True)
class Plan:
    """The settings of a calibration."""

    policy: Policy
    cases: int
    """Size of the suite whose alpha is shared: a verdict in a suite of thirty is stricter than a single one."""
    processors: Processors
    cpus: tuple[int, ...]
    slowdowns: tuple[float, ...]
    tails: bool
    """Whether slow calls are injected."""
    repeats: int
    """Verdicts on unchanged code per verdict on slowed code, in each run."""
    variants: bool
    """Whether both entrants come from one zygote without confirmation, as in a comparison of variants."""
    separate: bool
    """Whether each side imports TensorFlow itself, as two versions do."""
    against: str
    """Specification of the baseline, ``self`` for the same files. Whatever it is, it counts as unchanged code."""
    saved: bool
    """Whether pytest-benchmark's method runs too, in every second run."""
    root: Path
    files: tuple[str, ...]
    chosen: Selection


def calibrate(
    plan: Plan, journal: Journal, seconds: float, progress: Callable[[str, int], None], rng: random.Random
) -> None:
    """Add trials to the journal until the time is up. The trial in progress then is completed.

    Args:
        progress: Called with the current activity and the number of verdicts in the journal.
    """
    if seconds <= 0:
        return
    began = time.monotonic()
    trials = journal.read()
    saved: list[pytest_benchmark.SavedRun] = []

    def keep(*found: CalibrationTrial) -> None:
        trials.extend(found)
        journal.append(*found)

    def tell(text: str) -> None:
        progress(text, len(trials))

    with Environments(kept(), tell) as environments:
        sides = _sides(plan, environments)
        number = 1 + max((trial.run for trial in trials), default=-1)
        while time.monotonic() - began < seconds:
            for trial in _one_run(plan, sides, number, rng, tell):
                keep(trial)
                if time.monotonic() - began > seconds:
                    break
            if plan.saved and number % 2 == 0:
                tell("pytest-benchmark, for comparison")
                slowdown = SAVED_SLOWDOWNS[len(saved) % len(SAVED_SLOWDOWNS)]
                saved.append(pytest_benchmark.measure(WORKLOADS / "test_saved.py", slowdown))
                keep(*pytest_benchmark.compare(saved, number))
            number += 1


def _sides(plan: Plan, environments: Environments) -> tuple[Side, Side]:
    """Return the baseline and the contender."""
    contender = Side("contender", sys.executable, plan.root)
    if plan.variants:
        return contender, contender
    baseline = parse(plan.against, contender, Layout.of(Path.cwd()).trees, environments)
    return (replace(baseline, env={**baseline.env, **_SEPARATE}) if plan.separate else baseline), contender


def _one_run(
    plan: Plan, sides: tuple[Side, Side], number: int, rng: random.Random, progress: Callable[[str], None]
) -> Iterator[CalibrationTrial]:
    """Yield the trials of one run, which has its own zygotes and a random order of workloads."""
    made = Layout.of(Path.cwd()).shared_set_ups  # beside the journal
    suite = Suite(plan.files, "", "importlib", str(made), plan.cpus)
    baseline, contender = sides
    with closing(ProcessLauncher(suite, plan.policy, plan.processors)) as launcher:
        progress(f"run {number}: starting zygotes")
        none = Case("", "", "")
        policy = launcher.policy_of(plan.policy, [Entrant(none, baseline), Entrant(none, contender)])
        pairs = range(min(policy.zygotes, policy.looks[0]))
        launcher.ready([(baseline, ()), (contender, ())], pairs)
        names = plan.chosen.of(sorted(launcher.zygote(Entrant(none, contender), 0).cases))
        jobs: list[tuple[str, float, str]] = [(name, 0.0, "") for name in names for _ in range(plan.repeats)]
        if turn := plan.slowdowns:
            jobs += [(name, turn[(number + index) % len(turn)], "") for index, name in enumerate(names)]
        if plan.tails:
            kinds = tuple(TAILS)
            jobs += [(name, 0.0, kinds[(number + index) % len(kinds)]) for index, name in enumerate(names)]
        for name, slowdown, kind in rng.sample(jobs, len(jobs)):
            case, short = Case(name, name, name), _short(name)
            how = f" slowed by {slowdown_text(slowdown)}" if slowdown else f" with slow calls {kind}" if kind else ""
            progress(f"run {number}: {short}{how}")
            slowed = replace(contender, slowdown=slowdown, slow_calls=TAILS.get(kind))
            entrants = [Entrant(case, baseline), Entrant(case, slowed)]
            confirm = not plan.variants
            race = ConfirmedRace(entrants, launcher, policy, plan.cases, time.perf_counter, rng, confirm, (TIME,))
            race.run()
            if race.decision is None or race.decision.outcome is None:
                failure = next(iter(race.failures.values()), "the race ended without a decision")
                raise BenchmarkError(f"{name}: {failure}")
            outcome, seconds = race.decision.outcome.value, round(race.wall_seconds, 3)
            effects = [effect for stage in race.races for effect in stage.effects(1)]
            yield CalibrationTrial(
                RACED, plan.policy.name, short, slowdown, outcome, seconds, race.launches, number,
                tuple(round(effect.value, 6) for effect in effects), tuple(effect.pair for effect in effects),
                tuple(round(effect.error, 6) for effect in effects),
                tuple(stage.decisions[1].comparison.ratio for stage in race.races), kind,
            )  # fmt: skip


def _short(name: str) -> str:
    file, _, rest = name.partition("::")
    return rest.removeprefix("test_step[").removesuffix("]").removeprefix("test_") if file in (USUAL, UNSEEN) else name


@contextmanager
def background_load(cpus: Sequence[int], worker: Sequence[int]) -> Iterator[None]:
    """Keep the processors other than the worker's busy, each with a process that computes and moves memory."""
    program = (
        "import os, sys, numpy\n"
        "os.sched_setaffinity(0, [int(sys.argv[1])])\n"
        "parent = int(sys.argv[2])\n"
        "a = numpy.random.default_rng(0).random((600, 600)); b = numpy.zeros(4_000_000)\n"
        "while os.getppid() == parent:\n    a = a @ a; a /= a.max(); b += 1\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(cpu), str(os.getpid())])
        for cpu in cpus
        if cpu not in worker
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
