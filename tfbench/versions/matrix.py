"""Race several versions, and report what differs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfbench.errors import BenchmarkSkipped, SideError
from tfbench.model.case import JSON, TIME, Case
from tfbench.model.formats import plain
from tfbench.model.reasons import Note, Reason, ReasonCode, because
from tfbench.model.report import Outcome, Report, Skip, VariantResult, Verdict
from tfbench.model.words import duration, times
from tfbench.policy import Policy
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ZYGOTES_TOGETHER, Environment, ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.report.summary import CaseTable
from tfbench.session.results import of_variant, ungated
from tfbench.sides.spec import Side, packages_of
from tfbench.untrusted import plural, some
from tfbench.versions.changes import CaseChange, ChangeFinder

# Race the same cases on several versions at once, in the same rounds


@dataclass(frozen=True)
class Untimed:
    """A case on a side that has no time."""

    what: str
    """In a few words, such as ``broke``."""
    details: str = ""
    skipped: bool = False
    """Whether the benchmark skipped itself there, as where a version lacks what it measures."""

    @property
    def why(self) -> str:
        """The same in one line."""
        return f"{self.what}: {self.details}" if self.details else self.what


Entry = VariantResult | Untimed
"""A case on one side."""
_NO_REFERENCE = Untimed("the reference cannot run it", skipped=True)
_NO_OTHER = Untimed("no other side can run it", skipped=True)
_CAUSE = "cause"
"""Code of a note with the cause of a change."""


@dataclass(frozen=True)
class Row:
    """A case on all sides."""

    case: Case
    entries: tuple[Entry, ...]
    """In the order of the sides."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Side -> the verdict on its time, of each side that was compared with the reference."""
    changes: tuple[CaseChange, ...] = ()
    """What changed on the other sides."""

    @property
    def slowdown(self) -> float:
        """The largest ratio on any side, 0 without one."""
        ratios = [entry.ratio for entry in self.entries if isinstance(entry, VariantResult)]
        return max((ratio.center for ratio in ratios if ratio), default=0.0)


@dataclass(frozen=True)
class Matrix:
    """The results of all cases on all sides."""

    sides: Mapping[str, JSON]
    """By label, the reference first: Python, packages, settings and the import time of TensorFlow, if the side starts."""
    rows: tuple[Row, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        return list(self.sides)


def sides_of(labels: Sequence[str], make: Callable[[str, str], Side]) -> list[Side]:
    """Make a side of each label, the reference first. `self` is the reference again, in separate processes.

    ``make`` gets a specification and a name, and raises `SideError` if the side cannot be created. Sides that need an
    environment come last, because a misspelt specification among the others is then known before minutes of building.
    """
    first, *others = labels
    own = [first, *(label for label in others if label != "self")]
    made = {label: make(label, label) for label in sorted(own, key=lambda label: bool(packages_of(label)))}
    return [made.get(label) or replace(made[first], name=label) for label in labels]


def race(
    cases: Sequence[Case],
    sides: Sequence[Side],
    launcher: ProcessLauncher,
    policy: Policy,
    rng: random.Random,
    progress: Callable[[str], None],
    finder: ChangeFinder | None = None,
) -> Matrix:
    """Race every case on all sides at once. A side that is decided against the reference leaves later launches.

    A side that does not start has that as the reason in its cases.
    Raises `SideError` if the reference does not start, or none of the other sides does.

    Args:
        finder: Finds what else changed in each case.
    """
    began = time.monotonic()
    environments = list(dict.fromkeys(case.env for case in cases))
    progress(f"starting {len(sides)} sides")
    broken = _not_starting(launcher, sides, environments, range(policy.looks[0]))
    pairs = min(policy.zygotes, max(policy.looks[0], ZYGOTES_TOGETHER // len(sides)))

    def first_calls(race: Race) -> bool:
        return finder is not None and len(race.launches) < policy.looks[0]

    config = RaceConfig(len(cases) * (len(sides) - 1), range(pairs), first_calls)
    notes: list[str] = []

    def row(number: int, case: Case) -> Row:
        missing = {side.name: why for side in sides if (why := broken.get((side.name, case.env)))}
        racing = [side for side in sides if side.name not in missing]
        if sides[0].name in missing or len(racing) < 2:
            why = _NO_REFERENCE if sides[0].name in missing else _NO_OTHER
            return Row(case, tuple(missing.get(side.name, why) for side in sides))
        entrants = [Entrant(case, side) for side in racing]
        text = f"{number}/{len(cases)} {case.short_name}"
        progress(text)
        Prober(launcher, policy).share(entrants)
        made = Race(entrants, launcher, policy, config, time.perf_counter, rng)
        made.run(lambda race: progress(f"{text}, {plural(len(race.launches), 'launch')}"))
        entries = {**missing, **{side.name: _entry(made, index) for index, side in enumerate(racing)}}
        verdicts = {side.name: _verdict(made, index) for index, side in enumerate(racing) if index in made.decisions}
        changes: Sequence[CaseChange] = ()
        if finder is not None:
            progress(f"{text}, what changed")
            changes, failures = finder(made)
            notes.extend(failures)
        return Row(case, tuple(entries[side.name] for side in sides), verdicts, tuple(changes))

    rows = tuple(row(number, case) for number, case in enumerate(cases))
    if shared := [case.short_name for case in cases if case.shared]:
        notes.append(
            f"{some(shared, 1)}: each version builds shared set-ups of its own, so files that differ may explain a "
            "difference; to race the same file, keep one in the project and read it"
        )
    about = {side.name: _describe(launcher, side) for side in sides}
    return Matrix(about, rows, time.monotonic() - began, tuple(notes))


def _not_starting(
    launcher: ProcessLauncher, sides: Sequence[Side], environments: Sequence[Environment], pairs: Sequence[int]
) -> dict[tuple[str, Environment], Untimed]:
    """Start the sides in all environments; return the sides that do not start, by name and environment.

    Raises `SideError` if the reference starts in no environment, or no other side does.
    """
    try:
        launcher.ready([(side, env) for side in sides for env in environments], pairs)
        return {}
    except SideError as error:
        first = error  # it tells what the side printed
    failures: dict[tuple[str, Environment], SideError] = {}
    for side in sides:
        for env in environments:
            try:
                launcher.ready([(side, env)], pairs)
            except SideError as error:
                failures[side.name, env] = error
    starting = [side for side in sides if any((side.name, env) not in failures for env in environments)]
    if sides[0] not in starting or len(starting) < 2:
        raise first
    return {key: Untimed("does not start", error.headline) for key, error in failures.items()}


def _entry(race: Race, index: int) -> Entry:
    if (failure := race.failures.get(index)) is not None:
        if isinstance(failure, BenchmarkSkipped):
            return Untimed("skipped", str(failure), skipped=True)
        printed = getattr(failure, "output", "").strip().splitlines()
        return Untimed("broke", f"{failure}{f'; its last output: {printed[-1].strip()}' if printed else ''}")
    if race.reference != 0:
        return _NO_REFERENCE
    if race.abort_reason:
        return Untimed("disturbed", race.abort_reason)
    if not race.runs(index):
        return _NO_OTHER
    return of_variant(race, index).variant_result or Untimed("it was not timed")


def _verdict(race: Race, index: int) -> Verdict:
    decision = race.decisions[index]
    outcome, case = decision.outcome or Outcome.INCONCLUSIVE, race.entrants[index].case
    return Verdict.of(case, outcome, decision.reason, **decision.comparison.columns)


_DESCRIBED = ("python", "packages", "settings", "defaults")


def _describe(launcher: ProcessLauncher, side: Side) -> JSON:
    environment = launcher.environment(side)
    shown: JSON = {key: environment[key] for key in _DESCRIBED if key in environment}
    return {"spec": side.spec, **shown, "import_seconds": launcher.import_seconds(side)}


# Report them: the times side by side, and a report for each version


SCHEMA = "tfbench-versions/1"
_WORDS = {Outcome.REGRESSED: " slower", Outcome.IMPROVED: " faster", Outcome.UNCHANGED: ""}


def side_by_side(matrix: Matrix) -> CaseTable:
    """Return the times of all cases, the slowest first, as ratios to the reference."""
    rows = [[row.case.name, *map(_cell, row.entries)] for row in sorted(matrix.rows, key=lambda row: -row.slowdown)]
    return CaseTable(f"time, ratio to {matrix.labels[0]}", matrix.labels, rows)


def _cell(entry: Entry) -> str:
    if isinstance(entry, Untimed):
        return entry.what
    if entry.ratio is None:
        return duration(entry.median_seconds)
    return f"{times(entry.ratio)}{_WORDS.get(entry.outcome or Outcome.NEW, ' inconclusive')}"


def reports(matrix: Matrix, policy: JSON) -> dict[str, Report]:
    """Return the report of each side against the reference. It has the verdicts on time, and what else changed."""
    reference, *others = matrix.labels
    made = {}
    for index, label in enumerate(others, 1):
        verdicts: list[Verdict] = []
        skips: list[Skip] = []
        for row in matrix.rows:
            first, entry = row.entries[0], row.entries[index]
            if isinstance(first, Untimed) and entry is _NO_REFERENCE:
                entry = replace(first, what=f"{first.what} on {reference}")
            if not isinstance(entry, Untimed):
                verdicts += [ungated(verdict, row.case.ungated) for verdict in _verdicts(row, label)]
            elif entry.skipped:
                skips.append(Skip.about(row.case, reason=entry.why))
            else:
                verdicts.append(Verdict.of(row.case, Outcome.ERROR, because(ReasonCode.NOT_MEASURED, why=entry.why)))
        made[label] = Report(
            policy,
            {"baseline": matrix.sides[reference], "contender": matrix.sides[label]},
            tuple(verdicts),
            skips=tuple(skips),
            wall_seconds=matrix.seconds,
            due=tuple(row.case.name for row in matrix.rows),
            complete=True,
        )
    return made


def _verdicts(row: Row, side: str) -> list[Verdict]:
    """Return the verdict on time, with what may explain it, and on each metric that is better or worse."""
    causes: dict[str, None] = {}
    metrics = []
    for change in row.changes:
        if change.side != side:
            continue
        verdict, cause = change.verdict, change.cause
        if verdict.metric == TIME or verdict.outcome is Outcome.INCONCLUSIVE:
            causes |= {cause: None} if cause else {}
        else:
            metrics.append(verdict.noted(Reason(_CAUSE, cause)) if cause and cause not in causes else verdict)
    notes = [Reason(_CAUSE, cause) for cause in causes]
    return [row.verdicts[side].noted(because(Note.OTHER_METRICS, *notes) if notes else None), *metrics]


def as_json(matrix: Matrix, policy: JSON) -> JSON:
    """Return all results as the content of a JSON file."""
    return {
        "schema": SCHEMA,
        "policy": policy,
        "reference": matrix.labels[0],
        "sides": dict(matrix.sides),
        "cases": [
            {
                "case": row.case.name,
                "sides": dict(zip(matrix.sides, map(_entry_as_json, row.entries), strict=True)),
                "changes": [change.as_json() for change in row.changes],
            }
            for row in matrix.rows
        ],
        "wall_seconds": round(matrix.seconds, 3),
    }


def _entry_as_json(entry: Entry) -> JSON:
    return {"why": entry.why} if isinstance(entry, Untimed) else plain(entry)
