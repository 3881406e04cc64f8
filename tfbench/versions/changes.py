"""Find what changed in a case between two sides: its metrics, its graphs, and the cause of each change."""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tfbench.errors import BenchmarkError, BenchmarkSkipped, ProfileError, SideError, TfbenchError
from tfbench.facts import interpreter_options
from tfbench.fs import scratch_dir
from tfbench.metrics import catalog, exact
from tfbench.metrics.catalog import FIRST_CALL, LEAK_METRICS, PEAK_HOST_MEMORY
from tfbench.metrics.exact import ComparisonContext
from tfbench.metrics.graphs import GRAPH, RESULT
from tfbench.metrics.graphs import XLA as XLA_MODULE
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import JSON, TIME, Case, MetricValues, Outcome, Ratio, ReasonCode, Verdict
from tfbench.model.formats import plain
from tfbench.model.words import SECONDS, amount, times
from tfbench.policy import Policy
from tfbench.profiles.attribution import HALF, Attribution, TimeCategory, describe, grown, memory_lines, must_show
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.launch import Entrant, Failure
from tfbench.race.prober import Prober, Profiler, sample
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race
from tfbench.race.workers import worker_environment
from tfbench.report.profile import describe_cause
from tfbench.session.profiling import (
    BASELINE,
    CONTENDER,
    PROFILE_FAILURES,
    Explanation,
    explained,
    explanation,
    take,
)
from tfbench.sides.spec import Side
from tfbench.stats.verdict import Decision
from tfbench.untrusted import an_object, brief, parse_json, plural, texts

# The difference of a case between two sides in one metric: raced for durations and memory, read for counts


RACED = (TIME, FIRST_CALL, PEAK_HOST_MEMORY)
"""Metrics that differ between launches of the same code, so that two sides are raced for them."""
COUNTED = tuple(metric.name for metric in catalog.PROBED)
"""Metrics that probing launches read."""


@dataclass(frozen=True)
class Difference:
    """How the second side differs from the first one in a metric."""

    outcome: Outcome | None
    """``None`` if it was not measured, for the reason."""
    reason: str
    ratio: Ratio | None = None
    launches: int = 0
    seconds: float = 0.0
    failures: Mapping[int, Failure] = field(default_factory=dict)
    """Why a side cannot run the case: 0 is the first side."""


def difference(
    launcher: ProcessLauncher, policy: Policy, metric: str, sides: tuple[Entrant, Entrant], races: int = 1
) -> Difference:
    """Race two sides of a case for one of `RACED`, or read one of `COUNTED` on both.

    ``races`` share the alpha of the policy. Raises `SideError` if a process does not start.
    """
    entrants = [replace(side, case=replace(side.case, thresholds=())) for side in sides]  # the policy has the threshold
    if metric in COUNTED:
        launcher.start_pairs(entrants, [0])
        return counted(Prober(launcher, policy), policy, metric, *entrants)
    start(launcher, policy, entrants)
    policy = replace(policy, sampled_seconds=policy.case_seconds)  # a first call is all that this race is for
    race = ConfirmedRace(entrants, launcher, policy, races, time.perf_counter, random.Random(), metrics=(metric,))
    race.run()
    return raced(race, metric)


def start(launcher: ProcessLauncher, policy: Policy, entrants: Sequence[Entrant]) -> None:
    """Start the zygotes of the first look, and build the shared set-ups of the entrants before they race."""
    launcher.start_pairs(entrants, range(policy.looks[0]))
    Prober(launcher, policy).share(entrants)


def raced(race: ConfirmedRace, metric: str) -> Difference:
    """Return the result of a race on one of `RACED`."""
    if race.failures:
        return Difference(None, "", failures=race.failures)
    if race.abort_reason:
        return Difference(None, f"disturbed: {race.abort_reason}")
    if race.unlike:
        return Difference(None, race.unlike.message)
    judged: Decision | Verdict | None = {
        TIME: race.decision, FIRST_CALL: race.first_call, PEAK_HOST_MEMORY: race.memory,
    }[metric]  # fmt: skip
    if judged is None or judged.outcome is None:
        return Difference(None, f"no {metric} was measured")
    ratio = judged.ratio if isinstance(judged, Verdict) else judged.comparison.ratio
    return Difference(judged.outcome, judged.reason.message, ratio, race.launches, race.wall_seconds)


def counted(prober: Prober, policy: Policy, metric: str, before: Entrant, now: Entrant) -> Difference:
    """Read one of `COUNTED` in several launches of both sides. A change counts if the launches of each side agree.

    Raises `SideError` if a process does not start.
    """
    began = time.perf_counter()
    values: _Values = [], []
    if failures := _read(prober, (before, now), [0], values):
        return Difference(None, "", failures=failures)
    verdict = _of_metric(metric, now.case, values, policy)
    if verdict and verdict.outcome not in (Outcome.NEW, Outcome.MISSING, Outcome.UNCHANGED):
        if failures := _read(prober, (before, now), _other_pairs(policy), values):
            return Difference(None, "", failures=failures)
        verdict = _of_metric(metric, now.case, values, policy)
    if verdict is None or verdict.outcome in (Outcome.NEW, Outcome.MISSING):
        return Difference(None, verdict.reason.message if verdict else f"neither side reports {metric}")
    # A change within the tolerance has no ratio.
    ratio = None if verdict.outcome is Outcome.UNCHANGED else _exact_ratio(*(verdict.values or (None, None)))
    return Difference(verdict.outcome, verdict.reason.message, ratio, len(values[0]), time.perf_counter() - began)


_Values = tuple[list[MetricValues], list[MetricValues]]
"""The metrics of each launch of two sides."""


def _read(prober: Prober, sides: Sequence[Entrant], pairs: Sequence[int], values: _Values) -> dict[int, Failure]:
    """Add the metrics of a launch from each of these pairs of zygotes; return side -> why one of its launches failed."""
    failures = {}
    launches = prober.probe([side for side in sides for _ in pairs], [*pairs, *pairs])
    for number, launch in enumerate(launches):
        side = number // len(pairs)
        if isinstance(launch, ProbeOutput):
            values[side].append(catalog.read(launch))
        else:
            failures[side] = launch
    return failures


def _of_metric(metric: str, case: Case, values: _Values, policy: Policy) -> Verdict | None:
    return {row.metric: row for row in _judged(case, *values, policy)}.get(metric)


def _other_pairs(policy: Policy) -> list[int]:
    """Return the pairs of zygotes of the launches that read a difference again: those of the first look of a race."""
    return [launch % policy.looks[0] for launch in range(1, policy.probe_launches)]


def _exact_ratio(before: float | None, now: float | None) -> Ratio | None:
    return Ratio(now / before, now / before, now / before, 1.0) if before and now else None


def _judged(case: Case, before: Sequence[MetricValues], now: Sequence[MetricValues], policy: Policy) -> list[Verdict]:
    """Compare the counts of two sides; a metric that launches of one side disagree about is inconclusive."""
    unstable = {name: how for side in (before, now) for name, how in exact.differing(side, policy).items()}
    anywhere = replace(policy, exact_across_versions=True)
    return exact.compare(case, before[0], now[0], ComparisonContext(unstable=unstable), anywhere)[0]


# Find the default whose change explains a slowdown: compare the flags of two sides, and race each set back


XLA = "XLA_FLAGS"
MOST_DEFAULTS = 12
"""Candidates that are raced at most. A race takes 20 seconds, so all of them four minutes."""
ENOUGH = 0.8
"""A candidate that removes this share of the slowdown is the cause: the search ends, as the rest is noise of the race."""
NOTABLE = 0.2
"""A candidate below this share is not named: half of it is the width of an interval in a quick race."""
_SECONDS = 120
"""An import of TensorFlow takes 20 s on a busy machine."""
_FLAG = re.compile(r"^\s+--(\w+)=(\"[^\"]*\"|\S*)\s+(bool|string|int32|int64|float|double)\b", re.MULTILINE)
_SKIPPED = re.compile("gpu|dump|print|tpu|step_marker|crash|reset|command_buffer|trace|rocm|cuda|nccl", re.IGNORECASE)
"""Parts of names of flags that change no code on a CPU."""
_XLA_PROGRAM = "import tensorflow as tf; tf.function(lambda x: x + x, jit_compile=True)(tf.ones([4]))"
_PROGRAM = """
import json, sys
import tensorflow as tf
found = {}
try:
    from tensorflow.core.config import flags
    config = flags.config()
    for name in dir(config):
        flag = getattr(config, name)
        if hasattr(flag, "value"):
            found["TF_" + name.upper()] = str(flag.value()).lower()
except Exception:
    pass
try:  # a graph tells whether oneDNN is used: TensorFlow 2.10 uses it and denies it
    from tensorflow.python.eager import context
    kernel = tf.ones([3, 3, 8, 8])
    step = tf.function(lambda x: tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), tf.ones([8]))))
    context.context().enable_graph_collection()
    step(tf.ones([1, 16, 16, 8]))
    graphs = context.context().export_run_metadata().function_graphs
    ops = [node.op for graph in graphs for part in graph.partition_graphs for node in part.node]
    found["TF_ENABLE_ONEDNN_OPTS"] = str(int(any("_Mkl" in op for op in ops)))
except Exception:
    pass
sys.stdout.write("\\n" + json.dumps(found))
"""


class Default(NamedTuple):
    """The default of a flag or setting."""

    value: str
    kind: str = ""
    """Type of a flag of XLA, such as ``bool``; ``""`` for a setting of TensorFlow."""


@dataclass(frozen=True)
class Candidate:
    """A default of the bad side, and the setting that sets it back."""

    name: str
    was: str
    """The default of the good side, ``""`` if it does not have the flag."""
    now: str
    back: str
    """The value that it is set to."""

    @property
    def env(self) -> tuple[str, str]:
        """Environment variable and its value."""
        return (XLA, f"{self.name}={self.back}") if self.name.startswith("--") else (self.name, self.back)

    def __str__(self) -> str:
        return f"{self.name} ({self.was or 'absent'} before, {self.now} now), set to {self.back}"


class Removal(NamedTuple):
    """A candidate that removes a part of a slowdown."""

    candidate: Candidate
    share: float
    """Of the slowdown. Above 1 if the side becomes faster than the good one."""
    ratio: Ratio
    """Of the bad side with the candidate to the good side."""

    def __str__(self) -> str:
        return (
            f"default: {self.candidate} removes {min(1.0, self.share):.0%} of the slowdown: ratio {times(self.ratio)}"
        )


def defaults_of(side: Side) -> dict[str, Default]:
    """Return the flags of XLA and of TensorFlow with their defaults on a side.

    Raises `SideError` if the side prints neither.
    """
    # XLA prints its flags and ends the process with an error, because it does not know this one.
    printed = _run(side, _XLA_PROGRAM, {XLA: "--help"})
    flags = {f"--{name}": Default(value.strip('"'), kind) for name, value, kind in _FLAG.findall(printed)}
    last = _run(side, _PROGRAM, {}).strip().rpartition("\n")[2]
    try:
        others = texts(an_object(parse_json(last), "the settings"), "the settings")
    except ValueError:
        others = {}
    if not flags and not others:
        raise SideError(f"{side.spec}: prints neither flags of XLA nor settings of TensorFlow: {printed[-300:]}")
    return flags | {name: Default(value) for name, value in others.items()}


def _run(side: Side, program: str, extra: Mapping[str, str]) -> str:
    env = worker_environment(dict(os.environ), side, extra)
    try:
        done = subprocess.run(
            [side.executable, *interpreter_options(), "-c", program], env=env, capture_output=True, text=True, errors="replace", check=False,
            timeout=_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SideError(f"{side.spec}: its flags cannot be read: {error}") from None
    return done.stderr + done.stdout


def candidates(good: Mapping[str, Default], bad: Mapping[str, Default]) -> list[Candidate]:
    """Return the settings of the bad side to race, those with another default first, at most `MOST_DEFAULTS`.

    A new flag is set to what the good side probably did: a switch to its opposite, and a number to 1 and to its double.
    """
    changed: list[Candidate] = []
    new: list[Candidate] = []
    for name, now in bad.items():
        was, (value, kind) = good.get(name), now
        if was == now or _SKIPPED.search(name):
            continue
        if was is not None:
            changed.append(Candidate(name, was.value, value, was.value))
        elif kind == "bool":
            new.append(Candidate(name, "", value, "false" if value == "true" else "true"))
        elif kind.startswith("int") and value.isdigit() and int(value) > 1:
            new += [Candidate(name, "", value, str(other)) for other in (1, 2 * int(value))]
    # A switch that is on acts, and one that is off usually does not exist in effect.
    new.sort(key=lambda flag: ("cpu" not in flag.name, flag.now == "false"))
    return [*changed, *new][:MOST_DEFAULTS]


def set_back(side: Side, candidate: Candidate) -> Side:
    """Return the side with this default set back."""
    name, value = candidate.env
    given = side.env.get(name, "")
    both = f"{given} {value}".strip() if name == XLA else value
    return replace(side, name=f"{side.name} with {value}"[:80], env={**side.env, name: both}, named=(*side.named, name))


def share(bad: Ratio, back: Ratio) -> float:
    """Return the share of a slowdown that a setting removes, on the scale of logarithms of ratios to the good side."""
    return 1 - log(back.center) / log(bad.center)


def search_defaults(
    bad: Ratio, suspects: Sequence[Candidate], race: Callable[[Candidate], Ratio | str], tell: Callable[[str], None]
) -> list[Removal]:
    """Race candidates until one removes the slowdown; return each that removes a share of it, the largest first.

    Args:
        bad: The slowdown, a ratio to the good side.
        race: Returns the ratio of the bad side with the candidate to the good side, or why it cannot run.
    """
    removals: list[Removal] = []
    for number, candidate in enumerate(suspects, 1):
        tell(f"default {number}/{len(suspects)}: {candidate.name}")
        ratio = race(candidate)
        if isinstance(ratio, str):
            continue
        removed = share(bad, ratio)
        if removed >= NOTABLE and ratio.high < bad.center:
            removals.append(Removal(candidate, removed, ratio))
            if removed >= ENOUGH:
                break
    return sorted(removals, key=lambda removal: -removal.share)


# Name causes: what graphs, profiles and samples show, and where they show nothing, the defaults of a version


RETRACES = {"retraces_per_call": " per call", "retraces": " after the first call"}
_OPS = "graph_ops"
_LEAKS = frozenset(metric.name for metric in LEAK_METRICS)
_EXECUTES = "tensorflow.python.eager."
"""The modules in which Python waits for ops. They say nothing about which ops."""
_TRACES = ("func_graph", "tracing_compilation", "polymorphic_function")
"""Parts of the names of functions that trace. In a call that is not the first, they are a cause of their own."""
_LOOPS = ("NextIteration", "While")
_LAUNCHES = 2
"""Profiled launches per side. A cause of half of a slowdown needs no more, unlike the many small ones of `explain`."""


def traced_again(evidence: Explanation) -> list[str]:
    """Return a line if the step traces functions again in later calls, and did not before."""
    for change in evidence.metrics:
        if change.metric in RETRACES and change.now and not change.before:
            _, before, now, what = change.cells
            return [f"retrace: {now}{RETRACES[change.metric]}, {before} before{f'; {what}' if what else ''}"]
    return []


def ops_changed(evidence: Explanation) -> list[str]:
    """Return a line on the ops that graphs gained and lost."""
    lines = []
    for change in evidence.metrics:
        if change.metric == _OPS and change.counts:
            loops = any(op in gained for gained in change.counts.get("gained", {}) for op in _LOOPS)
            _, _, now, what = change.cells
            before = plural(round(change.before or 0), "op")
            lines.append(f"{'while loop' if loops else 'graph'}: {before} before, {now} now; {what}")
    return lines


def xla_changed(evidence: Explanation) -> list[str]:
    """Return a line for each module of XLA whose kernels changed."""
    return [f"{where}: {what}: {text}" for where, what, text in evidence.changes if where.startswith(XLA_MODULE)]


def result_changed(evidence: Explanation) -> list[str]:
    """Return a line for each part of the step's result that has another type: what follows works on other numbers."""
    return [f"result: {text}" for where, _, text in evidence.changes if where == RESULT]


def op_lines(attribution: Attribution | None, raced: float | None = None, enough: float = 0.0) -> list[str]:
    """Return the ops that hold half of the slowdown, at most three.

    Args:
        raced: The raced slowdown as a fraction, ``None`` without a race.
        enough: The slowdown that the profiles must show, as a fraction. Otherwise they do not show the raced one.
    """
    if attribution is None or attribution.now - attribution.before < enough * attribution.before:
        return []
    causes = [cause for cause in attribution.causes if cause.category is not TimeCategory.OTHER]
    if not causes or sum(cause.share for cause in causes[:3]) < HALF:
        return []
    return [f"op: {describe_cause(cause, attribution, raced)}" for cause in causes[:3]]


@dataclass
class Causes:
    """Looks for the causes of differences. It remembers defaults, as cases of a release often share a cause."""

    launcher: ProcessLauncher
    policy: Policy
    tell: Callable[[str], None] = lambda text: None
    race_defaults: bool = True
    """Whether to race defaults, which takes up to four minutes a case."""
    _defaults: dict[str, dict[str, Default]] = field(default_factory=dict, init=False)
    """Specification -> defaults."""
    _known: set[Candidate] = field(default_factory=set, init=False)
    """Defaults that explained an earlier case."""

    def of(self, sides: tuple[Entrant, Entrant], metric: str, evidence: Explanation, ratio: Ratio | None) -> list[str]:
        """Return the cause of a change from the first side to the second, and then what supports it, a line each.

        Args:
            metric: ``time``, ``first_call``, ``peak_host_memory``, or one that is counted.
            evidence: The changes of the case's graphs and exact metrics.
            ratio: The raced ratio, if the metric is raced.
        """
        self.launcher.ready([(entrant.side, entrant.case.env) for entrant in sides], [0])
        if ratio and ratio.center < 1:
            lines = [*result_changed(evidence), *xla_changed(evidence), *ops_changed(evidence)]
            if not lines:  # profiles explain slowdowns, so they tell what is slower on the first side
                slower, _ = self.named((sides[1], sides[0]), metric, evidence, 1 / ratio.center - 1)
                lines = [f"on {sides[0].side.name}: {line}" for line in slower]
            return lines
        lines, in_python = self.named(sides, metric, evidence, ratio.center - 1 if ratio else None)
        # Flags of XLA change the modules that it makes of the same graph.
        unexplained = not in_python and not any(where == GRAPH for where, *_ in evidence.changes)
        if self.race_defaults and metric == TIME and ratio and ratio.low > 1 and unexplained:
            try:
                self.tell("comparing defaults")
                tried = candidates(*(self._defaults_of(entrant.side) for entrant in sides))
                tried.sort(key=lambda candidate: candidate not in self._known)
                removals = search_defaults(
                    ratio, tried, lambda candidate: self._with_default(sides, candidate), self.tell
                )
                self._known |= {removal.candidate for removal in removals}
                lines = [*map(str, removals), *lines]
            except SideError as error:
                lines.append(f"defaults: {error}")
        return lines

    def named(
        self, sides: tuple[Entrant, Entrant], metric: str, evidence: Explanation, slowdown: float | None
    ) -> tuple[list[str], bool]:
        """Return what graphs, profiles and samples show, and whether it is Python's own time, which no default explains.

        The race measured ``slowdown``, a fraction.
        """
        lines = [*traced_again(evidence), *result_changed(evidence), *xla_changed(evidence)]
        ops = ops_changed(evidence)
        if metric == PEAK_HOST_MEMORY or metric in _LEAKS:
            return [*lines, *self._in_memory(sides), *ops], False
        if metric == TIME:
            attribution = self._profiled(sides, slowdown)
            if ops_found := op_lines(attribution, slowdown, must_show(slowdown)):
                return [*lines, *ops_found, *ops], False
        if metric not in (TIME, FIRST_CALL):
            return [*lines, *ops], False
        python = self._in_python(sides, metric, slowdown)
        return [*lines, *python, *ops], bool(python) and not lines

    def _profiled(self, sides: tuple[Entrant, Entrant], slowdown: float | None) -> Attribution | None:
        entrants = dict(zip((BASELINE, CONTENDER), sides, strict=True))
        with suppress(*PROFILE_FAILURES, SideError), tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
            profiler = Profiler(self.launcher, self.policy)
            return take(profiler, entrants, Path(folder), slowdown, self.tell, _LAUNCHES).attribution
        return None

    def _in_python(self, sides: tuple[Entrant, Entrant], metric: str, slowdown: float | None) -> list[str]:
        self.tell("sampling Python functions")
        with suppress(BenchmarkError, BenchmarkSkipped, ProfileError, SideError):
            before, now = (sample(self.launcher, self.policy, side, first=metric == FIRST_CALL) for side in sides)
            cause = grown(before, now, must_show(slowdown))
            if cause is None or cause.function.startswith(_EXECUTES):
                return []
            traces = any(name in cause.function for name in _TRACES)
            text = describe(cause, slowdown)
            return [f"retrace in every call; {text}" if traces and metric == TIME else text]
        return []

    def _in_memory(self, sides: tuple[Entrant, Entrant]) -> list[str]:
        self.tell("counting what stays in memory")
        with suppress(BenchmarkError, BenchmarkSkipped, SideError):
            return memory_lines(*(sample(self.launcher, self.policy, side, memory=True) for side in sides))
        return []

    def _defaults_of(self, side: Side) -> dict[str, Default]:
        if side.spec not in self._defaults:
            self._defaults[side.spec] = defaults_of(side)
        return self._defaults[side.spec]

    def _with_default(self, sides: tuple[Entrant, Entrant], candidate: Candidate) -> Ratio | str:
        before, now = sides
        side = set_back(now.side, candidate)
        try:
            result = difference(
                self.launcher, replace(self.policy, confirm=False), TIME, (before, replace(now, side=side))
            )
        except SideError as error:
            return str(error)
        finally:
            self.launcher.release(side)
        return result.ratio or "; ".join(map(str, result.failures.values())) or result.reason


def changes(launcher: ProcessLauncher, policy: Policy, other: Entrant, own: Entrant) -> list[str]:
    """Return the changes of graphs and exact metrics, or why they are unknown, a line each."""
    try:
        launcher.start_pairs((other, own), [0])
        evidence = explained(Prober(launcher, policy), other, own)
    except TfbenchError as error:
        return [f"the graphs could not be compared: {brief(error)}"]
    lines = [": ".join(filter(None, row)) for row in evidence.changes]
    lines += [
        f"{name}: {before} before, {now} now; {what}"
        for name, before, now, what in (change.cells for change in evidence.metrics)
    ]
    return [*(lines or ["the graphs, XLA's modules and every exact metric are the same"]), *evidence.notes]


# Everything that changed in a case between the reference and other sides that raced it


KINDS = ("time", "first call", "memory", "leaks", "graph")
"""What can change, in the order of the table. Counts of graphs and of XLA's modules, traces and the like are one kind."""
_KIND = {
    TIME: "time",
    FIRST_CALL: "first call",
    PEAK_HOST_MEMORY: "memory",
    "live_bytes": "memory",
    "peak_device_memory": "memory",
}
_KIND |= {metric.name: "leaks" for metric in LEAK_METRICS}


@dataclass(frozen=True)
class CaseChange:
    """A metric of a case that differs between a side and the reference."""

    side: str
    verdict: Verdict
    """On the metric, with its values on the reference and on the side."""
    cause: str = ""
    """The first line of the cause, ``""`` if none was found or looked for."""

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return _KIND.get(self.verdict.metric, "graph")

    @property
    def values(self) -> tuple[str, str]:
        """The value on the reference and on the side, with units."""
        before, now = self.verdict.values or (None, None)
        return amount(before, self.verdict.unit), amount(now, self.verdict.unit)

    @property
    def ratio(self) -> Ratio | None:
        """The value on the side relative to that on the reference, if both have one and differ."""
        before, now = self.verdict.values or (None, None)
        return self.verdict.ratio or (_exact_ratio(before, now) if before != now else None)

    def as_json(self) -> JSON:
        """Return the change as an object of ``tfbench-versions/1``."""
        before, now = self.verdict.values or (None, None)
        return {
            "side": self.side,
            "what": self.kind,
            "metric": self.verdict.metric,
            "outcome": self.verdict.outcome,
            "values": {"reference": before, "side": now, "unit": self.verdict.unit},
            "ratio": self.ratio and plain(self.ratio),
            "reason": self.verdict.reason.message,
            "cause": self.cause,
        }


@dataclass(frozen=True)
class ChangeFinder:
    """Finds what changed in a raced case. Each side has one probing launch more, and more of them where counts differ.

    Args:
        cases: Comparisons of the whole run, which share its alpha.
        causes: Looks for causes; ``None`` to leave them out.
    """

    launcher: ProcessLauncher
    policy: Policy
    cases: int
    causes: Causes | None = None

    def __call__(self, race: Race) -> tuple[list[CaseChange], list[str]]:
        """Return the changes of all sides against the reference, and why a side could not be examined.

        Raises `SideError` if a process does not start.
        """
        others = [index for index in race.working if index != race.reference]
        if race.abort_reason or race.reference != 0 or not others:
            return [], []
        prober = Prober(self.launcher, self.policy)
        first, *probed = prober.probe([race.entrants[index] for index in (0, *others)])
        changes: list[CaseChange] = []
        notes: list[str] = []
        for index, second in zip(others, probed, strict=True):
            sides = race.entrants[0], race.entrants[index]
            verdicts, evidence = self._timed(race, index), None
            if isinstance(first, ProbeOutput) and isinstance(second, ProbeOutput):
                verdicts += self._counted(prober, sides, (first, second))
                evidence = explanation(first, second, self.policy)
            else:
                failure = first if isinstance(first, Exception) else second
                notes.append(f"{sides[1].case.short_name} on {sides[1].side.name}: not probed: {brief(failure)}")
            causes: dict[str, str] = {}
            for verdict in sorted(verdicts, key=lambda verdict: _RANK[verdict.metric]):
                if verdict.outcome in (Outcome.REGRESSED, Outcome.IMPROVED) or verdict.reason.code == ReasonCode.OTHER:
                    change = CaseChange(sides[1].side.name, verdict)
                    if evidence is not None and change.kind not in causes:
                        causes[change.kind] = next(iter(self._cause(sides, change, evidence)), "")
                    changes.append(replace(change, cause=causes.get(change.kind, "")))
        return changes, notes

    def _cause(self, sides: tuple[Entrant, Entrant], change: CaseChange, evidence: Explanation) -> list[str]:
        if change.kind == "graph":
            return [
                *xla_changed(evidence),
                *ops_changed(evidence),
                *(": ".join(filter(None, row)) for row in evidence.changes),
            ]
        if self.causes is None:
            return []
        self.causes.tell(f"{sides[1].case.short_name}: the cause of its {change.kind} on {change.side}")
        try:
            return self.causes.of(sides, change.verdict.metric, evidence, change.verdict.ratio)
        except TfbenchError as error:
            return [f"the cause is unknown: {brief(error)}"]

    def _timed(self, race: Race, index: int) -> list[Verdict]:
        """Judge time, the first call and the peak of memory from the launches that both sides took part in."""
        case = race.entrants[index].case
        runs = [(launch.runs[0], launch.runs[index], launch.pair) for launch in race.all_launches]
        both = [(before.facts, now.facts, pair) for before, now, pair in runs if before and now]
        if not both:
            return []
        before, now, pairs = zip(*both, strict=True)
        medians = [median(second for run in race.runs(number) for second in run.seconds) for number in (0, index)]
        verdicts = [_of_seconds(case, TIME, race.decisions.get(index), medians)]
        if called := [(old[FIRST_CALL], new[FIRST_CALL]) for old, new in zip(before, now, strict=True)
                      if FIRST_CALL in old and FIRST_CALL in new]:  # fmt: skip
            decision = exact.first_call(before, now, pairs, self.policy, self.cases)
            verdicts.append(_of_seconds(case, FIRST_CALL, decision, list(map(median, zip(*called, strict=True)))))
        verdicts.append(exact.memory(case, before, now, self.policy, self.cases, pairs))
        return [verdict for verdict in verdicts if verdict is not None]

    def _counted(
        self, prober: Prober, sides: tuple[Entrant, Entrant], launches: tuple[ProbeOutput, ProbeOutput]
    ) -> list[Verdict]:
        """Compare what is counted. Where it differs, more launches tell whether it is the same in each."""
        values = [catalog.read(launches[0])], [catalog.read(launches[1])]
        verdicts = _judged(sides[1].case, *values, self.policy)
        if all(verdict.outcome is Outcome.UNCHANGED for verdict in verdicts):
            return verdicts
        _read(prober, sides, _other_pairs(self.policy), values)
        return _judged(sides[1].case, *values, self.policy)


def _of_seconds(case: Case, metric: str, decision: Decision | None, values: Sequence[float]) -> Verdict | None:
    if decision is None or decision.outcome is None:
        return None
    before, now = values
    found = decision.comparison
    return Verdict(
        case, decision.outcome, decision.reason, metric, found.ratio, found.launches, found.rounds,
        values=(before, now), unit=SECONDS,
    )  # fmt: skip


_RANK = {name: (KINDS.index(_KIND.get(name, "graph")), place) for place, name in enumerate((*RACED, *COUNTED))}
