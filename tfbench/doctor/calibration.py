"""Measure the gate's own error rates: plan trials, race them, keep a journal, and print rates."""

from __future__ import annotations

import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Literal

from _pytest.mark.expression import Expression
from msgspec import Meta, Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.special import betaincinv, stdtrit

from tfbench.doctor.noise import CASES, DETECTED
from tfbench.errors import BenchmarkError, ReportError, UsageError
from tfbench.fs import read_text
from tfbench.gpus.monitor import GpuMonitor, GpuSession
from tfbench.gpus.selection import has_driver
from tfbench.model import TIME, Case, Outcome, Ratio, SlowCalls, short_name
from tfbench.model.formats import Count, Seconds, convert, line
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import Suite
from tfbench.report import screen
from tfbench.sides.environments import Environments, kept
from tfbench.sides.spec import Side, parse
from tfbench.storage.baselines import Layout
from tfbench.suite.shards import digest
from tfbench.untrusted import brief, described, parse_json, plural

# Store the trials of a calibration: verdicts on code with a known slowdown, one line of JSON each


class CalibrationTrial(Struct, frozen=True, forbid_unknown_fields=True):
    """A verdict and its cost.

    ``slowdown`` is the fraction of extra work that the contender really did, 0 for unchanged code.
    ``effects`` are the log-ratios of the launches, ``pairs`` their pairs of zygotes, and ``errors`` the standard errors of
    the log-ratios. ``intervals`` are those at the end of the race and, after a change, of the race that confirms it.
    Journals of earlier versions have no errors and no intervals.
    """

    method: Literal["race"]
    policy: str
    workload: str
    slowdown: Annotated[float, Meta(ge=0, le=100)]
    outcome: Outcome
    seconds: Seconds
    launches: Count
    run: Count
    effects: tuple[float, ...]
    pairs: tuple[Count, ...]
    errors: tuple[Annotated[float, Meta(ge=0)], ...] = ()
    intervals: tuple[Ratio, ...] = ()
    slow_calls: str = ""
    """Kind of the slow calls that the contender really made, such as ``5% x10``; empty without any."""

    def __post_init__(self) -> None:
        for interval in self.intervals:
            if not 0 <= interval.center < math.inf or not interval.low <= interval.high < math.inf:
                raise ValueError(f"an interval from {interval.low:g} to {interval.high:g}")

    @property
    def kind(self) -> str:
        """What the contender did more: ``+2%``, or a kind of slow calls; ``""`` if both sides ran the same code."""
        return self.slow_calls or (f"+{slowdown_text(self.slowdown)}" if self.slowdown else "")

    @property
    def holds_truth(self) -> bool:
        """Whether all intervals hold the true ratio. A second race does not make up for an interval that missed it."""
        return all(interval.low <= 1 + self.slowdown <= interval.high for interval in self.intervals)


def slowdown_text(slowdown: float) -> str:
    """Format an injected slowdown, however small: ``0.5%``, ``10%``."""
    return f"{100 * slowdown:g}%"


class Journal:
    """A file of trials. It grows by one line per trial, so that a calibration can be resumed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, policy: str = "") -> list[CalibrationTrial]:
        """Read every trial. An incomplete last line is ignored.

        Raises `ReportError` if another line is not a trial, and `UsageError` if one is of another policy than this one.
        """
        lines = read_text(self.path).split("\n") if self.path.exists() else []
        trials = []
        for number, words in enumerate(lines[:-1], start=1):  # text after the last newline is incomplete
            try:
                trials.append(convert(CalibrationTrial, parse_json(words)))
            except ValueError as error:
                text = f"{brief(self.path)}, line {number}: not a trial ({described(error)}); move the file away"
                raise ReportError(text) from None
        if other := next((trial.policy for trial in trials if policy not in ("", trial.policy)), ""):
            raise UsageError(f"{brief(self.path)} has trials of policy {other}; give --policy {other} or another file")
        return trials

    def append(self, trial: CalibrationTrial) -> None:
        """Append a trial to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line(trial) + "\n")


# Select cases by an expression, as ``-k`` of pytest does


def parse_selection(text: str) -> Callable[[str], bool]:
    """Return whether a name matches an expression: parts of names, joined by ``and``, ``or``, ``not`` and parentheses.

    An empty one matches all names. Raises `UsageError` if the text is no such expression.
    """
    try:
        expression = Expression.compile(text) if text else None
    except Exception as error:  # of a type that depends on pytest's version
        raise UsageError(f"-k {text!r}: {error}; join names by and, or, not and parentheses") from None
    return lambda name: expression is None or expression.evaluate(lambda part, /, **_: part.lower() in name.lower())


# Run a calibration: repeatedly start fresh zygotes and decide on each workload, unchanged and slowed down


WORKLOADS = Path(__file__).resolve().parents[1] / "worker" / "workloads"
USUAL = "test_raced.py"
"""File of the workloads that thresholds were chosen on."""
SLOWDOWNS = (0.02, 0.03, 0.05, 0.10)
TAILS = {
    "5% x10": SlowCalls(0.05, 10), "10% x5": SlowCalls(0.1, 5), "33% x2": SlowCalls(1 / 3, 2),
    "2% x60": SlowCalls(0.02, 60), "25% wait": SlowCalls(0.25, 5 / 3, waits=True),
    "0.5% x16": SlowCalls(0.005, 16), "0.3% x60": SlowCalls(0.003, 60),
}  # fmt: skip
"""Injected slow calls, in turn: they leave the median of most steps where it is, and raise the mean by 8 to 118%. Steps
above 1 ms have too few calls to show the last two."""
_CPU = "device=cpu"
"""In the names of cases that a calibration of a GPU leaves out."""


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
    against: str
    """Specification of the baseline, ``self`` for the same files. Whatever it is, it counts as unchanged code."""
    device: tuple[str, tuple[str, ...]]
    """``cpu``, ``gpu`` or ``all``, and GPUs by index or UUID."""
    root: Path
    files: tuple[str, ...]
    chosen: Callable[[str], bool]
    """Whether the workload with this name takes part."""

    @property
    def kinds(self) -> dict[str, str]:
        """How the plan differs from the usual one: name in a journal's file -> words. Plans that differ share no journal."""
        kind, names = self.device
        kinds = {
            "tails": ("", self.tails),
            f"against {self.against}": (f"against {self.against}", self.against != "self"),
            " ".join((kind, *names)): ("on a GPU" if kind == "gpu" else "", kind != "all"),
            f"{self.cases} cases": ("", self.cases != CASES),
            f"of {digest(str(self.root / file) for file in self.files)[:8]}": ("", self.root != WORKLOADS),
        }
        return {name: words for name, (words, applies) in kinds.items() if applies}

    @property
    def journal_name(self) -> str:
        """The name of the file of its trials."""
        return re.sub(r"[^a-zA-Z0-9.=]+", "-", " ".join([self.policy.name, *self.kinds])) + ".jsonl"


def files_of(paths: Sequence[str]) -> tuple[Path, tuple[str, ...]]:
    """Return the root and the files of the workloads: the user's own, or fixed ones.

    Raises `UsageError` if a file does not exist.
    """
    if not paths:
        return WORKLOADS, (USUAL,)
    if missing := next((path for path in paths if not Path(path).exists()), None):
        raise UsageError(f"{missing}: no such file or folder")
    return Path.cwd(), tuple(Path(path).as_posix() for path in paths)


def calibrate(
    plan: Plan, journal: Journal, seconds: float, progress: Callable[[str, int], None], rng: random.Random
) -> None:
    """Add trials to the journal until the time is up. The trial in progress then is completed.

    ``progress`` is called with the current activity and the number of verdicts in the journal.
    Raises `UsageError` or `GpuError` if the device is not there, or another run uses it.
    """
    if seconds <= 0:
        return
    began = time.monotonic()
    trials = journal.read(plan.policy.name)

    def tell(text: str) -> None:
        progress(text, len(trials))

    kind, names = plan.device
    if kind == "gpu" and not has_driver():
        raise UsageError("--device gpu: no GPU here: there is no NVIDIA driver")
    with closing(GpuSession(kind, names, plan.policy)) as gpus, Environments(kept(), tell) as environments:
        contender = Side("contender", sys.executable, plan.root, env=gpus.environment)
        sides = parse(plan.against, contender, Layout.of(Path.cwd()).trees, environments), contender
        for number in count(1 + max((trial.run for trial in trials), default=-1)):
            for trial in _one_run(plan, sides, gpus.gpu_monitor, number, rng, tell):
                trials.append(trial)
                journal.append(trial)
                if time.monotonic() - began > seconds:
                    return


def _one_run(
    plan: Plan,
    sides: tuple[Side, Side],
    gpu_monitor: GpuMonitor | None,
    number: int,
    rng: random.Random,
    progress: Callable[[str], None],
) -> Iterator[CalibrationTrial]:
    """Yield the trials of one run, which has its own zygotes and a random order of workloads."""
    made = Layout.of(Path.cwd()).shared_set_ups  # beside the journal
    suite = Suite(plan.files, "", "importlib", str(made), plan.cpus)
    baseline, contender = sides
    with closing(ProcessLauncher(suite, plan.policy, plan.processors, gpu_monitor)) as launcher:
        progress(f"run {number}: starting zygotes")
        both = [Entrant(Case("", "", ""), side) for side in sides]
        policy = launcher.policy_of(plan.policy, both)
        launcher.start_pairs(both, range(min(policy.zygotes, policy.looks[0])))
        collected = launcher.zygote(both[1], 0).collected.cases
        names = sorted(
            name for name in collected if plan.chosen(name) and (plan.device[0] != "gpu" or _CPU not in name)
        )
        if not names:
            raise UsageError("no benchmark is selected; see -k and --device")
        jobs: list[tuple[str, float, str]] = [(name, 0.0, "") for name in names for _ in range(plan.repeats)]
        for turn in ([(slowdown, "") for slowdown in plan.slowdowns], [(0.0, kind) for kind in TAILS if plan.tails]):
            jobs += [(name, *turn[(number + index) % len(turn)]) for index, name in enumerate(names) if turn]
        for name, slowdown, kind in rng.sample(jobs, len(jobs)):
            case, (file, _, short) = Case(name, name, name), name.partition("::")
            usual = short.removeprefix("test_step[").removesuffix("]").removeprefix("test_")
            short = usual if file == USUAL else name
            how = f" slowed by {slowdown_text(slowdown)}" if slowdown else f" with slow calls {kind}" if kind else ""
            progress(f"run {number}: {short}{how}")
            slowed = replace(contender, slowdown=slowdown, slow_calls=TAILS.get(kind))
            both = [Entrant(case, baseline), Entrant(case, slowed)]
            race = ConfirmedRace(both, launcher, policy, plan.cases, time.perf_counter, rng, metrics=(TIME,))
            race.run()
            if race.decision is None or race.decision.outcome is None:
                failure = next(iter(race.failures.values()), "the race ended without a decision")
                raise BenchmarkError(f"{name}: {failure}")
            effects = [effect for stage in race.races for effect in stage.effects(1)]
            yield CalibrationTrial(
                "race", plan.policy.name, short, slowdown, race.decision.outcome, round(race.wall_seconds, 3), race.launches, number,
                tuple(round(effect.value, 6) for effect in effects), tuple(effect.pair for effect in effects),
                tuple(round(effect.error, 6) for effect in effects),
                tuple(stage.decisions[1].comparison.ratio for stage in race.races), kind,
            )  # fmt: skip


# Summarize trials as rates with intervals. Pure functions


_TAIL = 0.025
"""On each side of an interval of 95%."""
CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
"""Outcomes that are false on unchanged code."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of hits among trials, with a 95% interval of the rate."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The observed rate, 0 without trials."""
        return self.hits / self.trials if self.trials else 0.0


def clustered_rate(hits: Sequence[int], trials: Sequence[int]) -> Rate:
    """Compute a rate whose trials come in clusters, inside of which they are alike. A cluster has at least one trial.

    The exact interval takes as many trials as independent ones would tell as much (Korn and Graubard 1998, Survey
    Methodology 24). Where all trials or none are hits, nothing shows how alike they are, and a cluster counts as one.
    """
    hit, total, clusters = sum(hits), sum(trials), len(trials)
    value = hit / max(1, total)
    effective = float(clusters)
    if 0 < value < 1 and clusters > 1:
        spread = sum((h - value * n) ** 2 for h, n in zip(hits, trials, strict=True))
        between = clusters / (clusters - 1) * spread / total**2
        design_effect = max(1.0, between * (total - 1) / (value * (1 - value)))
        few = float(stdtrit(total - 1, _TAIL) / stdtrit(clusters - 1, _TAIL))
        effective = total / design_effect * few**2
    hits_told = value * effective  # Clopper and Pearson 1934, Biometrika 26
    low = float(betaincinv(hits_told, effective - hits_told + 1, _TAIL)) if hit else 0.0
    high = float(betaincinv(hits_told + 1, effective - hits_told, 1 - _TAIL)) if hit < total else 1.0
    return Rate(hit, total, low, high)


def rate(trials: Sequence[CalibrationTrial], is_hit: Callable[[CalibrationTrial], bool]) -> Rate:
    """Compute the rate of hits. Trials of a workload in one run share zygotes, and are a cluster."""
    sizes = Counter((trial.run, trial.workload) for trial in trials)
    hits = Counter((trial.run, trial.workload) for trial in trials if is_hit(trial))
    return clustered_rate([hits[cluster] for cluster in sizes], list(sizes.values()))


@dataclass(frozen=True)
class RateRow:
    """The error rates of one workload, or of several."""

    name: str
    trials: Mapping[str, Sequence[CalibrationTrial]]
    """By kind, ``""`` first, and slowdowns in ascending order."""

    @property
    def told(self) -> list[CalibrationTrial]:
        """The trials of unchanged code that have intervals."""
        return [trial for trial in self.trials.get("", ()) if trial.intervals]

    def found(self, kind: str, *outcomes: Outcome) -> Rate:
        """Return the share of these outcomes in the trials of a kind."""
        return rate(self.trials.get(kind, ()), lambda trial: trial.outcome in outcomes)

    @property
    def smallest_found(self) -> float | None:
        """The smallest slowdown that is detected, as are all larger ones; ``None`` without one."""
        slowdowns = [(first.slowdown, kind) for kind, (first, *_) in self.trials.items() if first.slowdown]
        reliable = takewhile(lambda one: self.found(one[1], Outcome.REGRESSED).value >= DETECTED, reversed(slowdowns))
        return min((slowdown for slowdown, _ in reliable), default=None)


def tally(name: str, trials: Sequence[CalibrationTrial]) -> RateRow:
    """Summarize trials in a row."""
    kinds = dict.fromkeys(trial.kind for trial in sorted(trials, key=lambda one: (one.slowdown, one.kind != "")))
    return RateRow(name, {kind: [trial for trial in trials if trial.kind == kind] for kind in kinds})


def by_workload(trials: Sequence[CalibrationTrial]) -> list[RateRow]:
    """Summarize each workload in a row, in the order of their first trials."""
    names = dict.fromkeys(trial.workload for trial in trials)
    return [tally(name, [trial for trial in trials if trial.workload == name]) for name in names]


# Print a calibration as a table


_NAME = 25
"""Characters of a name on a line, which then fits into 80 with the other columns."""


def table(title: str, rows: Sequence[RateRow]) -> Table:
    """Make a table: false positives with their upper bound, detected slowdowns, cost.

    Journals with intervals have a column of their coverage. Its heading has the nominal one.
    """
    told = [trial for row in rows for trial in row.told]
    slowdowns = {kind: trials[0].slowdown for row in rows for kind, trials in row.trials.items() if kind}
    kinds = sorted(slowdowns, key=lambda kind: slowdowns[kind])
    coverage = [f"cov-\nerage\nof\n{nominal(told)}".replace(".0%", "%")] if told else []
    rates = *coverage, *(kind.replace(" ", "\n") for kind in kinds), "min.\nde-\ntect-\nable", "s"
    numbers = screen.right("false\npositives", "in-\nconclu-\nsive", *rates)
    made = screen.table(title, *screen.folded("workload", min_width=13), *numbers)
    names = [short_name(row.name) for row in rows]
    if len(set(names)) < len(rows):
        names = [row.name for row in rows]
    for name, row in zip(names, rows, strict=True):
        screen.add_row(
            made,
            screen.break_name(name, _NAME),
            of(row.found("", *CHANGES), " ≤"),
            percent(row.found("", Outcome.INCONCLUSIVE)),
            *([percent(rate(row.told, lambda trial: trial.holds_truth))] if coverage else []),
            *(percent(row.found(kind, Outcome.REGRESSED)) if kind in row.trials else "" for kind in kinds),
            "-" if row.smallest_found is None else slowdown_text(row.smallest_found),
            seconds(row.trials[""]) if "" in row.trials else "-",
        )
    return made


def seconds(trials: Sequence[CalibrationTrial]) -> str:
    """Format the median seconds of a verdict."""
    return f"{median(trial.seconds for trial in trials):.1f}"


def nominal(trials: Sequence[CalibrationTrial]) -> str:
    """Format the mean confidence that the intervals of trials claim."""
    return f"{fmean(trial.intervals[0].confidence for trial in trials):.1%}"


def of(found: Rate, bound: str = ", at most ") -> str:
    """Format a rate with its upper bound at 95% confidence: ``1/500, at most 1.1%``."""
    return f"{found.hits}/{found.trials}{bound}{found.high:.1%}" if found.trials else "-"


def percent(found: Rate) -> str:
    """Format a rate as ``97%``, or as a dash without trials."""
    return f"{found.value:.1%}".replace(".0%", "%") if found.trials else "-"


MEMORY_BOUND = "elementwise"
"""The fixed workload that totals leave out, because its noise comes from the memory and not the processor."""
LEGEND = (
    "false positives: changes reported on unchanged code, and the upper bound of their rate at 95% confidence;\n"
    "+N%: share of these slowdowns that are reported; min. detectable: smallest slowdown reported 95% of the time; "
    "coverage of N%: share of verdicts on unchanged code whose intervals hold the true ratio, where they claim N%; "
    "s: median seconds per verdict, besides the start of zygotes; verdicts on a workload from the same zygotes are a "
    "cluster in every interval"
)


def summary(plan: Plan, trials: Sequence[CalibrationTrial]) -> RenderableType:
    """Return the tables and lines of all trials of a plan."""
    if not trials:
        return Text("no verdict yet; give the calibration more time with --budget")
    what = f"tfbench, policy {plan.policy.name}", f"a suite of {plural(plan.cases, 'case')}", *plan.kinds.values()
    bound = [trial for trial in trials if trial.workload == MEMORY_BOUND]
    in_total = tally("in total", [trial for trial in trials if trial.workload != MEMORY_BOUND])
    totals = [row for row in (in_total, tally(f"{MEMORY_BOUND} (bound by memory)", bound)) if row.trials]
    lines = [LEGEND]
    if told := in_total.told:
        covered = rate(told, lambda trial: trial.holds_truth)
        bounds = f"{covered.low:.1%} to {covered.high:.1%} at 95% confidence, nominal {nominal(told)}"
        lines.append(f"coverage of intervals on unchanged code: {covered.hits}/{covered.trials}, {bounds}")
    taken = (
        f"{seconds(those)} s {f'at {kind}' if kind else 'on unchanged code'}" for kind, those in in_total.trials.items()
    )
    lines.append(f"median time of a verdict: {', '.join(taken)}")
    lines.append(f"runs: {len({trial.run for trial in trials})}, each with zygotes of its own")
    tables = table(", ".join(filter(None, what)), by_workload(trials)), table("all workloads", totals)
    return Group(*tables, *map(Text, lines))
