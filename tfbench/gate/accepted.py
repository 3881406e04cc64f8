"""Regressions that people have agreed to: entries of a file under review, each with a reason and an end."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.errors import UsageError
from tfbench.model import TIME, Outcome, Report, Verdict

_KEYS: dict[str, Any] = {
    "case": str,
    "metric": str,
    "up_to": (int, float),
    "gone": bool,
    "reason": str,
    "until": datetime.date,
}


@dataclass(frozen=True)
class Entry:
    """One agreement."""

    case: str
    reason: str
    until: datetime.date
    """The last day on which it counts."""
    metric: str = TIME
    up_to: float = math.inf
    """The largest ratio of times, or the largest value of another metric, that was agreed to."""
    gone: bool = False
    """Whether the case may be missing, and nothing else."""

    def covers(self, verdict: Verdict) -> bool:
        """Whether this is what was agreed to, whatever the day."""
        if verdict.case.name != self.case:
            return False
        if self.gone:
            return verdict.outcome is Outcome.MISSING
        if verdict.outcome is not Outcome.REGRESSED or verdict.metric != self.metric:
            return False
        value = verdict.ratio.center if verdict.ratio else (verdict.values or (None, None))[1]
        return self.up_to == math.inf or (value is not None and value <= self.up_to)


@dataclass(frozen=True)
class Accepted:
    """What became of the entries of a file in one report."""

    verdicts: tuple[tuple[Verdict, Entry], ...] = ()
    """Verdicts that need stop nobody."""
    problems: tuple[str, ...] = ()
    """Entries that have ended or were of no use, each in a sentence: they fail the gate until somebody removes them."""


def entries(content: Mapping[str, Any], name: str) -> list[Entry]:
    """The entries of a file's content.

    Raises:
        UsageError: One is not understood.
    """
    rows = content.get("accept", [])
    if set(content) - {"accept"} or not isinstance(rows, list):
        raise UsageError(f"{name} shall hold [[accept]] tables and nothing else")
    found = [_entry(row, f"{name}, entry {number}") for number, row in enumerate(rows, 1)]
    keys = Counter((one.case, one.metric, one.gone) for one in found)
    for (case, _, _), times in keys.items():
        if times > 1:
            raise UsageError(f"{name} has {case} twice; keep one of the two")
    return found


def _entry(row: Any, where: str) -> Entry:
    if not isinstance(row, dict):
        raise UsageError(f"{where} is no table")
    for key, value in row.items():
        if key not in _KEYS:
            raise UsageError(f"{where} has {key!r}; there are {', '.join(_KEYS)}")
        wrong = (isinstance(value, bool) and _KEYS[key] is not bool) or isinstance(value, datetime.datetime)
        if wrong or not isinstance(value, _KEYS[key]):
            raise UsageError(f"{where}: {key} = {value!r} is not understood{_CURES.get(key, '')}")
    for key in ("case", "reason", "until"):
        if not row.get(key):
            raise UsageError(f"{where} lacks {key!r}{_CURES.get(key, '')}")
    if row.get("gone") and {"metric", "up_to"} & set(row):
        raise UsageError(f"{where}: what is gone has neither metric nor up_to")
    if not row.get("gone") and row.get("metric", TIME) == TIME and "up_to" not in row:
        raise UsageError(f"{where} lacks 'up_to', the ratio that was agreed to, as up_to = 1.08")
    return Entry(**row)


_CURES = {
    "until": "; write the last day on which it counts, as until = 2027-01-31",
    "reason": "; say why it is agreed to",
    "case": "; write its whole name, as the report has it",
}


def accept(report: Report, agreed: Sequence[Entry], today: datetime.date) -> Accepted:
    """Which verdicts of a report were agreed to, and which agreements have to go."""
    taken, problems = [], []
    for entry in agreed:
        covered = [verdict for verdict in report.verdicts if entry.covers(verdict)]
        what = f"what was accepted of {entry.case}{'' if entry.metric == TIME else f' ({entry.metric})'}"
        if entry.until < today:
            problems.append(f"{what} ended on {entry.until}: {entry.reason}; mend it, or agree anew")
        elif not covered:
            problems.append(f"{what} is not there{_now(entry, report)}; remove the entry")
        else:
            taken += [(verdict, entry) for verdict in covered]
    return Accepted(tuple(taken), tuple(problems))


def _now(entry: Entry, report: Report) -> str:
    """How the case is instead, for the sentence about an entry of no use."""
    rows = [verdict for verdict in report.verdicts if verdict.case.name == entry.case]
    same = next((verdict for verdict in rows if verdict.metric == entry.metric), None)
    if same is None:
        return ": no such case or metric is in the report"
    if same.outcome is Outcome.REGRESSED and not entry.gone:
        return f": it is worse than the {entry.up_to:g} agreed to, {same.reason.message}"
    return f": it is {same.outcome}"
