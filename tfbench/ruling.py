"""The gate's answer to a report that lies in a file, with what people have agreed to."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

from tfbench.analysis.accepting import accept, entries
from tfbench.analysis.gating import Gate, Ruling, rule
from tfbench.errors import ReportError, UsageError
from tfbench.model import Report
from tfbench.report import comment, reading
from tfbench.store.artifact import files_of
from tfbench.store.files import read_text

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


def report_in(path: Path, untrusted: bool = False) -> Report:
    """The one report of a file, a folder or an archive.

    Args:
        untrusted: Whether somebody else's job made it: names that no pytest would give are refused as well.

    Raises:
        ReportError: There is none, there are several, or it is not what a report is.
    """
    if not untrusted and not path.is_dir() and path.suffix != ".zip":
        return reading.read(read_text(path), str(path))
    found = files_of(path)
    if len(found) != 1:
        raise ReportError(f"{path} holds {len(found)} files; merge the reports of shards first, with tfbench merge")
    ((name, text),) = found.items()
    report = reading.read(text, name)
    if untrusted:
        reading.check_names(report, name)
    return report


def ruled(report: Report, accepted: Path | None, today: datetime.date | None = None) -> Ruling:
    """The gate's answer.

    Args:
        accepted: The file of regressions that people have agreed to, if there is one.

    Raises:
        UsageError: That file is not understood.
        ReportError: It cannot be read.
    """
    if accepted is None:
        return rule(report)
    try:
        content = tomllib.loads(read_text(accepted))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{accepted} is not TOML: {error}") from None
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    return rule(report, accept(report, entries(content, str(accepted)), day))


def as_comment(report: Report, ruling: Ruling, link: str = "") -> str:
    """A ruling as Markdown."""
    agreed = [(verdict, entry.reason, str(entry.until)) for verdict, entry in ruling.accepted.verdicts]
    word, _ = MEANING[ruling.gate]
    return comment.render(report, word, ruling.because, ruling.verdicts, agreed, ruling.accepted.problems, link)
