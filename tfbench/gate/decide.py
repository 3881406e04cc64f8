"""The gate's answer to a report that lies in a file, with what people have agreed to."""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from tfbench.errors import ReportError, UsageError
from tfbench.fs import read_text
from tfbench.gate.accepted import Entry, accept, entries
from tfbench.gate.artifact import files_of
from tfbench.gate.rules import Gate, GateDecision, rule
from tfbench.model import Report
from tfbench.report import comment, json_reader

if sys.version_info >= (3, 11):
    import tomllib
else:  # which Python has from 3.11 on
    import tomli as tomllib

MEANING = {
    Gate.PASS: ("pass", "bold green"),
    Gate.REGRESSED: ("regressed", "bold red"),
    Gate.INCONCLUSIVE: ("inconclusive", "bold yellow"),
    Gate.INCOMPARABLE: ("incomparable", "bold yellow"),
    Gate.ERROR: ("error", "bold red"),
}
"""In a word, and how it is coloured."""


ACCEPTED = "accepted.json"
"""What the gate hands on beside a report: the agreements that it went by."""


def load_report(path: Path) -> Report:
    """The report of this run: a file, or a folder or an archive with nothing else in it.

    Raises:
        ReportError: There is none, there are several, or it is not what a report is.
    """
    if not path.is_dir() and path.suffix != ".zip":
        return json_reader.read(read_text(path), str(path))
    return _single(path, files_of(path))


def load_artifact(path: Path) -> tuple[Report, list[Entry]]:
    """The report of somebody else's job, and the agreements that its gate went by.

    Raises:
        ReportError: It is not what a gate hands on, or has names that no pytest would give.
    """
    found = files_of(path)
    text = found.pop(ACCEPTED, None)
    report = _single(path, found)
    json_reader.check_names(report, str(path))
    return report, _of_json(text) if text is not None else []


def _single(path: Path, found: dict[str, str]) -> Report:
    if len(found) != 1:
        raise ReportError(f"{path} holds {len(found)} reports; merge those of shards first, with tfbench merge")
    ((name, text),) = found.items()
    return json_reader.read(text, name)


def load_accepted(path: Path) -> list[Entry]:
    """The agreements of a file of this repository.

    Raises:
        UsageError: It is not understood.
        ReportError: It cannot be read.
    """
    try:
        content = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    return entries(content, str(path))


def as_json(agreed: Sequence[Entry]) -> str:
    """Agreements as JSON, for who has not the file."""
    rows = [
        {key: value for key, value in vars(one).items() if value not in (math.inf, False)} | {"until": str(one.until)}
        for one in agreed
    ]
    return json.dumps({"accept": rows}, indent=1) + "\n"


def _of_json(text: str) -> list[Entry]:
    content = json_reader.load(text, ACCEPTED)
    try:
        rows = [{**row, "until": datetime.date.fromisoformat(row["until"])} for row in content["accept"]]
        return entries({"accept": rows}, ACCEPTED)
    except (TypeError, KeyError, ValueError, UsageError) as error:
        raise ReportError(f"{ACCEPTED} is not what a gate hands on: {error}") from None


def decided(report: Report, agreed: Sequence[Entry] = (), today: datetime.date | None = None) -> GateDecision:
    """The gate's answer.

    Args:
        agreed: Regressions that people have agreed to.
    """
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    return rule(report, accept(report, agreed, day))


def as_comment(report: Report, decision: GateDecision, link: str = "") -> str:
    """A decision as Markdown."""
    agreed = [(verdict, entry.reason, str(entry.until)) for verdict, entry in decision.accepted.verdicts]
    word, _ = MEANING[decision.gate]
    return comment.render(report, word, decision.because, decision.verdicts, agreed, decision.accepted.problems, link)
