"""Save and read the history of a suite: one document per run, with the floors of its cases and their ratios to an anchor.

A document has a line that describes the run, then a line per case. It is a file of a folder. Files may be copied from
machine to machine. A document is written whole and never changed.
Accepted changes of level are documents of one line. Reading leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from tfbench.errors import ReportError
from tfbench.fs import read_text, write_whole
from tfbench.model.case import JSON
from tfbench.model.formats import Count, Name, Time, line, read
from tfbench.model.measurement import FLOOR, RATIO, AcceptedChange, Ratio, Series, SeriesPoint, SeriesRun
from tfbench.model.report import EnvironmentInfo, MeasurementContext
from tfbench.untrusted import TIMES, brief, plural, printable

# The format


SCHEMA: Final = "tfbench-history/1"


@dataclass(frozen=True, slots=True)
class Anchor:
    """The baseline side of a run, to which the ratios of a history refer."""

    label: Name
    """Its specification, such as ``git:v1.0``."""
    key: Name
    """Digest of its source tree, Python, packages and settings. Another key starts another series."""


@dataclass(frozen=True)
class SessionRecord:
    """One run of a history."""

    context: MeasurementContext
    floors: Mapping[str, tuple[float, ...]]
    """Case -> seconds per iteration in the fastest block of each launch, in time order."""
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    """Case -> time relative to the anchor's in the same race."""
    anchor: Anchor | None = None
    releases: tuple[str, ...] = ()
    """Tags of the measured commit."""


class _RunLine(Struct, frozen=True, tag="run", tag_field="kind"):
    """The first line of a run."""

    schema: Literal["tfbench-history/1"]
    context: MeasurementContext
    releases: tuple[Name, ...]
    anchor: Anchor | None
    cases: Count


# A history of years has a million lines, and a struct is read in half of the time of a dataclass.
class _CaseLine(Struct, frozen=True, gc=False):
    """A line per case of a run."""

    case: Name
    floors: tuple[Time, ...]
    ratio: Ratio | None

    def __post_init__(self) -> None:
        if self.ratio is not None and not TIMES[0] <= self.ratio.center <= TIMES[1]:
            raise ValueError("the center of the ratio is no usable number")
        if self.ratio and not self.floors:
            raise ValueError(f"{self.case} has a verdict on time without a launch")


class _AcceptLine(Struct, frozen=True, tag="accept", tag_field="kind"):
    """The line of an accepted change."""

    schema: Literal["tfbench-history/1"]
    accepted: AcceptedChange


_Head: Any = _RunLine | _AcceptLine
_Lines = Annotated[tuple[_CaseLine, ...], Meta(max_length=1_000_000)]


def run_document(record: SessionRecord) -> tuple[str, str]:
    """Return the name and the content of a run. Raises `ValueError` if a number is out of the bounds of the format."""
    cases = [
        _CaseLine(case, tuple(record.floors.get(case, ())), record.ratios.get(case))
        for case in {**record.floors, **record.ratios}
    ]
    head = _RunLine(SCHEMA, record.context, record.releases, record.anchor, len(cases))
    lines = [line(row) for row in (head, *cases)]
    read(_Lines, f"[{','.join(lines[1:])}]")
    return f"{record.context.session.replace(':', '')}.jsonl", "".join(f"{row}\n" for row in lines)


def json_digest(content: JSON | list[Any]) -> str:
    """Return a short digest of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


# Documents


@dataclass
class Content:
    """The content of one or more files."""

    runs: list[SessionRecord] = field(default_factory=list)
    accepted: list[AcceptedChange] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """One line per unreadable part."""

    def once(self) -> list[SessionRecord]:
        """Return every run once, oldest first; of several copies the last."""
        known = {record.context.session: record for record in self.runs}
        return [known[session] for session in sorted(known)]


class History:
    """The runs of one folder. Many machines may share it, since each run has a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self, record: SessionRecord) -> Path:
        """Add a run, unless it is there; return its file.

        Raises:
            OSError: The folder cannot be written.
            ValueError: A number is out of the bounds of the format.
        """
        return self._add(*run_document(record))

    def accept(self, accepted: AcceptedChange) -> Path:
        """Add an accepted change; return its file. Raises as `record`."""
        name = f"{accepted.when.replace(':', '')}-accept-{secrets.token_hex(4)}.jsonl"
        return self._add(name, f"{line(_AcceptLine(SCHEMA, accepted))}\n")

    def _add(self, name: str, content: str) -> Path:
        ignore_in_git(self.folder)
        write_whole(self.folder / name, content)
        return self.folder / name

    def files(self) -> list[Path]:
        """Return the files of the folder, sorted by name."""
        return sorted(self.folder.glob("*.jsonl"))

    def content(self, about: str = "") -> Content:
        """Read every file, or of each run only the cases whose lines hold a text."""
        content = Content()
        for path in self.files():
            read_file(path, content, about)
        return content


def ignore_in_git(folder: Path, *patterns: str) -> None:
    """Make git ignore these patterns of a folder, or all of it. An existing .gitignore stays unchanged.

    Raises `OSError` if the folder cannot be created or written.
    """
    file = folder / ".gitignore"
    if not file.exists():
        write_whole(file, "".join(f"{pattern}\n" for pattern in patterns or ("*",)))


def read_file(path: Path, into: Content, about: str = "") -> None:
    """Add the run or the acceptance of a file, see `History.content`.

    A damaged run does not count: its lines may be those of another one.
    """
    name = brief(path)
    try:
        first, _, rest = read_text(path).partition("\n")
        head = read(_Head, first, SCHEMA)
    except ReportError as error:
        into.problems.append(str(error))
        return
    except ValueError as error:
        into.problems.append(f"{name}: not a run that tfbench can read ({brief(error)})")
        return
    if isinstance(head, _AcceptLine):
        into.accepted.append(head.accepted)
        return
    rows = [row for row in rest.split("\n") if row.strip()]
    try:
        if len(rows) != head.cases:
            raise ValueError(f"it has {len(rows)} of its {head.cases} cases")
        if about and _is_sound(rest.strip(), head.cases):
            rows = [row for row in rows if line(about)[1:-1] in row]
        cases = read(_Lines, f"[{','.join(rows)}]")  # at once, in a fifth of the time of a line at a time
    except ValueError as error:
        text = f"the run of {head.context.session} is damaged and left out ({brief(error)})"
        into.problems.append(f"{name}: {text}")
        return
    floors = {row.case: row.floors for row in cases if row.floors}
    ratios = {row.case: row.ratio for row in cases if row.ratio}
    into.runs.append(SessionRecord(head.context, floors, ratios, head.anchor, head.releases))


def _is_sound(rest: str, cases: int) -> bool:
    """Whether every line looks whole and has its text as it is, so that lines without a text need not be parsed."""
    start = '{"case":"'
    whole = rest.startswith(start) and rest.endswith("}") and rest.count("}\n" + start) == cases - 1
    return whole and "\\u" not in rest and printable(rest) == rest


# Series: a case followed over the runs


def series_of(runs: Sequence[SessionRecord]) -> list[Series]:
    """Return every series, by case; of a case the ratios first, the one with the newest run first.

    The runs are given oldest first, each once.
    """
    groups: dict[tuple[str, str, str], tuple[tuple[str, str], list[SeriesPoint]]] = {}
    """Case, metric, and machine or anchor -> labels of both, and points."""
    for record in runs:
        environment, anchor = record.context.environment, record.anchor or Anchor("", "")
        machine, label = _machine(environment)
        run = SeriesRun(
            record.context.session, environment.commit, environment.dirty, record.releases, _side(environment), label
        )
        for case, seconds in record.floors.items():
            _, points = groups.setdefault((case, FLOOR, machine), (("", label), []))
            points.append(SeriesPoint(run, min(seconds), min(seconds), min(seconds)))
        for case, ratio in record.ratios.items():
            _, points = groups.setdefault((case, RATIO, anchor.key), ((anchor.label, ""), []))
            points.append(SeriesPoint(run, ratio.center, ratio.low, ratio.high))
    every = [Series(case, metric, *labels, tuple(points)) for (case, metric, _), (labels, points) in groups.items()]
    every.sort(key=lambda series: series.points[-1].run.session, reverse=True)
    return sorted(every, key=lambda series: (series.case, series.metric != RATIO))


def _machine(environment: EnvironmentInfo) -> tuple[str, str]:
    """Return the key and the label of the machine of a run. Another number of threads is another machine."""
    known = {**environment.machine, "threads": str(environment.threads)}
    name = known.get("gpus") or known.get("processor") or "unknown processor"
    count = known.get("processors", "")
    return json_digest(known), f"{name}, {plural(int(count), 'processor') if count.isdigit() else '? processors'}"


def _side(environment: EnvironmentInfo) -> str:
    packages = environment.packages
    tensorflow = next((name for name in ("tensorflow", "tensorflow-cpu", "tf-nightly") if name in packages), "")
    return f"{tensorflow} {packages[tensorflow]}" if tensorflow else f"Python {environment.python}"
