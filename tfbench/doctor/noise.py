"""Measure the noise of this machine, the slowdowns that are found beside it, and how many cases may race at once.

Whole races are simulated, and decided as real ones are: every look runs `tfbench.stats.interval.posterior` with the
levels of `tfbench.stats.alpha_spending` and the regions of `tfbench.stats.verdict`, for all races at once.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tfbench.doctor import checks, machine
from tfbench.doctor.machine import Finding, Limits, Machine, ObservationWindow, State
from tfbench.errors import BenchmarkError, TfbenchError
from tfbench.model import JSON, Case, Effect, Launch, Outcome, Plan, Ratio
from tfbench.model.formats import plain
from tfbench.model.words import change, duration, ends, factor, times
from tfbench.policy import Policy, Thresholds, preset
from tfbench.protocol import Prepared
from tfbench.race.lanes import Processors, lanes, places, topology
from tfbench.race.launch import Clock, Entrant, make_plan
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import run_launch
from tfbench.race.workers import Suite
from tfbench.report.screen import add_columns, add_row, table
from tfbench.sides.spec import Side
from tfbench.stats.alpha_spending import case_alpha, look_alpha, unchanged_alpha
from tfbench.stats.interval import Array, Floats, Posterior, interval, launch_effect, posterior, with_error
from tfbench.stats.verdict import balanced, classify, regions
from tfbench.untrusted import plural

# Estimate the noise of launches, and the smallest slowdown that a policy detects in it. Pure


CASES = 30
"""Size of the suite whose alpha is shared, the same as in `tfbench calibrate`."""
LEAST = 6
"""Launches that a workload needs. The deviation between fewer pairs of zygotes is a guess."""
SLOWDOWNS = (0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.15, 0.20, 0.30, 0.50, 1.00)
"""Candidates for the smallest detectable slowdown."""
SIMULATED = 400
"""Simulated races per slowdown: the standard error of a rate near 95% is then 1%."""
_FAR = 3.0
_NORMAL_MAD = 1.4826


@dataclass(frozen=True)
class DetectionLimit:
    """What a policy can detect in this noise, as in the report of the doctor."""

    launch_deviation: float
    zygote_deviation: float
    itself: Ratio
    """The code against itself. The interval usually contains 1."""
    smallest_found: float | None
    """The smallest detectable slowdown, or ``None`` if even the largest candidate is not detectable."""
    launches: float
    """Median number of launches until the smallest slowdown is detected."""
    unchanged_launches: float
    """Median number of launches until a verdict on unchanged code."""


def detection_limit(effects: Sequence[Effect], policy: Policy, rate: float) -> DetectionLimit:
    """Compute the smallest slowdown that the policy detects in this share of races, from launches of the same code.

    The effects give the noise. Simulated races with this noise, decided like real ones, give the detection
    rates and the launches that they take.
    """
    noise = noise_of(effects, policy)
    itself = interval(effects, case_alpha(policy, CASES), policy, shared_zygote=False)

    def races(slowdown: float) -> tuple[float, float]:
        rates = simulate(policy, replace(noise, effect=slowdown), SIMULATED, seed=1, cases=CASES)
        return rates.rate(Outcome.REGRESSED), rates.median_launches

    # The rate grows with the slowdown. A search by halving therefore needs 4 simulations and not 14.
    first = bisect_left(SLOWDOWNS, True, key=lambda slowdown: races(slowdown)[0] >= rate)
    smallest = SLOWDOWNS[first] if first < len(SLOWDOWNS) else None
    launches = math.nan if smallest is None else races(smallest)[1]
    return DetectionLimit(noise.launch_deviation, noise.zygote_deviation, itself, smallest, launches, races(0.0)[1])


def noise_of(effects: Sequence[Effect], policy: Policy) -> NoiseModel:
    """Estimate both deviations by an analysis of variance, shrunk slightly towards the policy's usual values.

    An outlying launch first moves to three deviations from the median, as in the policy's own interval.
    The usual values count as 1 / (2 spread^2) degrees of freedom: the logarithm of a deviation that was
    estimated from so many has this spread. This is 2 for launches and 0.8 for pairs.
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
    own = float(np.mean(1 / counts)) * launch
    freedom = len(means) - 1
    between = float(np.sum((means - means.mean()) ** 2)) - freedom * own
    zygote = _shrunk(max(0.0, between), freedom, policy.zygote_deviation, policy.zygote_spread)
    error = math.sqrt(np.mean([effect.error**2 for effect in effects]))
    return NoiseModel(0.0, math.sqrt(launch), math.sqrt(zygote), rounds_error=error)


def _shrunk(squares: float, freedom: int, usual: float, spread: float) -> float:
    """Return a variance from its sum of squares and the usual deviation."""
    weight = 1 / (2 * spread**2)
    return (squares + weight * usual**2) / (freedom + weight)


# Race the same code against itself, to measure the noise of this machine and the slowdowns that it hides


FILE = Path(__file__).parents[1] / "worker" / "workloads" / "test_doctor.py"
NUMPY = "numpy_"
"""Prefix of the workloads without TensorFlow, which only workers import."""
NAME = "race"
"""Name of the findings."""
SECONDS = 30
"""Usual time for the races."""
_IMPORT = "python -c 'import tensorflow' in this environment shows the cause"
PAIRS = LEAST
"""Pairs of zygotes. Each takes 2.5 s to start on two cores."""

Progress = Callable[[str, float], None]
"""Called with the current activity and the seconds of the race so far."""


class SelfRace:
    """The launches of one workload with the same code on both sides.

    `Race` stops when it has a verdict. This race needs the noise, so it goes on until its caller stops it.
    """

    def __init__(self, case: Case, sides: Sequence[Side]) -> None:
        self.name = case.name.rpartition("[")[2].removesuffix("]")
        """``eager_add`` for ``workloads.py::test_step[eager_add]``."""
        self.launches: list[Launch] = []
        self.effects: list[Effect] = []
        """Log-ratio of contender to baseline in each launch."""
        self.failure = ""
        self.limit: DetectionLimit | None = None
        """What the policy detects in this noise, ``None`` as long as that is unknown."""
        self._entrants = [Entrant(case, side) for side in sides]
        self._iteration: dict[int, float] = {}

    def launch(self, launcher: ProcessLauncher, pair: int, policy: Policy, clock: Clock, rng: random.Random) -> None:
        """Run one launch from this pair of zygotes, and keep it, or the failure that ended it."""

        def plan(prepared: Mapping[int, Prepared], seconds: float) -> Plan:
            for index, ready in prepared.items():
                self._iteration.setdefault(index, ready.iteration)  # all launches have the plan of the first
            return make_plan(self._entrants, self._iteration, policy)

        opened = launcher.open(self._entrants, pair)
        launch, failures = run_launch(self._entrants, (0, 1), opened, launcher.stopwatch, plan, clock, rng, 2)
        if launch is None or None in launch.runs:
            self.failure = str(next(iter(failures.values()), "its launch could not be finished"))
        else:
            baseline, contender = (run.seconds for run in launch.runs if run is not None)
            self.launches.append(launch)
            self.effects.append(launch_effect(baseline, contender, pair))

    @property
    def iteration(self) -> float:
        """Median seconds of one iteration of the baseline; needs a launch."""
        return median(second for launch in self.launches if (run := launch.runs[0]) for second in run.seconds)

    @property
    def launch_seconds(self) -> float:
        """Median wall-clock seconds of a launch; needs a launch."""
        return median(launch.wall_seconds for launch in self.launches)

    def as_json(self) -> JSON:
        """Return the workload's object in the report of the doctor."""
        content: JSON = {"name": self.name, "failure": self.failure or None}
        if self.launches:
            content |= {
                "iteration_seconds": self.iteration,
                "launch_seconds": self.launch_seconds,
                "effects": [effect.value for effect in self.effects],
                "pairs": [effect.pair for effect in self.effects],
            }
        return content | (plain(self.limit) if self.limit else {})


@dataclass(frozen=True)
class NoiseTest:
    """The races of all workloads, and the slowdowns that the policy can detect in their noise."""

    policy: Policy
    races: tuple[SelfRace, ...]
    seconds: float
    zygotes: int
    """Number of zygotes that were started before the races."""
    zygote_seconds: float
    """Time that the zygotes took to start."""

    @property
    def without_tensorflow(self) -> bool:
        return any(race.name.startswith(NUMPY) for race in self.races)

    @property
    def middle(self) -> SelfRace | None:
        """The workload whose detectable slowdown is the median."""
        order = sorted(
            (race.limit.smallest_found or math.inf, place) for place, race in enumerate(self.races) if race.limit
        )
        return self.races[order[len(order) // 2][1]] if order else None

    def as_json(self) -> JSON:
        return {
            "policy": self.policy.as_json(),
            "cases": CASES,
            "seconds": round(self.seconds, 2),
            "zygotes": self.zygotes,
            "zygote_seconds": round(self.zygote_seconds, 2),
            "tensorflow": not self.without_tensorflow,
            "workloads": [race.as_json() for race in self.races],
        }


def same_code() -> list[Side]:
    """Return the same code twice. Its steps are small and run on the CPU: every process would take all of a GPU's memory."""
    settings = {"CUDA_VISIBLE_DEVICES": "-1"}
    return [Side(name, sys.executable, FILE.parent, env=settings) for name in ("baseline", "contender")]


def own_launcher(policy: Policy, where: Processors) -> closing[ProcessLauncher]:
    """Return a launcher for the workloads, which need no shared set-up; it ends with the block."""
    return closing(ProcessLauncher(Suite((FILE.name,), "", "importlib", made="", cpus=where.every), policy, where))


def workloads(launcher: ProcessLauncher, side: Side) -> list[Case]:
    """Return the cases that the side's first zygote has collected.

    Raises `TfbenchError` if it does not start, or has collected none.
    """
    collected = launcher.zygote(Entrant(Case("", "", ""), side), 0).collected
    if not collected.cases:
        raise BenchmarkError(next(iter(collected.broken.values()), f"{FILE.name} has no workload"))
    return [Case(name, name, name) for name in sorted(collected.cases)]


def race(
    seconds: float, policy: Policy, where: Processors, progress: Progress, clock: Clock, rng: random.Random
) -> NoiseTest:
    """Start zygotes for both sides, then race each workload until the time is over.

    Raises `TfbenchError` if no process could be started, or no workload could be collected.
    """
    both, zygotes = same_code(), 2 * PAIRS
    began = clock()
    at_once = max(1, len(where.every) // 2)
    with own_launcher(policy, where) as launcher:
        for first in range(0, PAIRS, at_once):
            progress(f"starting zygotes, {2 * first} of {zygotes}", 0.0)
            launcher.ready([(side, ()) for side in both], range(first, min(PAIRS, first + at_once)))
        cases = workloads(launcher, both[0])
        ready = clock()
        races = tuple(SelfRace(case, both) for case in cases)
        round_robin(races, launcher, range(PAIRS), seconds, policy, progress, clock, rng)
        return NoiseTest(policy, races, clock() - ready, zygotes, ready - began)


def round_robin(
    races: Sequence[SelfRace],
    launcher: ProcessLauncher,
    pairs: Sequence[int],
    seconds: float,
    policy: Policy,
    progress: Progress,
    clock: Clock,
    rng: random.Random,
) -> None:
    """Run a launch of every race from one pair of zygotes, then from the next, until the time is over.

    Noise changes over minutes, so all workloads share all of the time.
    """
    began = clock()
    for pair in itertools.cycle(pairs):
        working = [race for race in races if not race.failure]
        if not working:
            return
        for race in rng.sample(working, len(working)):
            if clock() - began >= seconds:
                return
            progress(f"racing {race.name} against itself", clock() - began)
            race.launch(launcher, pair, policy, clock, rng)


def add_detection_limits(races: Sequence[SelfRace], policy: Policy, limits: Limits) -> None:
    """Add what the policy can detect in each workload that has enough launches. Simulates for seconds."""
    for race in races:
        if not race.failure and len(race.launches) >= LEAST:
            race.limit = detection_limit(race.effects, policy, limits.found)


def findings_of(test: NoiseTest, limits: Limits) -> list[Finding]:
    """Return the findings of all races, the headline of the middle workload first after broken ones."""
    policy, middle = test.policy, test.middle
    broken = [f"{race.name} breaks: {race.failure}" for race in test.races if race.failure]
    findings = [Finding(NAME, State.BAD, text, _IMPORT) for text in broken]
    if middle is None or middle.limit is None:
        launches = min((len(race.launches) for race in test.races), default=0)
        text = f"the race was too short to tell: a workload had {plural(launches, 'launch')}, and {LEAST} are needed"
        return [*findings, Finding(NAME, State.UNKNOWN, text, f"give the race more time: --seconds {_enough(test)}")]
    headline = _detectable(middle, middle.limit, policy)
    if _is_blind(middle.limit, limits):
        text = f"the gate would often miss a slowdown of {limits.slowdown_bad:.0%}: {headline}"
        fix = "fix the findings marked bad or warn, or measure on another machine"
        findings.append(Finding(NAME, State.BAD, text, fix))
    else:
        findings.append(Finding(NAME, State.OK, headline))
    for race, limit in [(race, race.limit) for race in test.races if race.limit]:
        if race is not middle and _is_blind(limit, limits):
            text = f"{race.name}: {_detectable(race, limit, policy)}"
            findings.append(Finding(NAME, State.WARN, text, "give such cases --policy strict, or more time"))
        if classify(limit.itself.low, limit.itself.high, policy.step_time) in (Outcome.REGRESSED, Outcome.IMPROVED):
            text = f"{race.name} against itself was {change(limit.itself.center)}, ratio {times(limit.itself)}"
            fix = "run again, as this can be chance; if it stays, fix the findings above and run `tfbench calibrate`"
            findings.append(Finding(NAME, State.WARN, text, fix))
    return findings


def _enough(test: NoiseTest) -> int:
    """Return the seconds in which each workload has enough launches, at the speed of this race and rounded up."""
    launches = sum(len(race.launches) for race in test.races)
    if not launches:
        return SECONDS
    needed = LEAST * len(test.races) * test.seconds / launches
    return max(SECONDS, 10 * math.ceil(needed / 10))


def finding_of(error: TfbenchError) -> Finding:
    """Return the finding of a race that could not run."""
    return Finding(NAME, State.BAD, f"the race could not run: {str(error).strip().splitlines()[-1]}", _IMPORT)


def _is_blind(limit: DetectionLimit, limits: Limits) -> bool:
    return limit.smallest_found is None or limit.smallest_found > limits.slowdown_bad


def _detectable(race: SelfRace, limit: DetectionLimit, policy: Policy) -> str:
    if limit.smallest_found is None:
        return f"policy {policy.name} does not detect even a slowdown of {SLOWDOWNS[-1]:.0%} here"
    cost = f"{limit.launches:.0f} launches, {duration(limit.launches * race.launch_seconds)} per case"
    return f"a slowdown of {limit.smallest_found:.1%} is detectable here in about {cost}"


# Measure the noise of a machine that can bear it, and print it


_HEADINGS = (
    "a step", "launches", "deviation between launches", "deviation between zygotes", "ratio to itself", "its interval",
    "smallest detectable slowdown", "time to detect it", "time to report unchanged code",
)  # fmt: skip
_ROOT = Path("/")


@dataclass(frozen=True)
class Measured:
    """What the race of the doctor has shown."""

    test: NoiseTest | None = None
    """``None`` if there was no race."""
    window: ObservationWindow | None = None
    """The counters of the processor during the race."""
    findings: Sequence[Finding] = ()
    """What the race shows, or why there was none."""


def measure(seconds: float, state: Machine, where: Processors, limits: Limits, tell: Progress) -> Measured:
    """Race the same code against itself, unless memory is so short that the kernel could kill other processes."""
    memory = checks.available(state, limits)
    if memory.state is State.BAD:
        text = f"not run, because the kernel could kill other processes: {memory.what}"
        return Measured(findings=[Finding(NAME, State.UNKNOWN, text)])
    before, began = machine.counters(_ROOT, state.worker), time.perf_counter()
    try:
        test = race(seconds, preset("standard"), where, tell, time.perf_counter, random.Random())
    except TfbenchError as error:
        return Measured(findings=[finding_of(error)])
    after, ended = machine.counters(_ROOT, state.worker), time.perf_counter()
    tell("simulating races with this noise", seconds)
    add_detection_limits(test.races, test.policy, limits)
    return Measured(test, machine.observation_window(before, after, ended - began), findings_of(test, limits))


def exit_code(findings: Sequence[Finding]) -> int:
    """Return whether the machine is fit. A race that ended without a result leaves that open."""
    if not checks.is_fit(findings):
        return checks.NOT_FIT
    silent = any(finding.name == NAME and finding.state is State.UNKNOWN for finding in findings)
    return checks.UNDECIDED if silent else checks.FIT


def table_of(test: NoiseTest) -> Group:
    """Show the races of all workloads side by side."""
    made = table(f"The same code against itself, {test.seconds:.0f} s, policy {test.policy.name}")
    add_columns(made, "")
    add_columns(made, *(race.name for race in test.races), right=True)
    for row in zip(_HEADINGS, *map(_cells, test.races), strict=True):
        add_row(made, *row)
    lines = [Text(f"{test.zygotes} zygotes started in {test.zygote_seconds:.0f} s before the races")]
    if test.without_tensorflow:
        text = "TensorFlow could not be imported, so NumPy steps were raced instead; they are less representative"
        lines.append(Text(text, "yellow"))
    return Group(made, *lines)


def _cells(race: SelfRace) -> tuple[str, ...]:
    """Return what `_HEADINGS` names, of one workload."""
    limit, launches = race.limit, str(len(race.launches))
    if limit is None:
        return ("", launches, "", "", "broke" if race.failure else "-", "", "-", "", "")
    smallest, seconds = "-", "-"
    if limit.smallest_found is not None:
        smallest, seconds = f"{limit.smallest_found:.1%}", duration(limit.launches * race.launch_seconds)
    return (
        duration(race.iteration), launches, f"{limit.launch_deviation:.2%}", f"{limit.zygote_deviation:.2%}",
        factor(limit.itself.center), ends(limit.itself), smallest, seconds, duration(limit.unchanged_launches * race.launch_seconds),
    )  # fmt: skip


_BATCH = 500
"""Races per batch: enough to be fast, few enough to stay in the processor's caches."""
OUTCOMES = (Outcome.INCONCLUSIVE, Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.REGRESSED)
"""Possible outcomes of a race; arrays hold the index."""
_INCONCLUSIVE, _UNCHANGED, _IMPROVED, _REGRESSED = range(len(OUTCOMES))

Codes = NDArray[np.int8]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class NoiseModel:
    """Effect and noise of the simulated launches; deviations are of log-ratios."""

    effect: float = 0.0
    """True slowdown, as a fraction."""
    launch_deviation: float = 0.006
    zygote_deviation: float = 0.005
    """Deviation between pairs of zygotes; all launches of a pair share its value."""
    rounds_error: float = 0.0
    """The part of ``launch_deviation`` that is the error of the rounds' median, which launches show."""

    def scatter(self, rng: np.random.Generator, like: Floats) -> Floats:
        """Draw the noise of single launches in their log-ratios, in the shape of ``like``."""
        noise: Floats = rng.normal(0, self.launch_deviation, like.shape)
        return noise


@dataclass(frozen=True)
class Races:
    """Outcomes and costs of simulated races; arrays have the shape (races,)."""

    first: Codes
    """Outcome of the first stage, as an index into `OUTCOMES`."""
    final: Codes
    """Outcome after confirmation."""
    launches: Counts
    """Launches of both stages."""

    def rate(self, outcome: Outcome, *, first: bool = False) -> float:
        """Return the share of races with this outcome; in the first stage alone if ``first``."""
        return float(np.mean((self.first if first else self.final) == OUTCOMES.index(outcome)))

    @property
    def median_launches(self) -> float:
        """Median number of launches per race, confirmation included."""
        return float(np.median(self.launches))


def simulate(
    policy: Policy, model: NoiseModel, races: int, seed: int, *, cases: int = 30, shared_zygote: bool = False
) -> Races:
    """Simulate races, with confirmation in fresh launches of fresh zygotes if the policy has it.

    The cases of a run share its alpha. Variants of a run come from one zygote, and are not confirmed.
    """
    rng = np.random.default_rng(seed)
    usual = policy.step_time
    expected = with_error(usual, model.rounds_error)
    order = np.array(policy.pair_order())

    def stage(races: int, thresholds: Thresholds) -> tuple[Codes, Counts]:
        codes, launches = np.full(races, _INCONCLUSIVE, dtype=np.int8), np.zeros(races, dtype=np.int64)
        open_races = np.arange(races)
        pair_bias = rng.normal(0, model.zygote_deviation, (races, policy.zygotes))
        effects: Array = np.empty((races, 0))
        for look, count in enumerate(policy.looks):
            pairs = order[:count]
            bias = pair_bias[:, pairs[effects.shape[1] :]]
            effects = np.hstack([effects, math.log1p(model.effect) + bias + model.scatter(rng, bias)])
            levels = look_alpha(policy, cases, look), unchanged_alpha(policy, look)
            outcomes = np.empty(len(effects), dtype=np.int8)
            for part in range(0, len(effects), _BATCH):
                batch = slice(part, part + _BATCH)
                outcomes[batch] = evaluate(
                    posterior(effects[batch], pairs, policy, shared_zygote=shared_zygote, expected=expected),
                    *levels, thresholds,
                )  # fmt: skip
            outcomes[(outcomes == _UNCHANGED) & ~balanced(effects, thresholds)] = _INCONCLUSIVE
            codes[open_races], launches[open_races] = outcomes, count
            undecided = outcomes == _INCONCLUSIVE
            open_races, pair_bias, effects = open_races[undecided], pair_bias[undecided], effects[undecided]
            if not len(open_races):
                break
        return codes, launches

    first, launches = stage(races, usual)
    final = first.copy()
    if policy.confirm and not shared_zygote:
        alarms = np.flatnonzero((first == _REGRESSED) | (first == _IMPROVED))
        again, more = stage(len(alarms), usual.confirming())
        final[alarms] = np.where(again == first[alarms], again, _INCONCLUSIVE)
        launches[alarms] += more
    return Races(first, final, launches)


def evaluate(distribution: Posterior, alpha: float, alpha_unchanged: float, thresholds: Thresholds) -> Codes:
    """Decide all races as `tfbench.stats.verdict.decide` decides one, besides `balanced`; shape (races,).

    The interval at level ``alpha`` finds a change, and the one at ``alpha_unchanged`` proves `unchanged`. Each level is
    for both ends together.
    """
    tails = region_tails(distribution, thresholds, max(alpha, alpha_unchanged))
    codes, probable = (classify_races(tails, level) for level in (alpha, alpha_unchanged))
    unchanged = np.where(probable == _UNCHANGED, _UNCHANGED, _INCONCLUSIVE)
    final: Codes = np.where((codes == _REGRESSED) | (codes == _IMPROVED), codes, unchanged).astype(np.int8)
    return final


def region_tails(distribution: Posterior, thresholds: Thresholds, alpha: float) -> dict[int, Floats]:
    """Return code -> for each race the probability that the truth is beyond the nearer end of the region; (races,).

    An interval lies in a region exactly if this probability is less than half its level. Computing it once for
    all levels is faster than computing both ends of each interval.
    ``alpha`` is the largest level of interest. A race that does not reach it has a tail of 1.
    """
    center = np.exp(distribution.center)
    tails: dict[int, Floats] = {}
    for region in regions(thresholds):
        # An interval in the region has its centre there, so most races need the tails of one region.
        races = np.flatnonzero((region.low <= center) & (center <= region.high))
        codes = np.zeros(len(center))
        for end, beyond in ((region.low, Posterior.below), (region.high, Posterior.above)):
            if 0 < end < math.inf:
                codes[races] = np.maximum(codes[races], beyond(distribution.of(races), math.log(end)))
                races = races[codes[races] < alpha / 2]
        tail = np.ones(len(center))
        tail[races] = codes[races]
        tails[OUTCOMES.index(region.outcome)] = tail
    return tails


def classify_races(tails: Mapping[int, Floats], alpha: float) -> Codes:
    """Classify the intervals of all races at level ``alpha``, as `tfbench.stats.verdict.classify` does; shape (races,).

    The first region of `region_tails` that holds an interval counts.
    """
    lies_in = [tail < alpha / 2 for tail in tails.values()]
    return np.select(lies_in, list(tails), _INCONCLUSIVE).astype(np.int8)


# Measure how many cases may race at the same time without larger errors


LANE_STEPS = ("matmul", "elementwise")
"""A step that arithmetic limits, and one that memory limits. Caches and memory are what lanes share."""
LANE_PAIRS = 2
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

    @property
    def larger(self) -> float:
        """The error of a launch beside the other lanes, divided by the error without them; of the worse step."""
        return max(self.beside[step] / self.alone[step] for step in self.alone)


def lane_counts(where: Processors) -> list[int]:
    """Return the numbers of lanes to try: 2, 4, 8 and so on, and as many as the processors have room for."""
    room = len(places(topology(where.every)))
    return [*(1 << bits for bits in range(1, room.bit_length()) if 1 << bits < room), *([room] if room > 1 else [])]


def measure_lanes(
    tried: Sequence[int], where: Processors, policy: Policy, tell: Callable[[str], None]
) -> list[LaneTest]:
    """Race both steps in each of these numbers of lanes, until one is too many.

    Raises `TfbenchError` if no process could be started, or a launch failed.
    """
    names = tuple(f"[{prefix}{step}]" for prefix in ("", NUMPY) for step in LANE_STEPS)
    both, known, tests = same_code(), topology(where.every), []
    with own_launcher(policy, where) as launcher:
        tell(f"starting {2 * LANE_PAIRS} zygotes")
        launcher.ready([(side, ()) for side in both], range(LANE_PAIRS))
        cases = [case for case in workloads(launcher, both[0]) if case.name.endswith(names)]
        if len(cases) != len(LANE_STEPS):
            raise BenchmarkError(f"{FILE.name} has {len(cases)} of the steps {', '.join(LANE_STEPS)}")
        for number in tried:
            tests.append(_tested(cases, both, lanes(where, number, known), launcher, policy, tell))
            if tests[-1].larger > policy.lane_error:
                break
    return tests


def _tested(
    cases: Sequence[Case],
    sides: Sequence[Side],
    opened: Sequence[Processors],
    launcher: ProcessLauncher,
    policy: Policy,
    tell: Callable[[str], None],
) -> LaneTest:
    """Alternate between launches in the first lane alone and launches in all lanes, as noise changes over minutes."""
    alone = [SelfRace(case, sides) for case in cases]
    beside = [[SelfRace(case, sides) for case in cases] for _ in opened]

    def launch(races: Sequence[SelfRace], lane: int, turn: int) -> None:
        with launcher.on(opened[lane]):
            for place in range(len(races)):
                race = races[(place + lane) % len(races)]  # neighbours race different steps
                race.launch(launcher, turn % LANE_PAIRS, policy, time.perf_counter, random.Random(f"{turn} {lane}"))
                if race.failure:
                    raise BenchmarkError(f"{race.name}: {race.failure}")

    with ThreadPoolExecutor(len(opened)) as pool:
        for turn in range(policy.lane_launches):
            tell(f"racing in {len(opened)} lanes, turn {turn + 1} of {policy.lane_launches}")
            launch(alone, 0, turn)
            list(pool.map(launch, beside, itertools.count(), [turn] * len(opened)))
    return LaneTest(
        len(opened),
        {race.name: noise_of(race.effects, policy).launch_deviation for race in alone},
        {
            races[0].name: noise_of([effect for race in races for effect in race.effects], policy).launch_deviation
            for races in zip(*beside, strict=True)
        },
    )


def borne_lanes(tests: Sequence[LaneTest], policy: Policy) -> int:
    """Return the largest number of lanes in which the error of a launch is not larger than the policy allows."""
    return max((test.count for test in tests if test.larger <= policy.lane_error), default=1)


def table_of_lanes(tests: Sequence[LaneTest], policy: Policy) -> Table:
    """Show the errors of launches by number of lanes."""
    made = table(f"Error of a launch beside other lanes, {policy.lane_launches} launches of each step in each lane")
    add_columns(made, "step")
    add_columns(made, "lanes", "alone", "beside the others", "ratio", right=True)
    for test in tests:
        for step, error in test.alone.items():
            other = test.beside[step]
            add_row(made, step, str(test.count), f"{error:.2%}", f"{other:.2%}", f"{other / error:.2f}")
    return made
