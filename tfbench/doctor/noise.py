"""The code races itself: what noise is left here, and what a policy would find in spite of it."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tfbench.doctor.checks import Limits
from tfbench.doctor.model import Finding, State
from tfbench.errors import BenchmarkError, TfbenchError
from tfbench.model import JSON, Case, Effect, Outcome, Plan, Ratio
from tfbench.policy import Policy
from tfbench.race.interfaces import Clock, Entrant, Launcher, Prepared
from tfbench.race.launch import run_launch
from tfbench.race.process_launcher import ProcessLauncher, Processors
from tfbench.race.schedule import make_plan
from tfbench.race.zygote import Suite
from tfbench.report.units import duration, times
from tfbench.sides.side import Side
from tfbench.stats.alpha_spending import case_alpha
from tfbench.stats.interval import interval, median_log_ratio
from tfbench.stats.simulate import NoiseModel, simulate
from tfbench.stats.verdict import change, classify

FILE = Path(__file__).with_name("workloads.py")
NUMPY = "numpy_"
"""As in the benchmarks, which only measuring processes import."""
CASES = 30
"""Size of the suite whose alpha is shared, as `tfbench calibrate` has it."""
PAIRS = 6
"""Pairs of zygotes: with fewer, the deviation between them is a guess; each takes 2.5 s to start on two cores."""
LEAST = PAIRS
"""Launches of a workload below which nothing is said of it."""
SLOWDOWNS = (0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.15, 0.20, 0.30, 0.50, 1.00)
"""Among these the smallest is looked for."""
SIMULATED = 400
"""Races for each slowdown: a rate near 95% is then known to 1%."""
_FAR = 3.0
_NORMAL_MAD = 1.4826

Progress = Callable[[str, float], None]
"""Called with what is being done and the seconds of the race so far."""


@dataclass(frozen=True)
class Raced:
    """The launches of one workload, the same code on both sides."""

    name: str
    effects: tuple[Effect, ...] = ()
    iteration: float = math.nan
    """Seconds of one iteration, the middle of all rounds of the baseline."""
    launch_seconds: float = math.nan
    """What a launch takes, in the middle."""
    failure: str = ""


@dataclass(frozen=True)
class Noise:
    """Deviations of log-ratios: of launches of the same pair of zygotes, and of pairs."""

    launch: float
    zygote: float


@dataclass(frozen=True)
class DetectionLimit:
    """What a policy can see in this noise."""

    noise: Noise
    itself: Ratio
    """The code against itself; 1 lies within, most times."""
    smallest: float | None
    """The smallest slowdown that is found; ``None`` if not even twice the time is."""
    launches: float
    """Half of the races that find it need no more than this."""
    unchanged_launches: float
    """The same of a verdict on unchanged code."""


@dataclass(frozen=True)
class NoiseTest:
    """A whole race."""

    policy: Policy
    raced: tuple[Raced, ...]
    seconds: float
    zygotes: int
    """Processes that were started before it, and how long that took."""
    zygote_seconds: float
    detection_limits: Mapping[str, DetectionLimit] = field(default_factory=dict)
    """Workload -> what can be seen; those with too few launches are left out."""

    @property
    def without_tensorflow(self) -> bool:
        return any(raced.name.startswith(NUMPY) for raced in self.raced)

    @property
    def middle(self) -> Raced | None:
        """The workload in the middle, by what can be seen of it."""
        order = sorted(
            (raced for raced in self.raced if raced.name in self.detection_limits),
            key=lambda raced: self.detection_limits[raced.name].smallest or math.inf,
        )
        return order[len(order) // 2] if order else None

    def as_json(self) -> JSON:
        return {
            "policy": self.policy.as_json(),
            "cases": CASES,
            "seconds": round(self.seconds, 2),
            "zygotes": self.zygotes,
            "zygote_seconds": round(self.zygote_seconds, 2),
            "tensorflow": not self.without_tensorflow,
            "workloads": [_raced_json(raced, self.detection_limits.get(raced.name)) for raced in self.raced],
        }


def _raced_json(raced: Raced, detection: DetectionLimit | None) -> JSON:
    found: JSON = {"name": raced.name, "failure": raced.failure or None}
    if raced.effects:
        found |= {
            "iteration_seconds": raced.iteration,
            "launch_seconds": raced.launch_seconds,
            "effects": [effect.value for effect in raced.effects],
            "pairs": [effect.pair for effect in raced.effects],
        }
    if detection is not None:
        found |= {
            "launch_deviation": detection.noise.launch,
            "zygote_deviation": detection.noise.zygote,
            "itself": detection.itself.as_json(),
            "smallest_found": detection.smallest,
            "launches": detection.launches,
            "unchanged_launches": detection.unchanged_launches,
        }
    return found


# Racing


def race(
    seconds: float,
    policy: Policy,
    where: Processors,
    progress: Progress,
    clock: Clock,
    rng: random.Random,
) -> NoiseTest:
    """Start zygotes for both sides, then race until the time is over; GPUs are left out.

    Raises:
        TfbenchError: No process could be started, or none of the steps runs.
    """
    suite = Suite((FILE.name,), "", "importlib", made="", cpus=where.every)  # its steps share nothing
    launcher = ProcessLauncher(suite, policy, where)
    # Every process would take all of a GPU's memory: the steps are small and run on the CPU.
    settings = {"CUDA_VISIBLE_DEVICES": "-1"}
    sides = [Side(name, sys.executable, FILE.parent, env=settings) for name in ("baseline", "contender")]
    began = clock()
    at_once = max(1, len(where.every) // len(sides))
    try:
        for first in range(0, PAIRS, at_once):
            progress(f"starting measuring processes, {len(sides) * first} of {len(sides) * PAIRS}", 0.0)
            launcher.ready([(side, ()) for side in sides], range(first, min(PAIRS, first + at_once)))
        zygote = launcher.zygote(Entrant(Case("", "", ""), sides[0]), 0)
        if not zygote.cases:
            raise BenchmarkError(next(iter(zygote.broken.values()), f"{FILE.name} has no step"))
        ready = clock()
        matches = {name: [Entrant(Case(name, name, name), side) for side in sides] for name in sorted(zygote.cases)}
        raced = round_robin(matches, launcher, range(PAIRS), seconds, policy, progress, clock, rng)
        return NoiseTest(policy, raced, clock() - ready, len(sides) * PAIRS, ready - began)
    finally:
        launcher.close()


def round_robin(
    matches: Mapping[str, Sequence[Entrant]],
    launcher: Launcher,
    pairs: Sequence[int],
    seconds: float,
    policy: Policy,
    progress: Progress,
    clock: Clock,
    rng: random.Random,
) -> tuple[Raced, ...]:
    """A launch of every match from one pair of zygotes, then from the next, until the time is over."""
    began = clock()
    effects: dict[str, list[Effect]] = {name: [] for name in matches}
    costs: dict[str, list[float]] = {name: [] for name in matches}
    rounds: dict[str, list[float]] = {name: [] for name in matches}
    iterations: dict[str, dict[int, float]] = {name: {} for name in matches}
    failures: dict[str, str] = {}
    lap = 0
    while len(failures) < len(matches) and clock() - began < seconds:
        pair = pairs[lap % len(pairs)]
        lap += 1
        for name in rng.sample(list(matches), len(matches)):
            if name in failures or clock() - began >= seconds:
                continue
            entrants = matches[name]
            progress(f"racing {short(name)} against itself", clock() - began)
            planner = _planner(entrants, iterations[name], policy)
            launch, broken = run_launch(entrants, (0, 1), launcher, pair, planner, clock, rng, 2)
            if launch is None or None in launch.runs:
                failures[name] = str(next(iter(broken.values()), "its launch could not be finished"))
                continue
            baseline, contender = (run.seconds for run in launch.runs if run is not None)
            effects[name].append(Effect(median_log_ratio(baseline, contender), pair))
            costs[name].append(launch.wall_seconds)
            rounds[name] += baseline
    return tuple(
        Raced(
            short(name),
            tuple(effects[name]),
            median(rounds[name]) if rounds[name] else math.nan,
            median(costs[name]) if costs[name] else math.nan,
            failures.get(name, ""),
        )
        for name in matches
    )


def _planner(
    entrants: Sequence[Entrant], known: dict[int, float], policy: Policy
) -> Callable[[Mapping[int, Prepared]], Plan]:
    """The plan of the first launch is kept for all of them, as a race does."""

    def plan(prepared: Mapping[int, Prepared]) -> Plan:
        for index, ready in prepared.items():
            known.setdefault(index, ready.iteration)
        return make_plan(entrants, known, policy)

    return plan


def short(name: str) -> str:
    """``eager_add`` from ``workloads.py::test_step[eager_add]``."""
    return name.rpartition("[")[2].removesuffix("]")


# Judging


def assess(raced: Iterable[Raced], policy: Policy, limits: Limits) -> dict[str, DetectionLimit]:
    """What the policy can see of each workload that has launches enough."""
    return {
        one.name: detection_limit(one.effects, policy, limits)
        for one in raced
        if not one.failure and len(one.effects) >= LEAST
    }


def detection_limit(effects: Sequence[Effect], policy: Policy, limits: Limits) -> DetectionLimit:
    """From the launches of the same code to the smallest slowdown that the policy would find in such noise.

    The noise is measured; whole races of made-up launches with this noise, decided as real ones are,
    say how often a slowdown would be found and in how many launches.
    """
    noise = noise_of(effects, policy)
    itself = interval(effects, case_alpha(policy, CASES), policy, shared_zygote=False)

    def races(slowdown: float) -> tuple[float, float]:
        model = NoiseModel(slowdown, noise.launch, noise.zygote)
        found = simulate(policy, model, SIMULATED, seed=1, cases=CASES)
        return found.rate(Outcome.REGRESSED), found.median_launches

    low, high = 0, len(SLOWDOWNS)  # the rate grows with the slowdown, so halving finds the first that is enough
    while low < high:
        at = (low + high) // 2
        low, high = (low, at) if races(SLOWDOWNS[at])[0] >= limits.found else (at + 1, high)
    smallest = SLOWDOWNS[low] if low < len(SLOWDOWNS) else None
    launches = math.nan if smallest is None else races(smallest)[1]
    return DetectionLimit(noise, itself, smallest, launches, races(0.0)[1])


def noise_of(effects: Sequence[Effect], policy: Policy) -> Noise:
    """Both deviations by the analysis of variance, each drawn a little to what the policy knows of other cases.

    A launch in another mode is moved to three deviations from the middle first, as the policy's own
    interval does. What the policy knows counts as 1 / (2 spread^2) degrees of freedom, since the logarithm of
    a deviation that was estimated from so many has this spread: 2 for launches, 0.8 for pairs.
    """
    values = [effect.value for effect in effects]
    middle = median(values)
    usual = max(
        math.hypot(policy.launch_deviation, policy.zygote_deviation),
        _NORMAL_MAD * median(abs(value - middle) for value in values),
    )
    pairs: dict[int, list[float]] = {}
    for effect in effects:
        away = max(-_FAR * usual, min(_FAR * usual, effect.value - middle))
        pairs.setdefault(effect.pair, []).append(away)
    means = {pair: sum(members) / len(members) for pair, members in pairs.items()}
    freedom = len(values) - len(pairs)
    within = sum((value - means[pair]) ** 2 for pair, members in pairs.items() for value in members)
    launch = _drawn(within, freedom, policy.launch_deviation, policy.launch_spread)
    origin = sum(means.values()) / len(means)
    # A pair's mean holds its share of what is the launches' own: that is taken off.
    own = sum(1 / len(members) for members in pairs.values()) / len(pairs) * launch
    between = sum((mean - origin) ** 2 for mean in means.values()) - (len(pairs) - 1) * own
    zygote = _drawn(max(0.0, between), len(pairs) - 1, policy.zygote_deviation, policy.zygote_spread)
    return Noise(math.sqrt(launch), math.sqrt(zygote))


def _drawn(squares: float, freedom: int, usual: float, spread: float) -> float:
    """A variance from its sum of squares and from what is usual."""
    weight = 1 / (2 * spread**2)
    return (squares + weight * usual**2) / (freedom + weight)


def findings(result: NoiseTest, limits: Limits) -> list[Finding]:
    """What the race says of the machine."""
    found = [
        Finding("race", State.BAD, f"{raced.name} breaks: {raced.failure}", _IMPORT)
        for raced in result.raced
        if raced.failure
    ]
    middle = result.middle
    if middle is None:
        launches = min((len(raced.effects) for raced in result.raced), default=0)
        text = f"{launches} launches of a workload say nothing; {LEAST} are wanted"
        return [*found, Finding("race", State.UNKNOWN, text, "give it more time with --seconds")]
    found.append(_headline(middle, result.detection_limits[middle.name], result.policy, limits))
    for raced in result.raced:
        if (detection := result.detection_limits.get(raced.name)) is None:
            continue
        if raced is not middle and _blind(detection, limits):
            text = f"{raced.name}: {_seen(raced, detection, result.policy)}"
            found.append(Finding("race", State.WARN, text, "give such cases --policy strict, or more time"))
        if classify(detection.itself.low, detection.itself.high, result.policy) in (
            Outcome.REGRESSED,
            Outcome.IMPROVED,
        ):
            text = f"{raced.name} against itself was {change(detection.itself.center)}, ratio {times(detection.itself)}"
            fix = "once can be chance: run it again; if it stays, fix what stands above and run `tfbench calibrate`"
            found.append(Finding("race", State.WARN, text, fix))
    return found


_IMPORT = "python -c 'import tensorflow' in this environment says more"


def _headline(middle: Raced, detection: DetectionLimit, policy: Policy, limits: Limits) -> Finding:
    if _blind(detection, limits):
        text = (
            f"a slowdown of {limits.slowdown_bad:.0%} cannot be relied on to show: {_seen(middle, detection, policy)}"
        )
        return Finding("race", State.BAD, text, "fix what stands here as bad or warn, or measure on another machine")
    return Finding("race", State.OK, _seen(middle, detection, policy))


def _blind(detection: DetectionLimit, limits: Limits) -> bool:
    return detection.smallest is None or detection.smallest > limits.slowdown_bad


def _seen(raced: Raced, detection: DetectionLimit, policy: Policy) -> str:
    if detection.smallest is None:
        return f"here policy {policy.name} does not even find {SLOWDOWNS[-1]:.0%}"
    cost = duration(detection.launches * raced.launch_seconds)
    return f"here a slowdown of {detection.smallest:.1%} is found in about {detection.launches:.0f} launches, {cost} a case"


def broken(error: TfbenchError) -> Finding:
    """The race could not be run at all."""
    return Finding("race", State.BAD, f"it could not be run: {str(error).strip().splitlines()[-1]}", _IMPORT)
