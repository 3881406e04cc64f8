"""Race the same code against itself, to measure the noise of this machine and the slowdown that it hides."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from rich.table import Table
from scipy.stats import norm

from tfbench.doctor import checks
from tfbench.doctor.checks import Counters, Finding, Machine, State
from tfbench.errors import BenchmarkError, TfbenchError
from tfbench.model import Case, Effect, Outcome, Ratio
from tfbench.model.words import change, duration, ends, factor, times
from tfbench.policy import Policy
from tfbench.race.lanes import Processors
from tfbench.race.launch import Clock, Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.race.workers import Suite
from tfbench.report.screen import add_row, right, table
from tfbench.sides.spec import Side
from tfbench.stats.alpha_spending import case_alpha
from tfbench.stats.interval import interval
from tfbench.stats.verdict import classify

# Estimate the noise of launches, and the smallest slowdown that a policy detects in it. Pure


CASES = 30
"""Size of the suite whose alpha is shared, the same as in `tfbench calibrate`."""
PAIRS = 6
"""Pairs of zygotes, and fewest launches of a workload. The deviation between fewer pairs is a guess."""
DETECTED = 0.95
"""Share of the races that must find a slowdown for it to count as detectable."""
_LOOKS = 1.3
"""By so much a race needs a larger effect than a single test after its last launch: its looks share alpha, and it estimates
its own noise. Simulated races at eight levels of noise needed 1.2 to 1.4 times as much."""
_BLIND = 0.05
"""A gate must find slowdowns of this size. If noise hides them in the median workload, the machine is not fit."""
_FAR = 3.0
_NORMAL_MAD = 1.4826


@dataclass(frozen=True)
class Noise:
    """The noise of the launches of a workload, as standard deviations of log-ratios, and what a policy detects in it."""

    launch_deviation: float
    zygote_deviation: float
    itself: Ratio
    """The code against itself. The interval usually contains 1."""
    detectable: float
    """The smallest slowdown that is found in 95% of the races, as a fraction."""


def noise_of(effects: Sequence[Effect], policy: Policy) -> Noise:
    """Measure the noise in launches of the same code."""
    launch, zygote = deviations(effects, policy)
    itself = interval(effects, case_alpha(policy, CASES), policy, shared_zygote=False)
    return Noise(launch, zygote, itself, detectable(launch, zygote, policy))


def detectable(launch: float, zygote: float, policy: Policy) -> float:
    """Compute the smallest slowdown that 95% of the races of a suite find, each confirmed by a second one.

    A race does not count on less noise than is usual, so deviations below the policy's count as those.
    """
    launch, zygote = max(launch, policy.launch_deviation), max(zygote, policy.zygote_deviation)
    error = math.sqrt(launch**2 / policy.looks[-1] + zygote**2 / policy.zygotes)
    quantiles = norm.ppf(1 - case_alpha(policy, CASES) / 2) + norm.ppf(math.sqrt(DETECTED))
    return float((1 + policy.minimum_effect) * math.exp(_LOOKS * quantiles * error) - 1)


def deviations(effects: Sequence[Effect], policy: Policy) -> tuple[float, float]:
    """Estimate the deviations between launches and between pairs of zygotes by an analysis of variance.

    An outlying launch first moves to three deviations from the median, as in the policy's own interval. Both are shrunk
    slightly towards the policy's usual values, which count as 1 / (2 spread^2) degrees of freedom: the logarithm of a
    deviation that was estimated from so many has this spread. This is 2 for launches and 0.8 for pairs.
    """
    away = np.array([effect.value for effect in effects])
    away -= np.median(away)
    spread = _NORMAL_MAD * float(np.median(np.abs(away)))
    far = _FAR * max(math.hypot(policy.launch_deviation, policy.zygote_deviation), spread)
    away = np.clip(away, -far, far)
    _, pair_of, counts = np.unique([effect.pair for effect in effects], return_inverse=True, return_counts=True)
    means = np.bincount(pair_of, away) / counts
    within = float(np.sum((away - means[pair_of]) ** 2))
    launch = _shrunk(within, len(away) - len(means), policy.launch_deviation, policy.launch_spread)
    # The variance of a pair's mean includes a share of the launches' own variance, which is subtracted.
    freedom = len(means) - 1
    between = float(np.sum((means - means.mean()) ** 2)) - freedom * float(np.mean(1 / counts)) * launch
    zygote = _shrunk(max(0.0, between), freedom, policy.zygote_deviation, policy.zygote_spread)
    return math.sqrt(launch), math.sqrt(zygote)


def _shrunk(squares: float, freedom: int, usual: float, spread: float) -> float:
    """Return a variance from its sum of squares and the usual deviation."""
    weight = 1 / (2 * spread**2)
    return (squares + weight * usual**2) / (freedom + weight)


# Race fixed workloads against themselves


FILE = Path(__file__).parents[1] / "worker" / "workloads" / "test_raced.py"
STEPS = ("eager_add", "elementwise", "matmul")
"""Its steps that host overhead, memory or arithmetic bound. Together they show most kinds of noise."""
NAME = "race"
"""Name of the findings."""
SECONDS = 30
"""Usual time for the races."""
_MOST = 30
"""Launches of a workload at most: more hardly change the estimated deviations."""
_IMPORT = "python -c 'import tensorflow' in this environment shows the cause"
_ROOT = Path("/")

Progress = Callable[[str, float], None]
"""Called with the current activity and the seconds of the races so far."""


@dataclass(frozen=True)
class Raced:
    """A workload that was raced against itself."""

    name: str
    failure: str = ""
    launches: int = 0
    iteration: float = 0.0
    """Median seconds of one iteration."""
    noise: Noise | None = None
    """``None`` if too few launches counted."""


def race(
    seconds: float, policy: Policy, where: Processors, progress: Progress, clock: Clock, rng: random.Random
) -> list[Raced]:
    """Start zygotes for both sides, then race each workload for its share of the time.

    The workloads are small and run on the CPU, since every process would take all of a GPU's memory.
    Raises `TfbenchError` if no process could be started, or no workload could be collected.
    """
    both = [Side(name, sys.executable, FILE.parent, env={"CUDA_VISIBLE_DEVICES": "-1"}) for name in ("a", "b")]
    suite = Suite((FILE.name,), "", "importlib", made="", cpus=where.every)
    with closing(ProcessLauncher(suite, policy, where)) as launcher:
        progress(f"starting {2 * PAIRS} zygotes", 0.0)
        launcher.ready([(side, ()) for side in both], range(PAIRS))
        if broken := launcher.zygote(Entrant(Case("", "", ""), both[0]), 0).collected.broken:
            raise BenchmarkError(next(iter(broken.values())))
        cases = [Case.named(f"{FILE.name}::test_step[{step}]") for step in STEPS]
        began = clock()
        return [
            against_itself(
                [Entrant(case, side) for side in both], launcher, seconds / len(cases), policy,
                lambda name: progress(f"racing {name} against itself", clock() - began), clock, rng,
            )
            for case in cases
        ]  # fmt: skip


def against_itself(
    entrants: Sequence[Entrant],
    launcher: ProcessLauncher,
    seconds: float,
    policy: Policy,
    progress: Callable[[str], None],
    clock: Clock,
    rng: random.Random,
) -> Raced:
    """Race two entrants with the same code until the time is up, with no look that would end the race before."""
    name = entrants[0].case.name.rpartition("[")[2].removesuffix("]")  # eager_add for t.py::test_step[eager_add]
    patient = replace(policy, looks=(_MOST,), case_seconds=seconds, case_launches=PAIRS, hopeless=math.inf)
    raced = Race(entrants, launcher, patient, RaceConfig(CASES, range(PAIRS)), clock, rng)
    raced.run(lambda _: progress(name))
    if raced.failures or not raced.launches:
        return Raced(name, str(next(iter(raced.failures.values()), raced.abort_reason)))
    iteration = median(second for run in raced.runs(0) for second in run.seconds)
    effects = raced.effects(1)
    return Raced(name, "", len(effects), iteration, noise_of(effects, policy) if len(effects) >= PAIRS else None)


@dataclass(frozen=True)
class Measured:
    """What the races of the doctor have shown."""

    raced: Sequence[Raced] = ()
    window: Counters | None = None
    """The counters of the processor during the races."""
    findings: Sequence[Finding] = ()
    """What the races show, or why there were none."""


def measure(seconds: float, state: Machine, where: Processors, policy: Policy, tell: Progress) -> Measured:
    """Race the same code against itself, unless memory is so short that the kernel could kill other processes."""
    memory = checks.available(state)
    if memory.state is State.BAD:
        text = f"not run, because the kernel could kill other processes: {memory.what}"
        return Measured(findings=[Finding(NAME, State.UNKNOWN, text)])
    before = checks.counters(_ROOT, state.worker)
    try:
        raced = race(seconds, policy, where, tell, time.perf_counter, random.Random())
    except TfbenchError as error:
        text = f"the race could not run: {str(error).strip().splitlines()[-1]}"
        return Measured(findings=[Finding(NAME, State.BAD, text, _IMPORT)])
    return Measured(raced, checks.counters(_ROOT, state.worker).since(before), findings_of(raced, policy))


def findings_of(raced: Sequence[Raced], policy: Policy) -> list[Finding]:
    """Return the findings of all races, the headline of the middle workload first after broken ones."""
    broken = [f"{one.name} breaks: {one.failure}" for one in raced if one.failure]
    findings = [Finding(NAME, State.BAD, text, _IMPORT) for text in broken]
    known = sorted(((one.noise.detectable, one.name, one.noise) for one in raced if one.noise), key=lambda one: one[:2])
    if not known:
        text = f"no workload had {PAIRS} launches that count, so the noise is unknown"
        return [*findings, Finding(NAME, State.UNKNOWN, text, "give the race more time: --seconds 120")]
    smallest, middle, _ = known[len(known) // 2]
    headline = f"policy {policy.name} detects a slowdown of {smallest:.1%} here"
    if smallest > _BLIND:
        text = f"the gate would often miss a slowdown of {_BLIND:.0%}: {headline}"
        fix = "fix the findings marked bad or warn, or measure on another machine"
        findings.append(Finding(NAME, State.BAD, text, fix))
    else:
        findings.append(Finding(NAME, State.OK, headline))
    for detected, name, noise in known:
        if name != middle and detected > _BLIND:
            text = f"{name}: policy {policy.name} detects a slowdown of {detected:.1%} here"
            findings.append(Finding(NAME, State.WARN, text, "give such cases --policy strict, or more time"))
        if classify(noise.itself.low, noise.itself.high, policy.step_time) in (Outcome.REGRESSED, Outcome.IMPROVED):
            text = f"{name} against itself was {change(noise.itself.center)}, ratio {times(noise.itself)}"
            fix = "run again, as this can be chance; if it stays, fix the findings above and run `tfbench calibrate`"
            findings.append(Finding(NAME, State.WARN, text, fix))
    return findings


def exit_code(findings: Sequence[Finding]) -> int:
    """Return whether the machine is fit. A race that ended without a result leaves that open."""
    if any(finding.state is State.BAD for finding in findings):
        return checks.NOT_FIT
    silent = any(finding.name == NAME and finding.state is State.UNKNOWN for finding in findings)
    return checks.UNDECIDED if silent else checks.FIT


_HEADINGS = (
    "a step", "launches", "deviation between launches", "deviation between zygotes", "ratio to itself", "its interval",
    "detectable slowdown",
)  # fmt: skip


def table_of(raced: Sequence[Raced], policy: Policy) -> Table:
    """Show the races of all workloads side by side."""
    made = table(f"The same code against itself, policy {policy.name}", "", *right(*(one.name for one in raced)))
    for row in zip(_HEADINGS, *map(_cells, raced), strict=True):
        add_row(made, *row)
    return made


def _cells(raced: Raced) -> tuple[str, ...]:
    """Return what `_HEADINGS` names, of one workload."""
    if (noise := raced.noise) is None:
        return "", str(raced.launches), "", "", "broke" if raced.failure else "-", "", "-"
    return (
        duration(raced.iteration), str(raced.launches), f"{noise.launch_deviation:.2%}", f"{noise.zygote_deviation:.2%}",
        factor(noise.itself.center), ends(noise.itself), f"{noise.detectable:.1%}",
    )  # fmt: skip
