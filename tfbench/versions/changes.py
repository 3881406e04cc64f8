"""Find what changed in a case between two sides: its metrics, its graphs, and the cause of each change."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from statistics import median
from typing import NamedTuple

from tfbench.errors import SideError, TfbenchError
from tfbench.facts import interpreter_options
from tfbench.metrics import catalog, contracts, exact, parity
from tfbench.metrics.catalog import LEAK_METRICS
from tfbench.metrics.exact import ComparisonContext
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import JSON, TIME, Case, MetricValues, Outcome, Ratio, ReasonCode, Verdict
from tfbench.model.case import FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.model.formats import plain
from tfbench.model.words import SECONDS, times
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace, common
from tfbench.race.launch import Entrant, Failure
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.race import Race
from tfbench.race.workers import worker_environment
from tfbench.session.profiling import Explainer, Explanation, explanation, ops_changed
from tfbench.sides.spec import Side
from tfbench.stats.verdict import Decision
from tfbench.untrusted import brief

# The difference of a case between two sides in one metric: raced for durations and memory, read for counts


RACED = (TIME, FIRST_CALL, PEAK_HOST_MEMORY)
"""Metrics that differ between launches of the same code, so that two sides are raced for them."""
COUNTED = tuple(metric.name for metric in catalog.PROBED)
"""Metrics that probing launches read."""


@dataclass(frozen=True)
class Difference:
    """How the second side differs from the first one in a metric."""

    outcome: Outcome | None
    """``None`` if a side cannot run the case."""
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
        return Difference(Outcome.INCONCLUSIVE, f"disturbed: {race.abort_reason}")
    if race.unlike:
        return Difference(Outcome.INCONCLUSIVE, race.unlike.message)
    sampled: dict[str, Decision | Verdict | None] = {row.metric: row for row in race.sampled}
    judged = {**sampled, TIME: race.decision, FIRST_CALL: race.first_call}.get(metric)
    if judged is None or judged.outcome is None:
        return Difference(Outcome.INCONCLUSIVE, f"no {metric} was measured")
    ratio = judged.ratio if isinstance(judged, Verdict) else judged.comparison.ratio
    return Difference(judged.outcome, judged.reason.message, ratio, race.launches, race.wall_seconds)


def counted(prober: Prober, policy: Policy, metric: str, before: Entrant, now: Entrant) -> Difference:
    """Read one of `COUNTED` in several launches of both sides. A change counts if the launches of each side agree.

    Raises `SideError` if a process does not start.
    """
    began = time.perf_counter()
    values: _Values = [], []
    rows = list[Verdict]()
    if not (failures := _read(prober, (before, now), [0], values)):
        rows, failures = _counts(prober, policy, (before, now), values, metric)
    if failures:
        return Difference(None, "", failures=failures)
    verdict = next(iter(rows), None)
    if verdict is None or verdict.outcome in (Outcome.NEW, Outcome.MISSING):
        return Difference(Outcome.INCONCLUSIVE, verdict.reason.message if verdict else f"neither side reports {metric}")
    was, value = verdict.values or (None, None)
    # A change within the tolerance has no ratio.
    factor = value / was if was and value and verdict.outcome is not Outcome.UNCHANGED else None
    ratio = Ratio(factor, factor, factor, 1.0) if factor else None
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


def _counts(
    prober: Prober, policy: Policy, sides: Sequence[Entrant], values: _Values, metric: str = ""
) -> tuple[list[Verdict], dict[int, Failure]]:
    """Compare what is counted, or one metric. Where it differs, more launches tell whether it is the same in each.

    Their zygotes are those of the first look of a race. Returns also why a launch of a side failed.
    """
    case, failures = sides[1].case, dict[int, Failure]()
    rows = _judged(case, *values, policy)
    if any(row.outcome is not Outcome.UNCHANGED for row in rows if metric in ("", row.metric)):
        again = [launch % policy.looks[0] for launch in range(1, policy.probe_launches)]
        failures = _read(prober, sides, again, values)
        rows = _judged(case, *values, policy)
    return [row for row in rows if metric in ("", row.metric)], failures


def _judged(case: Case, before: Sequence[MetricValues], now: Sequence[MetricValues], policy: Policy) -> list[Verdict]:
    """Compare the counts of two sides; a metric that launches of one side disagree about is inconclusive."""
    unstable = {name: how for side in (before, now) for name, how in exact.differing(side, policy).items()}
    anywhere = replace(policy, exact_across_versions=True)
    rows, _ = exact.compare(case, before[0], now[0], ComparisonContext(unstable=unstable), anywhere)
    if before[0].sketch and now[0].sketch:
        scatters = [parity.scatter([values.sketch for values in side]) for side in (before, now)]
        scattered = {place: max(one.get(place, 0.0) for one in scatters) for one in scatters for place in one}
        worst = parity.largest(parity.sketched_differences(now[0].sketch, before[0].sketch), scattered, policy)
        if worst.error > policy.parity_scatter * parity.scattered_by(worst, scattered):
            rows.append(parity.evaluate(case, 0.0, worst, "the reference's result", policy))
    return rows


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


class Default(NamedTuple):
    """The default of a flag or setting."""

    value: str
    kind: str = ""
    """Type of a flag of XLA, such as ``bool``; ``""`` for a variable of TensorFlow."""


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


def defaults_of(side: Side) -> dict[str, Default]:
    """Return the flags of XLA with their defaults on a side. Raises `SideError` if the side prints none."""
    env = worker_environment(dict(os.environ), side, {XLA: "--help"})
    command = [side.executable, *interpreter_options(), "-c", _XLA_PROGRAM]
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SideError(f"{side.spec}: its flags cannot be read: {error}") from None
    # XLA prints its flags and ends the process with an error, because it does not know this one.
    printed = done.stderr + done.stdout
    if not (found := _FLAG.findall(printed)):
        raise SideError(f"{side.spec}: prints no flags of XLA: {printed[-300:]}")
    return {f"--{name}": Default(value.strip('"'), kind) for name, value, kind in found}


def candidates(good: Mapping[str, Default], bad: Mapping[str, Default]) -> list[Candidate]:
    """Return the settings of the bad side to race, those with another default first, at most `MOST_DEFAULTS`.

    A new switch is set to its opposite, which is what the good side probably did.
    """
    changed, new = list[Candidate](), list[Candidate]()
    for name, now in bad.items():
        was, (value, kind) = good.get(name), now
        if was == now or _SKIPPED.search(name):
            continue
        if was is not None:
            changed.append(Candidate(name, was.value, value, was.value))
        elif kind == "bool":
            new.append(Candidate(name, "", value, "false" if value == "true" else "true"))
    # A switch that is on acts, and one that is off usually does not exist in effect.
    new.sort(key=lambda flag: ("cpu" not in flag.name, flag.now == "false"))
    return [*changed, *new][:MOST_DEFAULTS]


def set_back(side: Side, candidate: Candidate) -> Side:
    """Return the side with this default set back."""
    name, value = candidate.env
    given = side.env.get(name, "")
    both = f"{given} {value}".strip() if name == XLA else value
    return replace(side, name=f"{side.name} with {value}"[:80], env={**side.env, name: both}, named=(*side.named, name))


def search_defaults(
    bad: Ratio, suspects: Sequence[Candidate], race: Callable[[Candidate], Ratio | str], tell: Callable[[str], None]
) -> list[tuple[float, Candidate, Ratio]]:
    """Race candidates until one removes the slowdown; return each that removes a share of it, the largest first.

    A share is one of logarithms of ratios to the good side. It is above 1 if the side becomes faster than the good one.

    Args:
        bad: The slowdown, a ratio to the good side.
        race: Returns the ratio of the bad side with the candidate to the good side, or why it cannot run.
    """
    removals: list[tuple[float, Candidate, Ratio]] = []
    for number, candidate in enumerate(suspects, 1):
        tell(f"default {number}/{len(suspects)}: {candidate.name}")
        ratio = race(candidate)
        if isinstance(ratio, str):
            continue
        removed = 1 - log(ratio.center) / log(bad.center)
        if removed >= NOTABLE and ratio.high < bad.center:
            removals.append((removed, candidate, ratio))
            if removed >= ENOUGH:
                break
    return sorted(removals, key=lambda removal: -removal[0])


@dataclass
class Defaults:
    """Restore old defaults.

    It remembers the defaults of each side, and which of them explained a case: cases of a release share causes.
    """

    launcher: ProcessLauncher
    policy: Policy
    tell: Callable[[str], None]
    _defaults: dict[str, dict[str, Default]] = field(default_factory=dict, init=False)
    """Specification -> defaults."""
    _known: set[Candidate] = field(default_factory=set, init=False)

    def __call__(self, sides: tuple[Entrant, Entrant], slowdown: Ratio) -> list[tuple[float, str]]:
        """Race the changed defaults of the second side; return the share that each removes, and a line about it.

        Raises `SideError` if a side prints no defaults.
        """
        self.tell("comparing defaults")
        for side in (entrant.side for entrant in sides):
            if side.spec not in self._defaults:
                onednn = self.launcher.environment(side)["defaults"].get("oneDNN") == "used"
                found = {"TF_ENABLE_ONEDNN_OPTS": Default(str(int(onednn)))}
                self._defaults[side.spec] = defaults_of(side) | found
        tried = candidates(*(self._defaults[entrant.side.spec] for entrant in sides))
        tried.sort(key=lambda candidate: candidate not in self._known)
        removals = search_defaults(slowdown, tried, lambda candidate: self._with(sides, candidate), self.tell)
        self._known |= {candidate for _, candidate, _ in removals}
        return [
            (share, f"default: {candidate} removes {min(1.0, share):.0%} of the slowdown: ratio {times(ratio)}")
            for share, candidate, ratio in removals
        ]

    def _with(self, sides: tuple[Entrant, Entrant], candidate: Candidate) -> Ratio | str:
        before, now = sides
        side, policy = set_back(now.side, candidate), replace(self.policy, confirm=False)
        try:
            result = difference(self.launcher, policy, TIME, (before, replace(now, side=side)))
        except SideError as error:
            return str(error)
        finally:
            self.launcher.release(side)
        return result.ratio or "; ".join(map(str, result.failures.values())) or result.reason


# Everything that changed in a case between the reference and other sides that raced it


KINDS = ("time", "first call", "memory", "leaks", "contract", "result", "graph")
"""What can change, in the order of the table. Counts of graphs and of XLA's modules, traces and the like are one kind."""
_KIND = {
    TIME: "time", FIRST_CALL: "first call", PEAK_HOST_MEMORY: "memory", "live_bytes": "memory",
    "peak_device_memory": "memory", catalog.PARITY: "result",
}  # fmt: skip
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
        contract = self.verdict.metric.startswith(catalog.CONTRACT)
        return "contract" if contract else _KIND.get(self.verdict.metric, "graph")

    def as_json(self) -> JSON:
        """Return the change as an object of ``tfbench-versions/1``: the verdict, with its side and its cause."""
        return {"side": self.side, "what": self.kind, **plain(self.verdict), "cause": self.cause}


@dataclass(frozen=True)
class ChangeFinder:
    """Finds what changed in a raced case. Each side has one probing launch more, and more of them where counts differ.

    Args:
        cases: Comparisons of the whole run, which share its alpha.
        explainer: Looks for causes; ``None`` to leave them out.
    """

    launcher: ProcessLauncher
    policy: Policy
    cases: int
    explainer: Explainer | None = None

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
                values = [catalog.read(first)], [catalog.read(second)]
                verdicts += _counts(prober, self.policy, sides, values)[0]
                peaks = [exact.peaks([run.facts for run in race.runs(side)]) for side in (0, index)]
                verdicts += _broken(sides[1].case, (first, second), peaks)
                evidence = explanation(first, second, self.policy)
            else:
                failure = first if isinstance(first, Exception) else second
                notes.append(f"{sides[1].case.short_name} on {sides[1].side.name}: not probed: {brief(failure)}")
            causes: dict[str, str] = {}
            for verdict in sorted(verdicts, key=lambda verdict: _RANK.get(verdict.metric, _LAST)):
                if verdict.outcome in (Outcome.REGRESSED, Outcome.IMPROVED) or verdict.reason.code == ReasonCode.OTHER:
                    change = CaseChange(sides[1].side.name, verdict)
                    if evidence is not None and change.kind not in causes:
                        causes[change.kind] = next(iter(self._cause(sides, change, evidence)), "")
                    changes.append(replace(change, cause=causes.get(change.kind, "")))
        return changes, notes

    def _cause(self, sides: tuple[Entrant, Entrant], change: CaseChange, evidence: Explanation) -> Sequence[str]:
        if change.kind == "graph":
            return [*ops_changed(evidence), *evidence.results]
        if self.explainer is None or change.kind in ("contract", "result"):
            return []
        self.explainer.tell(f"{sides[1].case.short_name}: the cause of its {change.kind} on {change.side}")
        try:
            return self.explainer.explain(sides, change.verdict.metric, change.verdict.ratio, evidence).lines
        except TfbenchError as error:
            return [f"the cause is unknown: {brief(error)}"]

    def _timed(self, race: Race, index: int) -> list[Verdict]:
        """Judge time, the first call and the peak of memory from the launches that both sides took part in."""
        case = race.entrants[index].case
        before, now, pairs = common(race, index)
        if not pairs:
            return []
        medians = [median(second for run in race.runs(number) for second in run.seconds) for number in (0, index)]
        verdicts = [_of_seconds(case, TIME, race.decisions.get(index), medians)]
        if called := [(old[FIRST_CALL], new[FIRST_CALL]) for old, new in zip(before, now, strict=True)
                      if FIRST_CALL in old and FIRST_CALL in new]:  # fmt: skip
            decision = exact.first_call(before, now, pairs, self.policy, self.cases)
            verdicts.append(_of_seconds(case, FIRST_CALL, decision, list(map(median, zip(*called, strict=True)))))
        verdicts.append(exact.memory(case, before, now, self.policy, self.cases, pairs))
        return [verdict for verdict in verdicts if verdict is not None]


def _broken(case: Case, launches: Sequence[ProbeOutput], peaks: Sequence[Sequence[float]]) -> list[Verdict]:
    """Return the contracts that the second side breaks and the first one does not."""
    before, now = (
        [
            row
            for row in contracts.of_case(case, launch.facts.get("contracts", {}), catalog.read(launch), most)
            if row.outcome is Outcome.REGRESSED
        ]
        for launch, most in zip(launches, peaks, strict=True)
    )
    return [row for row in now if row.metric not in {other.metric for other in before}]


def _of_seconds(case: Case, metric: str, decision: Decision | None, values: Sequence[float]) -> Verdict | None:
    if decision is None or decision.outcome is None:
        return None
    size = decision.comparison.columns
    return Verdict.of(case, decision.outcome, decision.reason, metric, **size, values=values, unit=SECONDS)


_RANK = {name: (KINDS.index(_KIND.get(name, "graph")), place) for place, name in enumerate((*RACED, *COUNTED))}
_LAST = (len(KINDS), 0)
