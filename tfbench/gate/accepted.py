"""Accepted regressions: entries of a reviewed file, each with a reason and an expiry date."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.errors import UsageError
from tfbench.model import TIME, Outcome, Report, Verdict
from tfbench.untrusted import brief

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
    """One accepted regression."""

    case: str
    reason: str
    until: datetime.date
    """The last day on which it is valid."""
    metric: str = TIME
    up_to: float = math.inf
    """The largest accepted ratio of times, or the largest accepted value of another metric."""
    gone: bool = False
    """Whether the entry accepts that the case is missing, and nothing else."""

    def covers(self, verdict: Verdict) -> bool:
        """Return whether this entry accepts the verdict, without regard to its expiry date."""
        if verdict.case.name != self.case:
            return False
        if self.gone:
            return verdict.outcome is Outcome.MISSING
        if verdict.outcome is not Outcome.REGRESSED or verdict.metric != self.metric:
            return False
        ratio = verdict.ratio.center if verdict.ratio else None
        value = verdict.values[1] if verdict.values else ratio
        return self.up_to == math.inf or (value is not None and value <= self.up_to)


@dataclass(frozen=True)
class Accepted:
    """The entries of a file, applied to one report."""

    verdicts: tuple[tuple[Verdict, Entry], ...] = ()
    """Accepted verdicts, which do not fail the gate, with their entries."""
    problems: tuple[str, ...] = ()
    """Expired and unused entries, one sentence each. They fail the gate until they are removed."""


def entries(content: Mapping[str, Any], name: str) -> list[Entry]:
    """Parse and check the content of a file.

    Raises:
        UsageError: An entry is invalid; the message has its number.
    """
    rows = content.get("accept", [])
    if set(content) - {"accept"} or not isinstance(rows, list):
        raise UsageError(f"{brief(name)}: only [[accept]] tables are allowed")
    found = [_entry(row, f"{brief(name)}, entry {number}") for number, row in enumerate(rows, 1)]
    keys = Counter((one.case, one.metric, one.gone) for one in found)
    if twice := next((key[0] for key, times in keys.items() if times > 1), ""):
        raise UsageError(f"{brief(name)} has {brief(twice)} twice; keep one of the two")
    return found


def _entry(row: Any, where: str) -> Entry:
    if not isinstance(row, dict):
        raise UsageError(f"{where} is not a table")
    for key, value in row.items():
        if key not in _KEYS:
            raise UsageError(f"{where} has the unknown key {brief(repr(key))}; valid keys: {', '.join(_KEYS)}")
        wrong = (isinstance(value, bool) and _KEYS[key] is not bool) or isinstance(value, datetime.datetime)
        if key == "up_to" and not wrong and isinstance(value, (int, float)):
            wrong = not 0 <= value < math.inf  # an infinite one would accept everything
        if wrong or not isinstance(value, _KEYS[key]):
            raise UsageError(f"{where}: {key} = {brief(repr(value), 80)} is invalid{_FIXES.get(key, '')}")
    for key in ("case", "reason", "until"):
        if not row.get(key):
            raise UsageError(f"{where} lacks {key!r}{_FIXES[key]}")
    if row.get("gone") and {"metric", "up_to"} & set(row):
        raise UsageError(f"{where}: gone excludes metric and up_to")
    if not row.get("gone") and row.get("metric", TIME) == TIME and "up_to" not in row:
        raise UsageError(f"{where} lacks 'up_to', the largest accepted ratio; write for example up_to = 1.08")
    return Entry(**row)


_FIXES = {
    "until": "; write the last valid day, for example until = 2027-01-31",
    "reason": "; state why the regression is accepted",
    "case": "; write the full name from the report",
}


def accept(report: Report, accepted: Sequence[Entry], today: datetime.date) -> Accepted:
    """Find the verdicts of a report that are accepted, and the entries that are expired or unused."""
    taken, problems = [], []
    for entry in accepted:
        covered = [verdict for verdict in report.verdicts if entry.covers(verdict)]
        what = f"{entry.case}{'' if entry.metric == TIME else f' ({entry.metric})'}: the acceptance"
        if entry.until < today:
            problems.append(f"{what} expired on {entry.until} ({entry.reason}); fix the regression, or renew the entry")
        elif not covered:
            problems.append(f"{what} is unused, {_now(entry, report)}; remove the entry")
        else:
            taken += [(verdict, entry) for verdict in covered]
    return Accepted(tuple(taken), tuple(problems))


def _now(entry: Entry, report: Report) -> str:
    """Describe the present state of the case, for the message about an unused entry."""
    rows = [verdict for verdict in report.verdicts if verdict.case.name == entry.case]
    same = next((verdict for verdict in rows if verdict.metric == entry.metric), None)
    if same is None:
        return "because the report has no such case or metric"
    if same.outcome is Outcome.REGRESSED and not entry.gone:
        return f"because the case is worse than the accepted {entry.up_to:g}: {same.reason.message}"
    return f"because the case is {same.outcome}"
