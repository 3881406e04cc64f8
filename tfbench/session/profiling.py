"""Profile a case, and explain what changed between two entrants."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from tfbench.errors import BenchmarkError, BenchmarkSkipped, ProfileError, SideError, TfbenchError
from tfbench.fs import atomic_dir, scratch_dir
from tfbench.gpus.monitor import GpuMonitor
from tfbench.metrics import catalog
from tfbench.metrics.catalog import read as read_metrics
from tfbench.metrics.exact import MetricChange, metric_changes, on_device, result_changes
from tfbench.metrics.parity import ProbeOutput, compare
from tfbench.model import FIRST_CALL, JSON, PEAK_HOST_MEMORY, TIME, Case, Note, Outcome, Ratio, Verdict, because
from tfbench.policy import Policy
from tfbench.profiles import attribution as breakdowns
from tfbench.profiles.folders import Kept, folder_of, step_breakdown, write_about
from tfbench.race.confirmed import twice
from tfbench.race.launch import Entrant
from tfbench.race.prober import ZYGOTES, Prober, Profiler, sample
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.report.profile import MOST, NO_CAUSE, content_of, in_words, op_lines, steps_line
from tfbench.report.summary import is_hidden
from tfbench.session.request import CaseResult, RunProgress, RunRequest
from tfbench.session.results import NO_BASELINE, with_facts
from tfbench.session.strategies import Strategy
from tfbench.sides.spec import WORKING_TREE, Side
from tfbench.untrusted import plural

HIDDEN_DISPATCH = 0.85
"""A step whose dispatch takes this share of its time hides its kernels. On an H200, dispatch took 0.90 or more where kernels
had less than half of the time, and 0.83 or less where they had two thirds (`docs/results/h200-variants.jsonl`)."""

# Explain what changed in a case between two entrants, from probes without timing


@dataclass(frozen=True)
class Explanation:
    """What changed in a case between two sides."""

    metrics: Sequence[MetricChange]
    results: Sequence[str]
    """Parts of the step's result that have another type, so that what follows works on other numbers."""
    notes: Sequence[str]
    """Other differences of the sides, and why something could not be compared."""


def explained(prober: Prober, before: Entrant, now: Entrant) -> Explanation:
    """Probe both entrants, and return what changed from the first to the second.

    Raises `SideError` if a process does not start, `BenchmarkError` or `BenchmarkSkipped` if an entrant cannot run.
    """
    first, second = map(_probed, list(prober.probe([before, now])))
    return explanation(first, second, prober.policy)


def explanation(before: ProbeOutput, now: ProbeOutput, policy: Policy) -> Explanation:
    """Return what changed from the first probing launch to the second."""
    metrics = metric_changes(read_metrics(before), read_metrics(now), policy)
    return Explanation(metrics, result_changes(before, now), _notes(before, now))


def _probed(output: ProbeOutput | Exception) -> ProbeOutput:
    if isinstance(output, BenchmarkError):
        raise BenchmarkError(f"{output}\n{output.output}" if output.output else str(output))
    if isinstance(output, Exception):
        raise output
    return output


def _notes(before: ProbeOutput, now: ProbeOutput) -> list[str]:
    notes = []
    dnn = ["on" if side.found["graph"]["onednn"] else "off" for side in (before, now) if "graph" in side.found]
    if len(set(dnn)) == 2:
        notes.append(f"oneDNN is {dnn[0]} before, {dnn[1]} now")
    both = [probe for probe in ("graph", "xla") if probe in before.absent and probe in now.absent]
    notes += [f"{probe}: {now.absent[probe]}" for probe in both]
    if before.outputs and now.outputs:
        notes.append(compare(now.outputs, before.outputs).note(Note.OUTPUTS).message)
    return notes


# Profile cases: run the profiled launches, keep their files, read them, and explain a slowdown


BASELINE, CONTENDER = "baseline", "contender"
LAUNCHES = 5
"""Profiled launches per side in a comparison, since single ones differ by several percent. The faster half is used,
because a disturbance makes a launch slower, and hits one side only."""
PROFILE_FAILURES = (BenchmarkError, BenchmarkSkipped, ProfileError, OSError)
"""Failures that leave a case without a profile and do not affect its verdict."""


@dataclass(frozen=True)
class Explained:
    """The profiles of a case and the causes of a slowdown that they show."""

    kept: Kept
    profiles: Mapping[str, breakdowns.StepBreakdown]
    """The steps of each side."""
    attribution: breakdowns.Attribution | None
    """``None`` if only one side was profiled."""
    why: Sequence[str]
    """Causes of the slowdown, or why none could be found; at most five lines."""

    def as_json(self) -> list[JSON]:
        """Return one entry per side, in the format of a report."""
        about = {"schema": "tfbench-profile/1", "case": self.kept.case}
        entries = {side: {"side": side, "folder": str(self.kept.folder / side), "why": []} for side in self.profiles}
        entries[CONTENDER]["why"] = [*self.why]
        return [{**about, **entry, **content_of(self.profiles[side])} for side, entry in entries.items()]


def take(
    profiler: Profiler,
    entrants: Mapping[str, Entrant],
    place: Path,
    raced: float | None = None,
    tell: Callable[[str], None] = lambda text: None,
    launches: int = LAUNCHES,
) -> Explained:
    """Profile a case on one or two sides, and write the profiles.

    Args:
        entrants: By side. Two entrants are profiled in turns, over several launches.
        place: Folder of profiles. The case gets its own folder there, which replaces an earlier one.
        raced: The slowdown that the race measured, as a fraction.
        tell: Called with a text before each launch.
        launches: Of each of two sides.

    Raises:
        SideError: A process does not start.
        BenchmarkError, BenchmarkSkipped: The case breaks on one side, or cannot run here.
        ProfileError: A file of the profiler cannot be read.
    """
    case = entrants[CONTENDER].case
    folder = place / folder_of(case.name)
    launches = launches if len(entrants) > 1 else 1
    with atomic_dir(folder, replace=True) as half:
        profiler.launcher.start_pairs(entrants.values(), range(min(launches, ZYGOTES)))
        sides = {side: entrant.side.spec or WORKING_TREE for side, entrant in entrants.items()}
        kept = Kept(half, case.name, sides, raced)
        for launch in range(launches):
            for side, entrant in entrants.items():
                tell(f"{case.workload}: profiling {side}, launch {launch + 1} of {launches}")
                profiler.profile(entrant, half / side, launch, launch % ZYGOTES)
        write_about(kept)
        tell(f"{case.workload}: reading profiles")
        explained = reread(kept)
    return replace(explained, kept=replace(kept, folder=folder))


def reread(kept: Kept) -> Explained:
    """Read the profiles in a folder. Raises `ProfileError` if a file is missing, incomplete, or without steps."""
    profiles = {side: step_breakdown(kept.runs(side)) for side in kept.sides}
    if BASELINE not in profiles:
        return Explained(kept, profiles, None, ())
    attribution = breakdowns.attribute(profiles[BASELINE], profiles[CONTENDER])
    return Explained(kept, profiles, attribution, in_words(attribution, kept.raced))


# Name the cause of a change: what profiles, samples and defaults show, and what changed in the graphs


RETRACES = {"retraces_per_call": " per call", "retraces": " after the first call"}
_OPS = {"xla_kernels": ("XLA", "kernel"), "graph_ops": ("graph", "op"), "lite_ops": ("TFLite", "op")}
_GRAPHS = ("graph_ops", "lite_ops", "fused_ops")
_LEAKS = frozenset(metric.name for metric in catalog.LEAK_METRICS)
_EXECUTES = ("tensorflow.python.eager.", "tensorflow.lite.python.interpreter.", "ai_edge_litert.interpreter.")
"""The modules in which Python waits for ops. They say nothing about which ops."""
_TRACES = ("func_graph", "tracing_compilation", "polymorphic_function")
"""Parts of the names of functions that trace. In a call that is not the first, they are a cause of their own."""
_LOOPS = ("NextIteration", "While", "WHILE")
FEW_LAUNCHES = 2
"""Profiled launches per side that a cause of half of a slowdown needs, unlike the many small ones of a kept profile."""


def traced_again(evidence: Explanation) -> list[str]:
    """Return a line if the step traces functions again in later calls, and did not before."""
    for change in evidence.metrics:
        if change.metric in RETRACES and change.now and not change.before:
            _, before, now, what = change.cells
            return [f"retrace: {now}{RETRACES[change.metric]}, {before} before{f'; {what}' if what else ''}"]
    return []


def ops_changed(evidence: Explanation) -> list[str]:
    """Return lines on the ops that graphs gained and lost, and on the kernels that XLA made of them."""
    lines = []
    for change in evidence.metrics:
        if change.metric in _OPS and change.counts:
            loops = any(op in gained for gained in change.counts.get("gained", {}) for op in _LOOPS)
            _, _, now, what = change.cells
            place, noun = _OPS[change.metric]
            before = plural(round(change.before or 0), noun)
            lines.append(f"{'while loop' if loops else place}: {before} before, {now} now; {what}")
    return lines


@dataclass(frozen=True)
class Answer:
    """Why a case differs between two sides."""

    lines: Sequence[str]
    """The causes with their shares, the largest first, or that there is none; then what else changed in the graphs."""
    profiles: Explained | None = None
    """The profiles of a change of the time."""


Defaults = Callable[[tuple[Entrant, Entrant], Ratio], list[tuple[float, str]]]
"""Races the defaults of the second side set back. Returns the share of the slowdown that each removes, and a line about it."""


@dataclass(frozen=True)
class Explainer:
    """Explains changes. `tfbench explain`, ``--profile-on-regression``, `tfbench versions` and `bisect` ask it alike."""

    launcher: ProcessLauncher
    policy: Policy
    tell: Callable[[str], None] = lambda text: None
    defaults: Defaults | None = None
    """``None`` to race no defaults, which takes up to four minutes a case."""

    def explain(
        self,
        sides: tuple[Entrant, Entrant],
        metric: str,
        ratio: Ratio | None,
        evidence: Explanation | None = None,
        place: Path | None = None,
    ) -> Answer:
        """Name what was added, lost or slower on the second side with its share of the change.

        Args:
            metric: ``time``, ``first_call``, ``peak_host_memory``, or one that is counted.
            ratio: The raced ratio, if the metric is raced.
            evidence: The changes of the case's graphs and exact metrics.
            place: A folder in which profiles are kept, with more launches than a cause needs.

        Raises `SideError` if a process does not start, and without ``place`` nothing if a profile cannot be taken.
        """
        # What may be behind another change: retraces, types of the result, kernels and ops.
        changed = [*traced_again(evidence), *evidence.results, *ops_changed(evidence)] if evidence else []
        if metric not in (TIME, FIRST_CALL, PEAK_HOST_MEMORY, *_LEAKS):
            return Answer(changed)
        self.launcher.start_pairs(sides, [0])
        if metric not in (TIME, FIRST_CALL):
            return Answer([*self._in_memory(sides), *changed])
        if faster := bool(ratio and ratio.center < 1):
            sides = sides[1], sides[0]  # profiles explain slowdowns, so they tell what is slower on the first side
        slowdown = max(ratio.center, 1 / ratio.center) - 1 if ratio else None
        taken = self._profiled(sides, slowdown, place) if metric == TIME else None
        lines = op_lines(taken.attribution, slowdown) if taken and taken.attribution else []
        python = [] if lines else self._in_python(sides, metric, slowdown)
        lines, explained = [*lines, *python], bool(lines or python)
        # Flags of XLA change the modules that it makes of the same graph.
        same = evidence is not None and not any(change.metric in _GRAPHS for change in evidence.metrics)
        if self.defaults and metric == TIME and ratio and ratio.low > 1 and same and not python:
            try:
                removed = self.defaults(sides, ratio)
                lines = [*(line for _, line in removed), *lines]
                explained = explained or sum(share for share, _ in removed) >= breakdowns.HALF
            except SideError as error:
                lines.append(f"defaults: {error}")
        if faster:
            lines = [f"on {sides[1].side.name}: {line}" for line in lines]
        return Answer([*([] if explained else [NO_CAUSE]), *lines, *changed], taken)

    def _profiled(self, sides: tuple[Entrant, Entrant], slowdown: float | None, place: Path | None) -> Explained | None:
        profiler, entrants = Profiler(self.launcher, self.policy), dict(zip((BASELINE, CONTENDER), sides, strict=True))
        if place is not None:
            return take(profiler, entrants, place, slowdown, self.tell)
        with suppress(*PROFILE_FAILURES, SideError), tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
            return take(profiler, entrants, Path(folder), slowdown, self.tell, FEW_LAUNCHES)
        return None

    def _in_python(self, sides: tuple[Entrant, Entrant], metric: str, slowdown: float | None) -> list[str]:
        self.tell("sampling Python functions")
        with suppress(BenchmarkError, BenchmarkSkipped, ProfileError, SideError):
            before, now = (sample(self.launcher, self.policy, side, first=metric == FIRST_CALL) for side in sides)
            cause = breakdowns.grown(before, now, breakdowns.must_show(slowdown))
            if cause is None or cause.function.startswith(_EXECUTES):
                return []
            traces = any(name in cause.function for name in _TRACES)
            text = breakdowns.describe(cause, slowdown)
            return [f"retrace in every call; {text}" if traces and metric == TIME else text]
        return []

    def _in_memory(self, sides: tuple[Entrant, Entrant]) -> list[str]:
        self.tell("counting what stays in memory")
        with suppress(BenchmarkError, BenchmarkSkipped, SideError):
            return breakdowns.memory_lines(*(sample(self.launcher, self.policy, side, memory=True) for side in sides))
        return []


@dataclass
class Profiles:
    """Take the profiles that a run asks for."""

    request: RunRequest
    launcher: ProcessLauncher
    gpu_monitor: GpuMonitor | None
    strategy: Strategy
    contender: Side
    report: RunProgress
    notes: list[str] = field(default_factory=list, init=False)
    """Findings for cases that pass, and why a case has no profile."""

    def with_device(self, result: CaseResult, _measured: Sequence[Case]) -> CaseResult:
        """Add device time and energy of a step, compare them with a live side, and note kernels hidden behind dispatch.

        Each such launch takes seconds, so a case whose time is unchanged gets none, unless the gate asks for it: its kernels
        count as hidden by the time of its dispatch. Raises `SideError` if a zygote does not start, and under the gate one of
        `PROFILE_FAILURES` if a profile cannot be taken.
        """
        case, policy = result.case, self.request.policy
        entrants = {CONTENDER: Entrant(case, self.contender)}
        if self.gpu_monitor is None or result.sample is None or not self.launcher.on_gpu(entrants.values()):
            return result
        if result.baseline is not None and (baseline := self.strategy.baseline_entrant(case)):
            if result.verdict and result.verdict.outcome is Outcome.UNCHANGED and not policy.device_gated:
                return _noted(result, _dispatch_share(result) > HIDDEN_DISPATCH)
            entrants = {BASELINE: baseline, **entrants}
        self.report(f"{case.workload}: device time and energy")
        launches = range(policy.device_launches if len(entrants) > 1 else 1)
        pairs, seconds = [launch % ZYGOTES for launch in launches], median(result.sample.seconds)
        try:
            facts, rows = self._on_device(entrants, pairs, seconds)
            if any(row.outcome is Outcome.REGRESSED for row in rows) and policy.confirm:
                _, confirming = self._on_device(entrants, [ZYGOTES + pair for pair in pairs], seconds)
                again = {row.metric: row for row in confirming}
                rows = [twice(row, again.get(row.metric)) if row.outcome is Outcome.REGRESSED else row for row in rows]
        except PROFILE_FAILURES as error:
            if policy.device_gated:
                raise  # without evidence, the gate must not pass
            return replace(result, why=(failure(error),))
        if len(entrants) == 1 and not self.strategy.baseline:
            rows = [row.changed(reason=NO_BASELINE) for row in rows]
        return _noted(with_facts(replace(result, metrics=(*result.metrics, *rows)), facts), is_hidden(facts))

    def _on_device(
        self, entrants: Mapping[str, Entrant], pairs: Sequence[int], seconds: float
    ) -> tuple[JSON, list[Verdict]]:
        """Profile a launch of each side, in turns, from each of these pairs of zygotes; return facts and verdicts.

        The facts are those of `device_facts`, and the energy, of the contender's first launch. Its step took ``seconds`` in the
        race.
        """
        self.launcher.start_pairs(entrants.values(), pairs)
        profiler = Profiler(self.launcher, self.request.policy)
        found: dict[str, list[JSON]] = {BASELINE: [], CONTENDER: []}
        with tempfile.TemporaryDirectory(prefix="device-", dir=scratch_dir()) as folder:
            for launch, pair in enumerate(pairs):
                for side, entrant in entrants.items():
                    place, joules = profiler.profile(entrant, Path(folder, side), launch, pair, self.gpu_monitor)
                    facts = device_facts(step_breakdown(sorted(place.iterdir())), seconds)
                    found[side].append(facts | ({catalog.ENERGY: joules} if joules is not None else {}))
        case, request = entrants[CONTENDER].case, self.request
        rows = on_device(case, found[BASELINE], found[CONTENDER], request.policy, request.sharing, pairs)
        return found[CONTENDER][0], rows

    def with_profiles(self, result: CaseResult, _measured: Sequence[Case]) -> CaseResult:
        """Add the profiles of the case, if the user asked for them. Raises `SideError` if a zygote does not start."""
        result = self._profiled(result)
        if result.why and not result.failures:  # the message of a failed test contains them
            self.notes.append(f"{result.case.name}: {result.why[0]}")
        return result

    def _profiled(self, result: CaseResult) -> CaseResult:
        request, verdict = self.request, result.verdict
        regressed = verdict is not None and verdict.outcome is Outcome.REGRESSED
        wanted = request.profile or (regressed and request.profile_on_regression)
        if verdict is None or result.sample is None or not wanted:
            return result
        now, baseline = Entrant(result.case, self.contender), None
        why: tuple[str, ...] = ()
        if regressed and request.inject_slowdown:
            why = ("profile: --inject-slowdown caused the slowdown, outside of the profiled steps",)
        elif regressed and result.baseline:
            baseline = self.strategy.baseline_entrant(result.case)
        try:
            if baseline is None:
                profiler = Profiler(self.launcher, request.policy)
                profiles = take(profiler, {CONTENDER: now}, request.profiles, tell=self.report)
            else:
                explainer = Explainer(self.launcher, request.policy, self.report)
                answer = explainer.explain((baseline, now), TIME, verdict.ratio, place=request.profiles)
                assert answer.profiles is not None
                assert answer.profiles.attribution is not None
                steps = steps_line(answer.profiles.attribution, answer.profiles.kept.raced)
                profiles = replace(answer.profiles, why=(steps, *(f"  {line}" for line in answer.lines)))
        except PROFILE_FAILURES as error:
            return replace(result, why=(failure(error),))
        return replace(result, profiles=tuple(profiles.as_json()), why=why or tuple(profiles.why[:MOST]))


def _dispatch_share(result: CaseResult) -> float:
    """Return the share of a step that its dispatch takes; 0 if it uses no memory of a GPU."""
    if result.sample is None or (result.metric_values and result.metric_values.numbers.get("peak_device_memory") == 0):
        return 0.0
    return float(median(run.facts.get(catalog.DISPATCH_TIME, 0.0) / median(run.seconds) for run in result.sample.runs))


def _noted(result: CaseResult, hidden: bool) -> CaseResult:
    noted = result.verdict.noted(because(Note.HIDDEN)) if result.verdict and hidden else result.verdict
    return replace(result, verdict=noted)


def device_facts(step: breakdowns.StepBreakdown, seconds: float) -> JSON:
    """Return the seconds of a step with kernels and with copies, and the share of the step with either.

    Empty if no accelerator took part in the step. ``seconds`` are those of a step in the race: a profiled one takes up
    to twice as long, since the profiler slows the host down.
    """
    kernels, copies = (
        [key for key in step.parts if key.category is category]
        for category in (breakdowns.TimeCategory.DEVICE, breakdowns.TimeCategory.COPY)
    )
    if not kernels and not copies:
        return {}
    return {
        catalog.DEVICE_TIME: step.covered(kernels),
        catalog.COPY_TIME: step.covered(copies),
        catalog.DEVICE_SHARE: min(1.0, step.covered([*kernels, *copies]) / seconds),
    }


def failure(error: TfbenchError | OSError) -> str:
    """Return in one line why there is no profile."""
    text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else error.headline
    return f"profile: not taken: {text}"
