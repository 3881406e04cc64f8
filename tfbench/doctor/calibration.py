"""Measure the gate's own error rates: plan trials, race them, keep a journal, and print rates."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import takewhile
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

from _pytest.mark.expression import Expression
from msgspec import Meta
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.special import betaincinv, stdtrit

from tfbench.errors import BenchmarkError, BenchmarkSkipped, ReportError, SideError, UsageError
from tfbench.facts import machine
from tfbench.fs import read_text
from tfbench.gpus.monitor import GpuMonitor, GpuSession
from tfbench.gpus.selection import has_driver
from tfbench.metrics import parity
from tfbench.metrics.catalog import PROBED, read
from tfbench.metrics.exact import differing
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import JSON, TIME, Case, MetricValues, Outcome, Rate, RateRow, Ratio, SlowCalls, short_name
from tfbench.model.formats import Count, Seconds, convert, plain
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.lanes import Processors
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import Suite
from tfbench.report import screen
from tfbench.sides.environments import Environments, kept
from tfbench.sides.spec import Side, parse
from tfbench.storage.baselines import Layout
from tfbench.untrusted import an_object, brief, described, parse_json, plural

SCHEMA = "tfbench-calibration/1"

# Store the trials of a calibration: verdicts on code with a known slowdown, one line of JSON each


RACED = "race"
"""The method of trials that tfbench decided by a race."""
SAVED = {"saved median": "median", "saved mean": "mean"}
"""Methods of pytest-benchmark: a saved run against a saved run, with a limit of 5% on the statistic."""


@dataclass(frozen=True)
class CalibrationTrial:
    """A verdict and its cost.

    ``slowdown`` is the fraction of extra work that the contender really did, 0 for unchanged code.
    ``effects`` are the log-ratios of the launches, ``pairs`` their pairs of zygotes, and ``errors`` the standard errors of
    the log-ratios. ``intervals`` are those at the end of the race and, after a change, of the race that confirms it.
    Journals of earlier versions have no errors and no intervals.
    """

    method: str
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

    @property
    def same(self) -> bool:
        """Whether both sides ran the same code."""
        return self.slowdown == 0 and not self.slow_calls

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

    def read(self) -> list[CalibrationTrial]:
        """Read every trial. An incomplete last line is ignored. Raises `ReportError` if another line is not a trial."""
        lines = read_text(self.path).split("\n") if self.path.exists() else []
        trials = []
        for number, line in enumerate(lines[:-1], start=1):  # text after the last newline is incomplete
            try:
                trials.append(_parsed(line))
            except ValueError as error:
                text = f"{brief(self.path)}, line {number}: not a trial ({described(error)}); move the file away"
                raise ReportError(text) from None
        return trials

    def append(self, *trials: CalibrationTrial) -> None:
        """Append trials to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps(asdict(trial), allow_nan=False, separators=(",", ":")) + "\n" for trial in trials
            )


def _parsed(line: str) -> CalibrationTrial:
    content = an_object(parse_json(line), "the line")
    if unknown := set(content) - {field.name for field in fields(CalibrationTrial)}:
        raise ValueError(f"unknown field {brief(min(unknown))!r}")  # such a trial may be of another kind
    trial = convert(CalibrationTrial, content)
    for interval in trial.intervals:
        if not 0 <= interval.center < math.inf or not interval.low <= interval.high < math.inf:
            raise ValueError(f"an interval from {interval.low:g} to {interval.high:g}")
    return trial


# Select cases by an expression, as ``-k`` of pytest does


class Selection:
    """Cases whose names match an expression: parts of names, joined by ``and``, ``or``, ``not`` and parentheses.

    An empty one matches all cases. Raises `UsageError` if the text is no such expression.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._expression = Expression.compile(text)
        except Exception as error:  # of a type that depends on pytest's version
            raise UsageError(f"-k {text!r}: {error}; join names by and, or, not and parentheses") from None

    def of(self, names: Iterable[str]) -> list[str]:
        """Return the names that match, in their order. Raises `UsageError` if none does."""
        matching = [name for name in names if not self._text or self._matches(name.lower())]
        if not matching:
            raise UsageError(f"no benchmark matches -k {self._text!r}" if self._text else "there is no benchmark")
        return matching

    def _matches(self, name: str) -> bool:
        return self._expression.evaluate(lambda part, /, **_: part.lower() in name)


# Apply pytest-benchmark's method to the same workloads: time a run, save it, compare saved runs with a 5% limit


LIMIT = 1.05
"""The ratio above which ``--benchmark-compare-fail=median:5%`` fails."""
_TIMEOUT = 600.0


@dataclass(frozen=True)
class SavedRun:
    """Statistics of every workload in one run of pytest-benchmark with its own defaults."""

    slowdown: float
    stats: dict[str, dict[str, float]]
    seconds: float


def measure(file: Path, slowdown: float) -> SavedRun:
    """Run pytest-benchmark on the workloads in a separate process. Raises `SideError` if the process failed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env |= {"TFBENCH_SLOWDOWN": str(slowdown), "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-m", "pytest", "-q", str(file), "-p", "no:tfbench.plugin"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "saved.json")
        command += ["-c", os.devnull, "-o", f"cache_dir={folder}"]
        command += [f"--rootdir={file.parent}", f"--benchmark-json={target}"]
        began = time.perf_counter()
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT)
        if done.returncode:
            raise SideError(f"pytest-benchmark failed on {file}:\n{done.stdout[-2000:]}")
        rows = json.loads(target.read_text())["benchmarks"]
    stats = {row["params"]["name"]: {key: row["stats"][key] for key in ("median", "mean")} for row in rows}
    return SavedRun(slowdown, stats, (time.perf_counter() - began) / len(stats))


def compare(runs: list[SavedRun], number: int) -> list[CalibrationTrial]:
    """Compare the newest run, with its number, with all earlier ones on unchanged code, by pytest-benchmark's rule."""
    *earlier, newest = runs
    trials = []
    for before, method in itertools.product([run for run in earlier if not run.slowdown], SAVED):
        statistic = SAVED[method]
        for name in [name for name in newest.stats if name in before.stats]:
            ratio = newest.stats[name][statistic] / before.stats[name][statistic]
            outcome = Outcome.REGRESSED if ratio > LIMIT else Outcome.UNCHANGED
            trials.append(
                CalibrationTrial(method, "5%", name, newest.slowdown, outcome, 2 * newest.seconds, 1, number, (), ())
            )
    return trials


# Run a calibration: repeatedly start fresh zygotes and decide on each workload, unchanged and slowed down


WORKLOADS = Path(__file__).resolve().parents[1] / "worker" / "workloads"
USUAL = "test_raced.py"
"""File of the workloads that thresholds were chosen on."""
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
_CPU = "device=cpu"
"""In the names of cases that a calibration of a GPU leaves out."""
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
    device: tuple[str, tuple[str, ...]]
    """``cpu``, ``gpu`` or ``all``, and GPUs by index or UUID."""
    saved: bool
    """Whether pytest-benchmark's method runs too, in every second run on the usual workloads."""
    root: Path
    files: tuple[str, ...]
    chosen: Selection

    @property
    def kinds(self) -> dict[str, str]:
        """How the plan differs from the usual one: name in a journal's file -> words."""
        against = f"against-{re.sub(r'[^a-zA-Z0-9.=]+', '-', self.against)}"  # sides do not share a journal
        kinds = {
            "tails": ("", self.tails),
            "variants": ("variants from one zygote", self.variants),
            "separate": ("separate imports", self.separate),
            against: (f"against {self.against}", self.against != "self"),
            "gpu": ("on a GPU", self.device[0] == "gpu"),
        }
        return {name: words for name, (words, applies) in kinds.items() if applies}

    def journal_name(self, busy: bool) -> str:
        """Return the name of the file of its trials."""
        return "-".join([self.policy.name, *self.kinds, *(["busy"] if busy else [])]) + ".jsonl"


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
    trials = journal.read()
    saved: list[SavedRun] = []

    def keep(*found: CalibrationTrial) -> None:
        trials.extend(found)
        journal.append(*found)

    def tell(text: str) -> None:
        progress(text, len(trials))

    gpus = _gpus(plan.device, plan.policy)
    with closing(gpus), Environments(kept(), tell) as environments:
        sides = _sides(plan, environments, gpus.environment)
        number = 1 + max((trial.run for trial in trials), default=-1)
        while time.monotonic() - began < seconds:
            for trial in _one_run(plan, sides, gpus.gpu_monitor, number, rng, tell):
                keep(trial)
                if time.monotonic() - began > seconds:
                    break
            if plan.saved and (plan.root, plan.files) == (WORKLOADS, (USUAL,)) and number % 2 == 0:
                tell("pytest-benchmark, for comparison")
                slowdown = SAVED_SLOWDOWNS[len(saved) % len(SAVED_SLOWDOWNS)]
                saved.append(measure(WORKLOADS / "test_saved.py", slowdown))
                keep(*compare(saved, number))
            number += 1


def _gpus(device: tuple[str, Sequence[str]], policy: Policy) -> GpuSession:
    kind, names = device
    if kind == "gpu" and not has_driver():
        raise UsageError("--device gpu: no GPU here: there is no NVIDIA driver")
    return GpuSession(kind, names, policy)


def _sides(plan: Plan, environments: Environments, variables: Mapping[str, str]) -> tuple[Side, Side]:
    """Return the baseline and the contender, both with these environment variables."""
    contender = Side("contender", sys.executable, plan.root, env=variables)
    if plan.variants:
        return contender, contender
    baseline = parse(plan.against, contender, Layout.of(Path.cwd()).trees, environments)
    return (replace(baseline, env={**baseline.env, **_SEPARATE}) if plan.separate else baseline), contender


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
        none = Case("", "", "")
        policy = launcher.policy_of(plan.policy, [Entrant(none, baseline), Entrant(none, contender)])
        pairs = range(min(policy.zygotes, policy.looks[0]))
        launcher.ready([(baseline, ()), (contender, ())], pairs)
        collected = launcher.zygote(Entrant(none, contender), 0).collected.cases
        names = plan.chosen.of(sorted(name for name in collected if plan.device[0] != "gpu" or _CPU not in name))
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
            outcome, seconds = race.decision.outcome, round(race.wall_seconds, 3)
            effects = [effect for stage in race.races for effect in stage.effects(1)]
            yield CalibrationTrial(
                RACED, plan.policy.name, short, slowdown, outcome, seconds, race.launches, number,
                tuple(round(effect.value, 6) for effect in effects), tuple(effect.pair for effect in effects),
                tuple(round(effect.error, 6) for effect in effects),
                tuple(stage.decisions[1].comparison.ratio for stage in race.races), kind,
            )  # fmt: skip


def _short(name: str) -> str:
    file, _, rest = name.partition("::")
    return rest.removeprefix("test_step[").removesuffix("]").removeprefix("test_") if file == USUAL else name


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
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen([*command, str(cpu), str(os.getpid())]) for cpu in cpus if cpu not in worker]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


# Summarize trials as rates with intervals. Pure functions


CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
DETECTABLE = 0.95
"""A slowdown counts as detectable if at least this share of its trials has regressed."""

_CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
"""Outcomes that are false on unchanged code."""


def rate(hits: int, trials: int) -> Rate:
    """Compute a rate with its exact binomial interval (Clopper and Pearson 1934, Biometrika 26)."""
    return Rate(hits, trials, _summary_interval(hits, trials))


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
    return Rate(hit, total, _summary_interval(value * effective, effective))


def _summary_interval(hits: float, trials: float) -> tuple[float, float]:
    low = float(betaincinv(hits, trials - hits + 1, _TAIL)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - _TAIL)) if hits < trials else 1.0
    return low, high


def tally(name: str, method: str, trials: Sequence[CalibrationTrial]) -> RateRow:
    """Summarize trials of one method in a row."""
    same = [trial for trial in trials if trial.same]
    slowdowns = sorted({trial.slowdown for trial in trials if trial.slowdown > 0})
    kinds = dict.fromkeys(trial.slow_calls for trial in trials if trial.slow_calls)
    tails = {kind: [trial for trial in trials if trial.slow_calls == kind] for kind in kinds}
    slowed = {slowdown: [t for t in trials if t.slowdown == slowdown] for slowdown in slowdowns}
    detected = {slowdown: _rate(those, Outcome.REGRESSED) for slowdown, those in slowed.items()}
    told = [trial for trial in same if trial.intervals]
    # A slowdown counts only if every larger one is detected too.
    reliable = takewhile(lambda slowdown: detected[slowdown].value >= DETECTABLE, reversed(slowdowns))
    return RateRow(
        name=name,
        method=method,
        false_alarms=_rate(same, *_CHANGES),
        inconclusive=_rate(same, Outcome.INCONCLUSIVE),
        detected=detected,
        smallest_found=min(reliable, default=None),
        seconds=median(trial.seconds for trial in same) if same else None,
        seconds_detected={slowdown: median(trial.seconds for trial in those) for slowdown, those in slowed.items()},
        launches=median(trial.launches for trial in same) if same else None,
        tails={kind: _rate(those, Outcome.REGRESSED) for kind, those in tails.items()},
        seconds_tails={kind: median(trial.seconds for trial in those) for kind, those in tails.items()},
        coverage=_share(told, lambda trial: trial.holds_truth) if told else None,
        nominal_coverage=fmean(trial.intervals[0].confidence for trial in told) if told else None,
    )


def by_workload(method: str, trials: Sequence[CalibrationTrial]) -> list[RateRow]:
    """Summarize each workload in a row, in the order of their first trials."""
    names = dict.fromkeys(trial.workload for trial in trials if trial.method == method)
    return [tally(name, method, [t for t in trials if t.method == method and t.workload == name]) for name in names]


def whole_runs(trials: Sequence[CalibrationTrial], cases: int) -> Rate:
    """Compute the rate of runs with a false positive; a run is ``cases`` successive verdicts on unchanged code."""
    same = [trial for trial in trials if trial.same]
    runs = [same[first : first + cases] for first in range(0, len(same) - cases + 1, cases)]
    return rate(sum(_rate(run, *_CHANGES).hits > 0 for run in runs), len(runs))


def _rate(trials: Sequence[CalibrationTrial], *outcomes: Outcome) -> Rate:
    return _share(trials, lambda trial: trial.outcome in outcomes)


def _share(trials: Sequence[CalibrationTrial], is_hit: Callable[[CalibrationTrial], bool]) -> Rate:
    """Compute the rate of hits. Trials of a workload in one run share zygotes, and are a cluster."""
    sizes = Counter((trial.run, trial.workload) for trial in trials)
    hits = Counter((trial.run, trial.workload) for trial in trials if is_hit(trial))
    return clustered_rate([hits[cluster] for cluster in sizes], list(sizes.values()))


# Read how often the gate was wrong about unchanged code on this machine, if anybody has measured it


def measured_false_alarms(folder: Path, policy: str, way: str) -> Rate | None:
    """Return the rate of changes among verdicts on unchanged code; ``None`` if it was not measured here.

    Args:
        folder: Folder of the journals of ``tfbench calibrate``.
        policy: Name of the policy whose verdicts count.
        way: ``sides`` or ``variants``: the entrants of the races.
    """
    if not policy.isalnum():
        return None
    try:
        name = f"{policy}-variants.jsonl" if way == "variants" else f"{policy}.jsonl"
        trials = Journal(folder / name).read()
    except (ReportError, OSError):
        return None
    alarms = tally("", RACED, [trial for trial in trials if trial.method == RACED]).false_alarms
    return alarms if alarms.trials else None


# Print a calibration as a table


WIDE = 100
"""On lines with fewer characters, headings are broken, so that all columns fit into 80."""
ROOMY = 130
"""The same with a column of coverage, which then has its interval."""
_NAME = 25
"""Characters of a name on a line, which then fits into 80 with the other columns."""
_HEADINGS = ("false positives", "inconclusive", "min. detectable", "coverage of ")
_BROKEN_HEADINGS = ("false\npositives", "in-\nconclu-\nsive", "min.\nde-\ntect-\nable", "cov-\nerage\nof\n")


def table(title: str, rows: Sequence[RateRow], width: int) -> Table:
    """Make a table of so many characters: false positives with their upper bound, detected slowdowns, cost.

    Journals with intervals have a column of their coverage. Its heading has the nominal one.
    """
    nominal = _nominal(rows)
    wide = width >= (WIDE if nominal is None else ROOMY)
    false_positives, inconclusive, detectable, covering = _HEADINGS if wide else _BROKEN_HEADINGS
    slowdowns = sorted({slowdown for row in rows for slowdown in row.detected})
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.tails))
    headings = [kind if wide else kind.replace(" ", "\n") for kind in kinds]
    made = screen.table(title)
    made.add_column("workload", overflow="fold", min_width=13)
    injected = [f"+{slowdown_text(slowdown)}" for slowdown in slowdowns]
    coverage = [] if nominal is None else [f"{covering}{nominal:.1%}".replace(".0%", "%")]
    for name in (false_positives, inconclusive, *coverage, *injected, *headings, detectable, "s"):
        made.add_column(name, justify="right", no_wrap=True)
    names = [short_name(row.name) for row in rows]
    if len(set(names)) < len(rows):
        names = [row.name for row in rows]
    for name, row in zip(names, rows, strict=True):
        screen.add_row(
            made,
            screen.break_name(name, _NAME),
            of(row.false_alarms, " ≤"),
            percent(row.inconclusive),
            *([_coverage(row.coverage, wide)] if coverage else []),
            *(percent(row.detected[s]) if s in row.detected else "" for s in slowdowns),
            *(percent(row.tails[kind]) if kind in row.tails else "" for kind in kinds),
            "-" if row.smallest_found is None else slowdown_text(row.smallest_found),
            "-" if row.seconds is None else f"{row.seconds:.1f}",
        )
    return made


def _nominal(rows: Sequence[RateRow]) -> float | None:
    """Return the mean confidence of all intervals of the rows, ``None`` if they have none."""
    told = [
        (row.nominal_coverage, row.coverage.trials) for row in rows if row.nominal_coverage is not None and row.coverage
    ]
    return sum(nominal * trials for nominal, trials in told) / sum(trials for _, trials in told) if told else None


def _coverage(rate: Rate | None, with_interval: bool) -> str:
    if rate is None:
        return "-"
    return f"{percent(rate)} ({rate.low:.1%} to {rate.high:.1%})" if with_interval else percent(rate)


def costs(row: RateRow) -> str:
    """Format the median seconds of a verdict: ``2.4 s on unchanged code, 19.0 s at +2%``; ``""`` without trials."""
    same = [] if row.seconds is None else [f"{row.seconds:.1f} s on unchanged code"]
    slowed = [f"{took:.1f} s at +{slowdown_text(slowdown)}" for slowdown, took in sorted(row.seconds_detected.items())]
    tails = [f"{took:.1f} s at {kind}" for kind, took in row.seconds_tails.items()]
    return ", ".join([*same, *slowed, *tails])


def of(rate: Rate, bound: str = ", at most ") -> str:
    """Format a rate with its upper bound at 95% confidence: ``1/500, at most 1.1%``."""
    return f"{rate.hits}/{rate.trials}{bound}{rate.high:.1%}" if rate.trials else "-"


def percent(rate: Rate) -> str:
    """Format a rate as ``97%``, or as a dash without trials."""
    return f"{rate.value:.1%}".replace(".0%", "%") if rate.trials else "-"


MEMORY_BOUND = frozenset({"elementwise"})
"""Fixed workloads that totals leave out, because their noise comes from the memory and not the processor."""
LEGEND = (
    "false positives: changes reported on unchanged code, and the upper bound of their rate at 95% confidence;\n"
    "+N%: share of these slowdowns that are reported; min. detectable: smallest slowdown reported 95% of the time; "
    "coverage of N%: share of verdicts on unchanged code whose intervals hold the true ratio, where they claim N%; "
    "s: median seconds per verdict, besides the start of zygotes; verdicts on a workload from the same zygotes are a "
    "cluster in every interval"
)


def summary(plan: Plan, trials: Sequence[CalibrationTrial], width: int) -> RenderableType:
    """Return the tables and lines of all trials of a plan."""
    raced = [trial for trial in trials if trial.method == RACED]
    if not raced:
        return Text("no verdict yet; give the calibration more time with --budget")
    how = "".join(f", {words}" for words in plan.kinds.values() if words)
    what = f"policy {plan.policy.name}, a suite of {plural(plan.cases, 'case')}{how}"
    in_total = tally("in total", RACED, [t for t in raced if t.workload not in MEMORY_BOUND])
    totals = [in_total]
    for name in sorted(MEMORY_BOUND):
        totals.append(tally(f"{name} (bound by memory)", RACED, [t for t in raced if t.workload == name]))
    for method, statistic in SAVED.items():
        of_method = [t for t in trials if t.method == method and t.workload not in MEMORY_BOUND]
        totals.append(tally(f"pytest-benchmark {statistic} +5%", method, of_method))
    totals = [row for row in totals if row.false_alarms.trials or row.detected]
    lines = [LEGEND]
    if in_total.coverage and in_total.nominal_coverage:
        hits = f"{in_total.coverage.hits}/{in_total.coverage.trials}"
        bounds = f"{in_total.coverage.low:.1%} to {in_total.coverage.high:.1%} at 95% confidence"
        lines.append(
            f"coverage of intervals on unchanged code: {hits}, {bounds}, nominal {in_total.nominal_coverage:.1%}"
        )
    if taken := costs(in_total):
        lines.append(f"median time of a verdict: {taken}")
    runs = plural(len({trial.run for trial in raced}), "run")
    lines.append(f"verdicts: {len(raced)}, from {runs} with zygotes of their own")
    whole = whole_runs(raced, plan.cases)
    if whole.trials:
        lines.append(f"runs of {plural(plan.cases, 'unchanged case')} with a false positive: {of(whole)}")
    tables = table(f"tfbench, {what}", by_workload(RACED, trials), width), table("all workloads", totals, width)
    return Group(*tables, *map(Text, lines))


def as_json(plan: Plan, trials: Sequence[CalibrationTrial]) -> JSON:
    """Return the rates of all trials of a plan as the content of a report."""
    content: JSON = {"schema": SCHEMA, "policy": plan.policy.as_json(), "cases": plan.cases, "machine": machine()}
    for method in (RACED, *SAVED):
        if those := [trial for trial in trials if trial.method == method]:
            content[method] = {
                "workloads": list(map(plain, by_workload(method, trials))),
                "total": plain(tally("in total", method, [t for t in those if t.workload not in MEMORY_BOUND])),
            }
    content["whole_runs"] = plain(whole_runs([t for t in trials if t.method == RACED], plan.cases))
    return content


# Check that exact metrics are exact, by probing the same cases many times


_AT_ONCE = 10
"""Launches per zygote. A metric may depend on a property of the zygote, such as its hash seed."""


@dataclass(frozen=True)
class Exactness:
    """The agreement of many launches of a case."""

    case: Case
    launches: int
    metrics: int
    """Number of metrics that could be read."""
    demoted: dict[str, str]
    """Metric -> how the launches differ."""
    skipped: str = ""


def examine(
    root: Path,
    suite: Suite,
    cases: Sequence[Case],
    launches: int,
    policy: Policy,
    processors: Processors,
    device: tuple[str, Sequence[str]],
    report: Callable[[Case, int], None],
) -> list[Exactness]:
    """Probe each case ``launches`` times, in processes of several zygotes.

    Raises:
        BenchmarkError: A case breaks.
        SideError: A zygote does not start.
        UsageError, GpuError: The device is not there, or another run uses it.
    """
    metric_values: dict[str, list[MetricValues]] = {case.name: [] for case in cases}
    with closing(_gpus(device, policy)) as gpus:
        side = Side("contender", sys.executable, root, env=gpus.environment)
        skipped = {case.name: why for case in cases if (why := gpus.skip_reason(case))}
        for first in range(0, launches, _AT_ONCE):
            with closing(ProcessLauncher(suite, policy, processors, gpus.gpu_monitor)) as launcher:
                for case in cases:
                    report(case, first)
                    repeats = 0 if case.name in skipped else min(_AT_ONCE, launches - first)
                    for output in Prober(launcher, policy).probe([Entrant(case, side)] * repeats):
                        if isinstance(output, BenchmarkSkipped):
                            skipped[case.name] = str(output)
                        elif isinstance(output, ProbeOutput):
                            metric_values[case.name].append(read(output))
                        else:
                            raise output
    return [_exactness(case, metric_values[case.name], policy, skipped.get(case.name, "")) for case in cases]


def _exactness(case: Case, metric_values: Sequence[MetricValues], policy: Policy, skipped: str) -> Exactness:
    if not metric_values:
        return Exactness(case, 0, 0, {}, skipped)
    known = sum(metric_values[0].value(metric.name) is not None for metric in PROBED)
    demoted = differing(metric_values, policy)
    known += bool(metric_values[0].sketch)
    results = [values.sketch for values in metric_values]
    worst = parity.largest(
        [one for result in results[1:] for one in parity.sketched_differences(result, results[0])], {}, policy
    )
    if worst.error > worst.floor(policy):
        demoted[parity.PARITY] = worst.note(whose="that of another launch of the same side").message
    return Exactness(case, len(metric_values), known, demoted)


def exactness(cases: Sequence[Exactness], launches: int) -> list[str]:
    """Describe the metrics that are not exact, a line each, and then how many are."""
    lines = []
    for case in cases:
        lines += [f"{case.case.short_name}: skipped, {case.skipped}"] if case.skipped else []
        lines += [f"{case.case.short_name}: {metric} is not exact: {how}" for metric, how in case.demoted.items()]
    probed = [case for case in cases if case.launches]
    metrics, demoted = sum(case.metrics for case in probed), sum(len(case.demoted) for case in probed)
    exact = f"{metrics - demoted} of {metrics} exact metrics"
    return [*lines, f"{exact} are the same in {launches} launches of {len(probed)} cases"]
