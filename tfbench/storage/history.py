"""Save and read the history: one file per run, with the floors of its cases and their ratios to an anchor.

A file has a line that describes the run, then a line per case. Files may be copied from machine to machine and
concatenated. A file is written whole and never changed. Accepted changes of level are files of one line.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tfbench.errors import ReportError
from tfbench.fs import read_text, write_whole
from tfbench.model import JSON, AcceptedChange, MeasurementContext, Outcome, Ratio
from tfbench.storage.baselines import check_schema, context_json, context_of
from tfbench.untrusted import (
    a_list,
    a_number,
    a_text,
    an_integer,
    an_object,
    brief,
    described,
    parse_json,
    printable,
    render_json,
    times,
)

SCHEMA = "tfbench-history/1"
EARLIER = "tfbench-session/1"
"""Schema of files that hold a run as one JSON object, without ratios."""
SUFFIXES = (".jsonl", ".json")
INDEX = "index.sqlite"
"""The index beside the files, see `tfbench.storage.history_index`."""
_CHANGED = frozenset({Outcome.REGRESSED, Outcome.IMPROVED})


@dataclass(frozen=True)
class Anchor:
    """The baseline side of a run, to which the ratios of a history refer."""

    label: str
    """Its specification, such as ``git:v1.0``."""
    key: str
    """Digest of its source tree, Python, packages and settings. Another key starts another series."""


@dataclass(frozen=True)
class SessionRecord:
    """One run of a history."""

    context: MeasurementContext
    floors: Mapping[str, tuple[float, ...]]
    """Case -> seconds per iteration in the fastest block of each launch, in time order."""
    sources: Mapping[str, str]
    """Case -> digest of the benchmark's code."""
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    """Case -> time relative to the anchor's in the same race."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Case -> verdict of the run."""
    anchor: Anchor | None = None
    releases: tuple[str, ...] = ()
    """Tags of the measured commit."""

    def floors_of_same_code(self, case: str) -> tuple[float, ...]:
        """Return the floors of a case, none if the run found it changed: they would widen the spread."""
        return self.floors.get(case, ()) if self.outcomes.get(case) not in _CHANGED else ()


@dataclass
class Content:
    """The content of one or more files."""

    runs: list[SessionRecord] = field(default_factory=list)
    accepted: list[AcceptedChange] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """One line per unreadable part."""

    def once(self) -> list[SessionRecord]:
        """Return every run once, oldest first."""
        known = {record.context.session: record for record in self.runs}
        return [known[session] for session in sorted(known)]


class History:
    """The runs of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder)
        self.index_file = folder / INDEX

    def record(self, record: SessionRecord) -> Path:
        """Write the file of a run, and return its path.

        Raises:
            OSError: The folder cannot be written.
        """
        return self._write(*run_document(record))

    def accept(self, accepted: AcceptedChange) -> Path:
        """Write the file of an accepted change, and return its path.

        Raises:
            OSError: The folder cannot be written.
        """
        return self._write(*accepted_document(accepted))

    def _write(self, name: str, content: str) -> Path:
        ignore_in_git(self.folder)
        write_whole(self.folder / name, content)
        return self.folder / name

    def exists(self) -> bool:
        """Whether the folder exists."""
        return self.folder.is_dir()

    def files(self) -> list[Path]:
        """Return the files of the folder, sorted by name."""
        try:
            return sorted(path for path in self.folder.iterdir() if path.suffix in SUFFIXES)
        except FileNotFoundError:
            return []

    def stamps(self) -> dict[str, tuple[int, int]]:
        """Return size and time of each file, by name."""
        found = {}
        for path in self.files():
            with suppress(FileNotFoundError):
                known = path.stat()
                found[path.name] = (known.st_size, known.st_mtime_ns)
        return found

    def add_to(self, name: str, content: Content) -> None:
        """Add a file to the content."""
        read_file(self.folder / name, content)

    def read(self) -> tuple[list[SessionRecord], list[str]]:
        """Return every run once, oldest first, and one line per unreadable part; files stay unchanged."""
        found = Content()
        for path in self.files():
            read_file(path, found)
        return found.once(), found.problems


def run_document(record: SessionRecord) -> tuple[str, str]:
    """Return the name and the content of a run."""
    head = {"schema": SCHEMA, "kind": "run", **context_json(record.context), "releases": list(record.releases)}
    if record.anchor is not None:
        head["anchor"] = {"label": record.anchor.label, "key": record.anchor.key}
    cases = [_case_json(case, record) for case in {**record.floors, **record.ratios}]
    return f"{record.context.session.replace(':', '')}.jsonl", _lines([{**head, "cases": len(cases)}, *cases])


def accepted_document(accepted: AcceptedChange) -> tuple[str, str]:
    """Return a new name and the content of an accepted change."""
    name = f"{accepted.when.replace(':', '')}-accept-{secrets.token_hex(4)}.jsonl"
    return name, _lines([{"schema": SCHEMA, "kind": "accept", **vars(accepted)}])


def _lines(rows: list[JSON]) -> str:
    return "".join(f"{render_json(row)}\n" for row in rows)


def ignore_in_git(folder: Path) -> None:
    """Make git ignore a folder of histories. An existing .gitignore stays unchanged.

    Raises:
        OSError: The folder cannot be created or written.
    """
    file = folder / ".gitignore"
    if not file.exists():
        write_whole(file, "*\n")


# Reading


def read_file(path: Path, into: Content) -> None:
    """Add the content of a file."""
    try:
        text = read_text(path)
    except ReportError as error:
        into.problems.append(str(error))
        return
    if path.suffix == ".json":
        try:
            into.runs.append(_earlier(parse_json(text)))
        except (ValueError, KeyError) as error:
            into.problems.append(f"{brief(path)} is not a session that tfbench can read ({described(error)})")
        return
    read_document(brief(path), text, into)


def read_document(name: str, text: str, into: Content) -> None:
    """Add the content of a text with lines of JSON; ``name`` is for its problems."""
    for number, part in _parts(text):
        _read_part(f"{name}, line {number}", part, into)
    if not text.strip():
        into.problems.append(f"{name} is empty")


def _parts(text: str) -> Iterator[tuple[int, list[str]]]:
    """Split concatenated files at each object with a schema; its quotes cannot occur within a text."""
    starts = [found.start() for found in re.finditer(r'\{"schema": "', text)]
    for start, end in pairwise(sorted({0, *starts, len(text)})):
        if lines := [line for line in text[start:end].split("\n") if line.strip()]:
            yield text.count("\n", 0, start) + 1, lines


def _read_part(where: str, lines: list[str], into: Content) -> None:
    """Read one run or one acceptance. A damaged line ends it, as the lines after it may be another run's."""
    try:
        head = an_object(parse_json(lines[0]), "the line")
        if (found := head["schema"]) != SCHEMA:
            newer = isinstance(found, str) and found.startswith("tfbench-history/")
            fix = "a newer tfbench wrote it, so update tfbench" if newer else f"expected {SCHEMA}"
            raise ValueError(f"schema {brief(found)!r}: {fix}")
        if head["kind"] == "accept":
            into.accepted.append(_accepted(head))
            return
        if head["kind"] != "run":
            raise ValueError(f"the kind {brief(head['kind'])!r} is unknown")
        context, due = context_of(head), an_integer(head["cases"], "cases", 0)
        releases = tuple(_plain(tag) for tag in a_list(head["releases"], "releases"))
        given = an_object(head["anchor"], "anchor") if "anchor" in head else None
        anchor = Anchor(_plain(given["label"]), _plain(given["key"])) if given is not None else None
    except (ValueError, KeyError) as error:
        into.problems.append(f"{where}: not a run that tfbench can read ({described(error)})")
        return
    cases = list[_Case]()
    try:
        cases.extend(_read_case(row) for row in _rows(lines[1:]))
        if len(cases) != due:
            into.problems.append(f"{where}: the run of {context.session} has {len(cases)} of its {due} cases")
    except (ValueError, KeyError) as error:
        text = f"case {len(cases) + 1} of {due} cannot be read ({described(error)})"
        into.problems.append(f"{where}: {text}; it and the later ones are left out")
    into.runs.append(
        SessionRecord(
            context,
            {one.case: one.floors for one in cases if one.floors},
            {one.case: one.source for one in cases},
            {one.case: one.ratio for one in cases if one.ratio},
            {one.case: one.outcome for one in cases if one.outcome},
            anchor,
            releases,
        )
    )


class _Case(NamedTuple):
    case: str
    source: str
    floors: tuple[float, ...]
    ratio: Ratio | None
    outcome: Outcome | None


def _rows(lines: list[str]) -> Iterable[Any]:
    """Parse lines, all at once if none is damaged: a parser for each line takes four times as long."""
    try:
        return list(parse_json(f"[{','.join(lines)}]"))
    except ValueError:
        return map(parse_json, lines)


def _read_case(content: Any) -> _Case:
    row = an_object(content, "the line")
    case, ratio, outcome = _plain(row["case"]), row.get("ratio"), row.get("outcome")
    return _Case(
        case,
        a_text(row["source"], "source"),
        times(a_list(row["floors"], "floors"), case) if "floors" in row else (),
        _ratio(an_object(ratio, "ratio")) if ratio is not None else None,
        Outcome(a_text(outcome, "outcome")) if outcome is not None else None,
    )


def _case_json(case: str, record: SessionRecord) -> JSON:
    row: JSON = {"case": case, "source": record.sources.get(case, "")}
    if case in record.floors:
        row["floors"] = list(record.floors[case])
    if case in record.ratios:
        row["ratio"] = record.ratios[case].as_json()
    if case in record.outcomes:
        row["outcome"] = record.outcomes[case].value
    return row


def _ratio(row: JSON) -> Ratio:
    """Read a ratio whose center is known. ``null`` bounds are infinite."""
    low, high = (None if row[key] is None else a_number(row[key], key, 0, 1e9) for key in ("low", "high"))
    return Ratio(
        a_number(row["center"], "center", 1e-9, 1e9),
        0.0 if low is None else low,
        math.inf if high is None else high,
        a_number(row["confidence"], "confidence", 0, 1),
    )


def _accepted(head: JSON) -> AcceptedChange:
    return AcceptedChange(*(_plain(head[name]) for name in ("case", "reason", "when", "session")))


def _plain(text: object) -> str:
    """Return a text in one line, with its invisible characters replaced."""
    return " ".join(printable(a_text(text, "a name")).split())


def _earlier(content: JSON) -> SessionRecord:
    check_schema(content, EARLIER)
    cases = {_plain(case): an_object(row, case) for case, row in an_object(content["cases"], "cases").items()}
    floors = {case: times(a_list(row["floors"], "floors"), case) for case, row in cases.items()}
    sources = {case: a_text(row["source"], "source") for case, row in cases.items()}
    return SessionRecord(context_of(content), floors, sources)
