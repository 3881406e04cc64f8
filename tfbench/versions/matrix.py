"""Race several versions, and print what differs."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tfbench.errors import BenchmarkSkipped, SideError, UsageError
from tfbench.model import JSON, Case, Outcome, VariantResult
from tfbench.model.formats import plain
from tfbench.model.words import duration, times
from tfbench.policy import Policy
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ZYGOTES_TOGETHER, Environment, ProcessLauncher
from tfbench.race.race import Race, RaceConfig
from tfbench.report.page import render_page
from tfbench.report.screen import add_columns, add_row, break_name, table
from tfbench.report.summary import differences
from tfbench.ruling import Result
from tfbench.session.results import of_variant
from tfbench.sides.spec import Side, of_version, packages_of
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


@dataclass(frozen=True)
class Row:
    """A case on all sides."""

    case: Case
    entries: tuple[Entry, ...]
    """In the order of the sides."""
    changes: tuple[CaseChange, ...] = ()
    """What changed on the other sides."""

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
    notes: tuple[str, ...] = ()

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
    def has_gaps(self) -> bool:
        """Whether a case has no time on a side that did not skip it."""
        entries = (entry for row in self.rows for entry in row.entries)
        return any(isinstance(entry, Untimed) and not entry.skipped for entry in entries)


def result(matrix: Matrix) -> Result:
    """Return the result whose exit code is that of ``--fail-on-regression``."""
    if Outcome.REGRESSED in matrix.outcomes:
        return Result.REGRESSED
    if matrix.has_gaps:
        return Result.ERROR
    if not matrix.outcomes:
        return Result.INCOMPARABLE
    decided = {Outcome.UNCHANGED, Outcome.IMPROVED}
    return Result.PASS if decided.issuperset(matrix.outcomes) else Result.INCONCLUSIVE


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
        changes: Sequence[CaseChange] = ()
        if finder is not None:
            progress(f"{text}, what changed")
            changes, failures = finder(made)
            notes.extend(failures)
        return Row(case, tuple(entries[side.name] for side in sides), tuple(changes))

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


def _describe(launcher: ProcessLauncher, side: Side) -> JSON:
    environment = launcher.environment(side)
    shown: JSON = {
        key: environment[key] for key in ("python", "packages", "settings", "defaults") if key in environment
    }
    return {"spec": side.spec, **shown, "import_seconds": launcher.import_seconds(side)}


# Report cases by versions: tables for the terminal, Markdown, JSON


SCHEMA = "tfbench-versions/1"
_STYLE = {Outcome.REGRESSED: "red", Outcome.IMPROVED: "green", Outcome.INCONCLUSIVE: "yellow"}
_SIGNS = {Outcome.REGRESSED: "+", Outcome.IMPROVED: "-", Outcome.UNCHANGED: " "}
_WORDS = {Outcome.REGRESSED: "slower", Outcome.IMPROVED: "faster", Outcome.UNCHANGED: "the same"}
_HEADINGS = {"times": "Time", "changes": "What changed", "differences": "Differences of the sides"}
_CASE, _CELL = 40, 24
"""Characters that a column takes."""


@dataclass(frozen=True)
class Listing:
    """A table whose first column names the rows. A red or green cell is one that moved."""

    title: str
    heads: Sequence[str]
    rows: list[list[str | Text]]
    numbers: bool = True
    """Whether the other columns are aligned to the right."""


def terminal(matrix: Matrix, width: int) -> RenderableType:
    """Return the tables, how sides differ, and why cases could not be timed.

    On lines of too few characters, the tables leave out the intervals.
    """
    before = [Text(f"differs: {line}", "dim") for line in differences(matrix.sides)]
    short = _CASE + _CELL * len(matrix.sides) > width
    legend = "+ slower, - faster, ? inconclusive; reports and wider terminals show the intervals"
    after = [Text(line, "dim") for line in [*[legend] * short, *_notes(matrix)]]
    raced, *others = (_drawn(listing, _CASE // 2 if short else _CASE) for listing in _listings(matrix, short).values())
    return Group(*before, raced, *after, *others)


def _drawn(listing: Listing, width: int) -> Table:
    """Draw a table. A name stands only in the first of its rows, broken into lines of this width."""
    drawing = table(listing.title)
    add_columns(drawing, listing.heads[0])
    add_columns(drawing, *listing.heads[1:], right=listing.numbers, fold=True)
    last = None
    for name, *cells in listing.rows:
        add_row(drawing, "" if name == last else break_name(str(name), width), *cells)
        last = name
    return drawing


def markdown(matrix: Matrix) -> str:
    """Return the same tables as Markdown."""
    lines = [f"- differs: {line}" for line in differences(matrix.sides)]
    for name, listing in _listings(matrix).items():
        rule = ["---", *["---:" if listing.numbers else "---"] * (len(listing.heads) - 1)]
        lines += ["", f"{listing.title}:", "", _line(listing.heads), _line(rule)]
        lines += [_line([f"`{row[0]}`", *map(_marked, row[1:])]) for row in listing.rows]
        if name == "times":
            lines += ["", *(f"- {note}" for note in _notes(matrix))]
    return "\n".join(lines).lstrip("\n") + "\n"


def _marked(cell: str | Text) -> str:
    return f"**{cell}**" if _moved(cell) else str(cell)


def _moved(cell: str | Text) -> str:
    """Return ``regressed`` or ``improved`` for the cell of such a result, ``""`` for others."""
    moved = {_STYLE[outcome]: str(outcome) for outcome in (Outcome.REGRESSED, Outcome.IMPROVED)}
    return moved.get(str(cell.style), "") if isinstance(cell, Text) else ""


def page(matrix: Matrix) -> str:
    """Return the same tables as a page. Raises `UsageError` if the chart library is not installed."""
    tables = _listings(matrix)
    counts = Counter(str(outcome or Outcome.NEW) for outcome in matrix.outcomes)
    counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no case was compared"
    return render_page(
        "versions.html", {name: _HEADINGS[name] for name in (*tables, "differences")}, {},
        title=f"Versions since {matrix.labels[0]}", subtitle=f"{plural(len(matrix.rows), 'case')}: {counted}",
        tables=tables, notes=_notes(matrix), differences=differences(matrix.sides), moved=_moved,
    )  # fmt: skip


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _listings(matrix: Matrix, short: bool = False) -> dict[str, Listing]:
    """Return the tables: ``times``, and ``changes`` if there are any."""
    reference, *others = matrix.labels
    rows: list[list[str | Text]] = [
        [row.case.short_name, *(_cell(entry, short) for entry in row.entries)] for row in matrix.by_slowdown
    ]
    heads = ["case", *matrix.labels]
    listings = {"times": Listing(f"time, ratio to {reference}", heads, rows)}
    rows = [
        [row.case.short_name, *([side] if len(others) > 1 else []), kind, *_told(changes, short)]
        for row in matrix.by_slowdown
        for (side, kind), changes in _by_kind(row).items()
    ]
    if rows:
        told = ["change"] if short else ["before", "now", "ratio", "cause"]
        heads = ["case", *(["version"] if len(others) > 1 else []), "what", *told]
        listings["changes"] = Listing(f"what changed since {reference}", heads, rows, numbers=False)
    return listings


def _cell(entry: Entry, short: bool) -> Text:
    if isinstance(entry, Untimed):
        return Text(entry.what, "dim")
    if entry.ratio is None:
        return Text(duration(entry.median_seconds))
    outcome = entry.outcome or Outcome.NEW
    text = f"{entry.ratio.center:.3f} {_SIGNS.get(outcome, '?')}" if short else times(entry.ratio)
    return Text(text, _STYLE.get(outcome, ""))


def _by_kind(row: Row) -> dict[tuple[str, str], list[CaseChange]]:
    changes: dict[tuple[str, str], list[CaseChange]] = {}
    for change in row.changes:
        changes.setdefault((change.side, change.kind), []).append(change)
    return changes


def _told(changes: Sequence[CaseChange], short: bool) -> list[str]:
    """Return the values before, those now, the ratio of the first, and the cause; in one cell where there is little room."""
    first = changes[0]
    named = first.kind in ("leaks", "graph")
    before = ", ".join(
        f"{change.verdict.metric} {change.values[0]}" if named else change.values[0] for change in changes
    )
    now = ", ".join(change.values[1] for change in changes)
    raced = first.verdict.ratio
    ratio = times(raced) if raced else f"{first.ratio.center:.3g}" if first.ratio else "-"
    if short:
        lines = [f"{before} -> {now}", *([ratio] if raced else []), *filter(None, [first.cause])]
        return ["\n".join(lines)]
    return [before, now, ratio, first.cause]


def _notes(matrix: Matrix) -> list[str]:
    """Return why cases could not be timed, each reason once."""
    texts: dict[str, list[str]] = {}
    for row in matrix.rows:
        for label, entry in zip(matrix.sides, row.entries, strict=True):
            if isinstance(entry, Untimed) and entry.details:
                texts.setdefault(f"on {label} {entry.why}", []).append(row.case.short_name)
    return [*_counts(matrix), *(f"{some(cases, 1)} {why}" for why, cases in texts.items()), *matrix.notes]


def _counts(matrix: Matrix) -> Iterator[str]:
    """Count the outcomes of each side: ``2.21.0: 4 slower, 18 the same``."""
    for index, label in enumerate(matrix.labels):
        entries = [row.entries[index] for row in matrix.rows]
        outcomes = [entry.outcome for entry in entries if isinstance(entry, VariantResult) and entry.ratio]
        words = Counter(_WORDS.get(outcome or Outcome.NEW, "inconclusive") for outcome in outcomes)
        if words:
            yield f"{label}: {', '.join(f'{count} {word}' for word, count in words.items())}"


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
