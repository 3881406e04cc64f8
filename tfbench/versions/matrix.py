"""Race several versions, and print what differs.

A nightly race finds the same regression every night until a release has it. The folder remembers what was written.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean, median

import pytest
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.errors import BenchmarkSkipped, SideError, TfbenchError, UsageError
from tfbench.fs import write_whole
from tfbench.metrics import catalog, exact
from tfbench.metrics.catalog import FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.metrics.exact import ComparisonContext
from tfbench.model import JSON, TIME, Case, Outcome, Ratio, VariantResult, Verdict
from tfbench.model.words import duration, size, times
from tfbench.policy import Policy
from tfbench.race.confirmed import ConfirmedRace
from tfbench.race.interfaces import Entrant, Failure
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import Environment, ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.report.comment import differences
from tfbench.report.screen import add_columns, add_row, table
from tfbench.session.results import of_variant
from tfbench.sides.spec import TENSORFLOWS, Side, of_version
from tfbench.stats.verdict import Decision
from tfbench.untrusted import brief, command
from tfbench.versions.repro import BugReport, about, changes, compose, run_code

# The difference of a case between two sides: raced for durations and memory, read for what is counted


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

    Raises:
        SideError: A process does not start.
    """
    began, each = time.perf_counter(), policy.probe_launches
    found = list(prober.probe([before] * each + [now] * each))
    if failures := {index // each: one for index, one in enumerate(found) if isinstance(one, Exception)}:
        return Difference(None, "", failures=failures)
    values = [catalog.read(one) for one in found if not isinstance(one, Exception)]
    sides = values[:each], values[each:]
    unstable = {name: how for side in sides for name, how in exact.differing(side, policy).items()}
    verdicts, _ = exact.compare(
        now.case, sides[0][0], sides[1][0], ComparisonContext(unstable=unstable),
        replace(policy, exact_across_versions=True),
    )  # fmt: skip
    verdict = next((verdict for verdict in verdicts if verdict.metric == metric), None)
    if verdict is None or verdict.outcome in (Outcome.NEW, Outcome.MISSING):
        return Difference(None, verdict.reason.message if verdict else f"neither side reports {metric}")
    old, new = verdict.values or (None, None)
    ratio = Ratio(new / old, new / old, new / old, 1.0) if old and new else None
    return Difference(verdict.outcome, verdict.reason.message, ratio, each, time.perf_counter() - began)


# Race the same cases on several versions at once, in the same rounds


@dataclass(frozen=True)
class Untimed:
    """A case on a side that has no time."""

    why: str
    skipped: bool = False
    """Whether the benchmark skipped itself there, as where a version lacks what it measures."""


Entry = VariantResult | Untimed
"""A case on one side."""
_NO_REFERENCE = Untimed("the reference cannot run it", skipped=True)
_NO_OTHER = Untimed("no other side can run it", skipped=True)


@dataclass(frozen=True)
class Row:
    """A case on all sides."""

    case: Case
    entries: tuple[Entry, ...]
    """In the order of the sides."""

    @property
    def results(self) -> list[VariantResult]:
        """The entries with times."""
        return [entry for entry in self.entries if isinstance(entry, VariantResult)]

    @property
    def slowdown(self) -> float:
        """The largest ratio on any side, 0 without one."""
        return max((result.ratio.center for result in self.results if result.ratio), default=0.0)


@dataclass(frozen=True)
class Matrix:
    """The results of all cases on all sides."""

    sides: Mapping[str, JSON]
    """By label, the reference first: Python, packages, settings and the import time of TensorFlow, if the side starts."""
    rows: tuple[Row, ...]
    seconds: float

    @property
    def labels(self) -> list[str]:
        return list(self.sides)

    @property
    def by_slowdown(self) -> list[Row]:
        """The rows by the largest slowdown on any side. Rows without times come last."""
        return sorted(self.rows, key=lambda row: row.slowdown, reverse=True)

    @property
    def outcomes(self) -> list[Outcome | None]:
        """The outcomes of all comparisons with the reference."""
        return [result.outcome for row in self.rows for result in row.results if result.ratio]

    @property
    def has_regression(self) -> bool:
        """Whether a case is slower on any side."""
        return Outcome.REGRESSED in self.outcomes

    @property
    def has_gaps(self) -> bool:
        """Whether a case has no time on a side that did not skip it."""
        entries = (entry for row in self.rows for entry in row.entries)
        return any(isinstance(entry, Untimed) and not entry.skipped for entry in entries)


def ordered(labels: Sequence[str], reference: str = "") -> list[str]:
    """Return the labels of the sides with the reference first.

    Raises `UsageError` if there are fewer than two labels, a duplicate, or no label for the reference.
    """
    if len(set(map(of_version, labels))) < max(2, len(labels)):
        taken = ", ".join(labels) or "none of the arguments"
        raise UsageError(
            "give two or more versions, each only once; to race one against itself, give `self` as the second "
            f"(taken for versions, as no file has such a name: {taken})"
        )
    first = next((label for label in labels if of_version(label) == of_version(reference or labels[0])), None)
    if first is None:
        raise UsageError(f"--reference {reference}: give one of {', '.join(labels)}")
    return sorted(labels, key=lambda label: label != first)


def sides_of(labels: Sequence[str], make: Callable[[str, str], Side]) -> list[Side]:
    """Make a side of each label, the reference first. `self` is the reference again, in separate processes.

    ``make`` gets a specification and a name, and raises `SideError` if the side cannot be created.
    """
    first = make(labels[0], labels[0])
    others = [replace(first, name=one) if one == "self" else make(one, one) for one in labels[1:]]
    return [first, *others]


def race(
    cases: Sequence[Case],
    sides: Sequence[Side],
    launcher: ProcessLauncher,
    policy: Policy,
    rng: random.Random,
    progress: Callable[[str], None],
) -> Matrix:
    """Race every case on all sides at once. A side that is decided against the reference leaves later launches.

    A side that does not start has that as the reason in its cases.

    Raises:
        SideError: The reference does not start, or none of the other sides does.
    """
    began = time.monotonic()
    environments = list(dict.fromkeys(case.env for case in cases))
    progress(f"starting {len(sides)} sides")
    broken = _not_starting(launcher, sides, environments, range(policy.looks[0]))
    pairs = min(policy.zygotes, max(policy.looks[0], policy.zygotes_together // len(sides)))
    config = RaceConfig(len(cases) * (len(sides) - 1), range(pairs))

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
        made.run(lambda race: progress(f"{text}, {len(race.launches)} launches"))
        entries = {**missing, **{side.name: _entry(made, index) for index, side in enumerate(racing)}}
        return Row(case, tuple(entries[side.name] for side in sides))

    rows = tuple(row(number, case) for number, case in enumerate(cases))
    return Matrix({side.name: _describe(launcher, side) for side in sides}, rows, time.monotonic() - began)


def _not_starting(
    launcher: ProcessLauncher, sides: Sequence[Side], environments: Sequence[Environment], pairs: Sequence[int]
) -> dict[tuple[str, Environment], Untimed]:
    """Start the sides in all environments; return the sides that do not start, by name and environment.

    Raises:
        SideError: The reference starts in no environment, or no other side does.
    """
    try:
        launcher.ready([(side, env) for side in sides for env in environments], pairs)
        return {}
    except SideError as error:
        first = error  # it tells what the side printed
    found: dict[tuple[str, Environment], SideError] = {}
    for side in sides:
        for env in environments:
            try:
                launcher.ready([(side, env)], pairs)
            except SideError as error:
                found[side.name, env] = error
    starting = [side for side in sides if any((side.name, env) not in found for env in environments)]
    if sides[0] not in starting or len(starting) < 2:
        raise first
    return {key: Untimed(f"does not start: {str(error).partition(chr(10))[0]}") for key, error in found.items()}


def _entry(race: Race, index: int) -> Entry:
    if (failure := race.failures.get(index)) is not None:
        if isinstance(failure, BenchmarkSkipped):
            return Untimed(f"skipped: {failure}", skipped=True)
        printed = getattr(failure, "output", "").strip().splitlines()
        return Untimed(f"broke: {failure}{f'; its last output: {printed[-1].strip()}' if printed else ''}")
    if race.reference != 0:
        return _NO_REFERENCE
    if race.abort_reason:
        return Untimed(f"disturbed: {race.abort_reason}")
    if not race.runs(index):
        return _NO_OTHER
    return of_variant(race, index).variant_result or Untimed("it was not timed")


def _describe(launcher: ProcessLauncher, side: Side) -> JSON:
    environment = launcher.environment(side)
    shown: JSON = {
        key: environment[key] for key in ("python", "packages", "settings", "defaults") if key in environment
    }
    return {"spec": side.spec, **shown, "import_seconds": launcher.import_seconds(side)}


# Write each regression between versions into a folder, with a file that shows it: once, and never twice


_SLUG = 60
"""Characters of a case that the name of a finding keeps; a digest follows, as names of cases are longer."""


@dataclass(frozen=True)
class Regression:
    """A case that is slower on a side than on the reference."""

    case: Case
    side: str
    """Label of the side."""
    ratio: Ratio
    launches: int


class FindingsFolder:
    """The findings of earlier runs: for each a report ``NAME.md``, written last, and the file ``NAME.py``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def name(self, found: Regression, released: str) -> str:
        """Return the name of a finding, which is the same in every run against the same release.

        Args:
            released: The TensorFlow of the reference. A slowdown against the next release is another finding.
        """
        key = "\n".join([found.case.name, found.side, released])
        slug = re.sub(r"\W+", "-", found.case.short_name).strip("-")[:_SLUG]
        return f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def has(self, name: str) -> bool:
        """Whether an earlier run wrote this finding."""
        return self.report(name).exists()

    def report(self, name: str) -> Path:
        return self.folder / f"{name}.md"

    def write(self, name: str, code: str, report: str) -> None:
        """Write both files, the report last, so that an interrupted finding counts as not written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / f"{name}.py", code)
        write_whole(self.report(name), report)


def regressions(matrix: Matrix) -> list[Regression]:
    """Return the regressions of all sides against the reference."""
    reference = matrix.labels[0]
    return [
        Regression(row.case, label, entry.ratio, entry.launches)
        for row in matrix.rows
        for label, entry in zip(matrix.labels, row.entries, strict=True)
        if label != reference
        and isinstance(entry, VariantResult)
        and entry.outcome is Outcome.REGRESSED
        and entry.ratio
    ]


@dataclass(frozen=True)
class Writer:
    """Makes the files of new findings.

    A finding whose file does not show the slowdown on both interpreters is not written: the file is its confirmation.
    """

    folder: FindingsFolder
    functions: Mapping[str, pytest.Function]
    """The pytest item of each case, by name."""
    root: Path
    launcher: ProcessLauncher
    policy: Policy
    sides: Mapping[str, Side]
    """By label, the reference first."""
    tell: Callable[[str], None] = lambda text: None

    def write(self, matrix: Matrix) -> list[str]:
        """Write the new findings, and return a line on each regression."""
        labels = list(self.sides)
        released = _tensorflow(matrix.sides[labels[0]])
        lines = []
        for found in regressions(matrix):
            name = self.folder.name(found, released)
            about_it = f"{found.case.short_name} on {found.side}"
            if self.folder.has(name):
                lines.append(f"finding of an earlier run: {about_it}: {self.folder.report(name)}")
                continue
            try:
                self._write(name, found, labels[0], matrix.sides)
            except TfbenchError as error:
                lines.append(f"no finding: {about_it}: {brief(error)}")
            else:
                lines.append(f"new finding: {about_it}: {self.folder.report(name)}")
        return lines

    def _write(self, name: str, found: Regression, reference: str, environments: Mapping[str, JSON]) -> None:
        other, own = self.sides[reference], self.sides[found.side]
        search = [self.root, *(Path(one) for one in sys.path if one)]
        code = compose(
            self.functions[found.case.name], found.case, (other, own), search,
            about(found.case, reference, found.side), self.policy.repro_launches,
        )  # fmt: skip
        self.tell(f"running the file of {found.case.short_name}")
        shown = run_code(code, "repro.py", (other, own), self.policy)
        if not shown.agrees(found.ratio.center):
            text = f"the race found a ratio of {found.ratio.center:.3f}, the extracted file {shown.ratio:.3f}"
            raise TfbenchError(f"the file does not confirm the slowdown: {text}")
        changed = changes(self.launcher, self.policy, Entrant(found.case, other), Entrant(found.case, own))
        made = command("tfbench", "versions", reference, found.side, found.case.name)
        both = {label: environments[label] for label in (reference, found.side)}
        report = BugReport(found.case, both, found.ratio, found.launches, shown, changed, [], made)
        self.folder.write(name, code, report.render(Path(f"{name}.py"), code))


def _tensorflow(environment: JSON) -> str:
    packages = environment["packages"]
    return next((f"{name}=={packages[name]}" for name in TENSORFLOWS if name in packages), "")


# Report cases by versions: tables for the terminal, Markdown, JSON


SCHEMA = "tfbench-versions/1"
Saved = Mapping[str, Mapping[str, float]]
"""Name of an earlier run -> case -> median seconds."""
_STYLE = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green", Outcome.INCONCLUSIVE: "yellow"}
_SIGNS = {Outcome.REGRESSED: "+", Outcome.IMPROVED: "-", Outcome.UNCHANGED: " "}
_WORDS = {"slower": Outcome.REGRESSED, "faster": Outcome.IMPROVED, "the same": Outcome.UNCHANGED}
_CASE, _CELL, _SAVED = 40, 24, 16
"""Characters that a column takes."""
_TOTAL = "all cases together"


def terminal(matrix: Matrix, saved: Saved, width: int) -> RenderableType:
    """Return a table of ratios, a table of the sides, and why cases could not be timed.

    Times of earlier runs, which were not raced, have columns of their own. On lines of too few characters, the table
    leaves out the intervals.
    """
    before = [Text(f"differs: {line}", "dim") for line in differences(matrix.sides)]
    short = _CASE + _CELL * len(matrix.sides) + _SAVED * len(saved) > width
    legend = "+ slower, - faster, ? inconclusive; reports and wider terminals show the intervals"
    after = [Text(line, "dim") for line in [*[legend] * short, *_notes(matrix)]]
    return Group(*before, _ratios(matrix, saved, short), *after, _summary(matrix))


def _ratios(matrix: Matrix, saved: Saved, short: bool) -> Table:
    reference, *_ = matrix.labels
    made = table(f"time, ratio to {reference}")
    made.add_column("case", overflow="fold", min_width=_CASE // 2)
    add_columns(made, *matrix.labels, right=True, fold=True)
    for name in saved:
        made.add_column(f"{name}, not raced", justify="right", overflow="fold", style="dim")
    for row in matrix.by_slowdown:
        add_row(made, row.case.short_name, *(_cell(entry, short) for entry in row.entries), *_saved_cells(row, saved))
    return made


def _cell(entry: Entry, short: bool = False) -> Text:
    if isinstance(entry, Untimed):
        return Text(entry.why.partition(":")[0], "dim")
    if entry.ratio is None:
        return Text(duration(entry.median_seconds))
    outcome = entry.outcome or Outcome.NEW
    text = f"{entry.ratio.center:.3f} {_SIGNS.get(outcome, '?')}" if short else times(entry.ratio)
    return Text(text, _STYLE.get(outcome, ""))


def _saved_cells(row: Row, saved: Saved) -> list[str]:
    found = (medians.get(row.case.name) for medians in saved.values())
    return [duration(seconds) if seconds else "-" for seconds in found]


def _notes(matrix: Matrix) -> list[str]:
    """Return why cases could not be timed, each reason once."""
    found: dict[str, list[str]] = {}
    for row in matrix.rows:
        for label, entry in zip(matrix.sides, row.entries, strict=True):
            if isinstance(entry, Untimed) and ":" in entry.why:
                found.setdefault(f"on {label} {entry.why}", []).append(row.case.short_name)
    return [
        f"{cases[0]} and {len(cases) - 1} more {why}" if len(cases) > 1 else f"{cases[0]} {why}"
        for why, cases in found.items()
    ]


def _summary(matrix: Matrix) -> Table:
    made = table(_TOTAL)
    add_columns(made, "")
    for label in matrix.labels:
        made.add_column(label, justify="right")
    for name, *cells in _facts(matrix):
        add_row(made, name, *cells)
    return made


def _facts(matrix: Matrix) -> list[list[str]]:
    """Return the rows of the summary: a name, and a cell for each side."""
    columns = [_of_side(index, side, matrix.rows) for index, side in enumerate(matrix.sides.values())]
    return [[name, *(column.get(name, "-") for column in columns)] for name in columns[-1]]


def _of_side(index: int, side: JSON, rows: Sequence[Row]) -> dict[str, str]:
    pairs = [(row.entries[0], row.entries[index]) for row in rows]
    both = [(a, b) for a, b in pairs if isinstance(a, VariantResult) and isinstance(b, VariantResult)]
    outcomes = [b.outcome for _, b in both if b.ratio]
    imported, packages = side["import_seconds"], side.get("packages", {})
    found = {
        "TensorFlow": next((v for name, v in packages.items() if name.startswith(("tensorflow", "tf-nightly"))), "-"),
        "Python": side.get("python", "-"),
        "Keras": packages.get("keras", "-"),
        "import of TensorFlow": duration(imported) if imported else "-",
        "cases": str(len(both)),
    }
    if index:
        found |= {word: str(outcomes.count(one)) for word, one in _WORDS.items()}
        found["inconclusive"] = str(sum(one not in _WORDS.values() for one in outcomes))
    ratios = [b.ratio.center for _, b in both if b.ratio]
    called = [(a.facts.get("first_call"), b.facts.get("first_call")) for a, b in both]
    first = [mine / reference for reference, mine in called if reference and mine]
    memory = [b.facts["peak_host_memory"] for _, b in both if "peak_host_memory" in b.facts]
    found["time, mean ratio"] = f"{geometric_mean(ratios):.3f}" if ratios else "-"
    found["first call, mean ratio"] = f"{geometric_mean(first):.2f}" if first and index else "-"
    found["memory of a case, median"] = size(median(memory)) if memory else "-"
    return found


def markdown(matrix: Matrix, saved: Saved) -> str:
    """Return the same tables as Markdown."""
    lines = [f"- differs: {line}" for line in differences(matrix.sides)] + [""]
    lines += _head(["case", *matrix.labels, *(f"{name}, not raced" for name in saved)])
    for row in matrix.by_slowdown:
        lines.append(_line([f"`{row.case.short_name}`", *map(_mark, row.entries), *_saved_cells(row, saved)]))
    lines += ["", *(f"- {note}" for note in _notes(matrix)), "", *_head([_TOTAL, *matrix.labels])]
    lines += map(_line, _facts(matrix))
    return "\n".join(lines).lstrip("\n") + "\n"


def _mark(entry: Entry) -> str:
    text = str(_cell(entry)).replace("|", "\\|")
    moved = isinstance(entry, VariantResult) and entry.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    return f"**{text}**" if moved else text


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), _line(["---", *["---:"] * (len(cells) - 1)])]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(matrix: Matrix, saved: Saved, policy: JSON) -> str:
    """Return all results as JSON."""
    entries = [
        [{"why": one.why} if isinstance(one, Untimed) else one.as_json() for one in row.entries] for row in matrix.rows
    ]
    content = {
        "schema": SCHEMA,
        "policy": policy,
        "reference": matrix.labels[0],
        "sides": dict(matrix.sides),
        "cases": [
            {"case": row.case.name, "sides": dict(zip(matrix.sides, sides, strict=True))}
            for row, sides in zip(matrix.rows, entries, strict=True)
        ],
        "not_raced": {name: dict(medians) for name, medians in saved.items()},
        "wall_seconds": round(matrix.seconds, 3),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
