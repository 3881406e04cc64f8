"""Apply the gate to a report file and a file of accepted regressions."""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import ReportError, UsageError
from tfbench.fs import read_text
from tfbench.gate.accepted import Accepted, Entry, accept, entries
from tfbench.gate.artifact import files_of
from tfbench.model import Report
from tfbench.policy import Policy
from tfbench.report import comment, json_reader
from tfbench.ruling import Ruling, rule
from tfbench.untrusted import brief

if sys.version_info >= (3, 11):
    import tomllib
else:  # Python 3.10 has no tomllib
    import tomli as tomllib

ACCEPTED = "accepted.json"
"""File of accepted regressions that the gate adds to an artifact."""


@dataclass(frozen=True)
class GateDecision:
    """The ruling on a report, and the accepted regressions that it took into account."""

    ruling: Ruling
    accepted: Accepted


def load_report(path: Path) -> Report:
    """Read the report of this run: a file, or a folder or an archive with only this file.

    Raises:
        ReportError: There is no report, there are several, or it is invalid.
    """
    if not path.is_dir() and path.suffix != ".zip":
        return json_reader.read(read_text(path), str(path))
    try:
        return _single(path, files_of(path))
    except ReportError as error:
        raise ReportError(
            f"{error}; give a report of --report-json, or a folder or archive with only a report"
        ) from None


def load_artifact(path: Path) -> tuple[Report, list[Entry]]:
    """Read the report of an untrusted job, and the accepted regressions that its gate applied.

    Raises:
        ReportError: The artifact is invalid, or has names that are not pytest node ids.
    """
    found = files_of(path)
    text = found.pop(ACCEPTED, None)
    report = _single(path, found)
    json_reader.check_names(report, str(path))
    return report, _of_json(text) if text is not None else []


def _single(path: Path, found: dict[str, str]) -> Report:
    if len(found) != 1:
        raise ReportError(
            f"{brief(path)} has {len(found)} reports, expected one; merge the reports of shards with tfbench merge"
        )
    ((name, text),) = found.items()
    return json_reader.read(text, name)


def load_accepted(path: Path) -> list[Entry]:
    """Read a file of accepted regressions from this repository.

    Raises:
        UsageError: The content is invalid.
        ReportError: The file cannot be read.
    """
    try:
        content = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # the parser has errors beside its own, such as of a date
        raise UsageError(f"{brief(path)} is not TOML: {brief(error)}") from None
    return entries(content, str(path))


def as_json(accepted: Sequence[Entry]) -> str:
    """Format accepted regressions as JSON, for an artifact. Like their file, it has no key with the default value."""
    defaults = {field.name: field.default for field in dataclasses.fields(Entry)}
    rows = [
        {key: value for key, value in vars(one).items() if value != defaults[key]} | {"until": str(one.until)}
        for one in accepted
    ]
    return json.dumps({"accept": rows}, indent=1) + "\n"


def _of_json(text: str) -> list[Entry]:
    content = json_reader.load(text, ACCEPTED)
    try:
        rows = [{**row, "until": datetime.date.fromisoformat(row["until"])} for row in content["accept"]]
        return entries({"accept": rows}, ACCEPTED)
    except (TypeError, KeyError, ValueError, UsageError) as error:
        raise ReportError(f"{ACCEPTED} is invalid: {brief(error)}") from None


def decided(
    report: Report,
    accepted: Sequence[Entry] = (),
    today: datetime.date | None = None,
    min_compared: float = Policy().min_compared,
) -> GateDecision:
    """Decide on a report; ``today`` defaults to the date in UTC. See `rule` for ``min_compared``."""
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    found = accept(report, accepted, day)
    ruling = rule(report, [verdict for verdict, _ in found.verdicts], found.problems, min_compared)
    return GateDecision(ruling, found)


def as_comment(report: Report, decision: GateDecision, link: str = "", run: comment.GithubRun | None = None) -> str:
    """Format a decision as Markdown; ``link`` points to the run, and ``run`` is what GitHub says of it."""
    accepted = [(verdict, entry.reason, str(entry.until)) for verdict, entry in decision.accepted.verdicts]
    return comment.render(report, decision.ruling, accepted, decision.accepted.problems, link, run)
