"""Merge the reports of the shards of a suite, or of the jobs of a fleet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfbench.errors import ReportError
from tfbench.model import JSON, Case, Note, Outcome, ReasonCode, Report, Skip, Verdict, because
from tfbench.suite.shards import digest
from tfbench.untrusted import brief, plural, some

Named = tuple[str, Report]
"""The name of a report in error messages, and the report."""


def _differing(mine: Any, other: Any, path: str = "") -> list[str]:
    """Name each field that differs, with both values."""
    if isinstance(mine, Mapping) and isinstance(other, Mapping):
        return [
            text
            for key in {**mine, **other}
            for text in _differing(mine.get(key), other.get(key), f"{path}.{key}" if path else str(key))
        ]
    return [] if mine == other else [f"{brief(path)} {brief(mine, 60)} and {brief(other, 60)}".strip()]


KIND = ("system", "architecture", "gpus", "driver")
"""Facts that must be equal on the machines of all shards. Their speeds may differ, because each races both sides."""
_SHOWN = 256
"""Most shards that a message lists."""
_FIELDS = 5
"""Most differing fields that a message lists."""


def merge(reports: Sequence[Named]) -> Report:
    """Merge the reports of all shards into the report of the whole suite, which may be the only report already.

    Raises `ReportError` if the reports are not the shards of one suite, a shard or a case is missing or occurs twice, a
    shard did not come to its end, or the policies, sides, code or kinds of machines differ.
    """
    if len(reports) == 1 and reports[0][1].shard is None:
        return reports[0][1]
    merger = Merger()
    for name, report in reports:
        if report.shard and "job" in report.shard:
            fix = "merge the folder of the fleet, whose plan knows which cases are missing"
            raise ReportError(f"{name} is the report of a fleet's job: {fix}")
        merger.add(name, report)
    return merger.finish()


class Merger:
    """Merge reports one after another, so that only the result is in memory.

    ``rounds`` tells whether to keep the rounds of the cases. A large fleet has them in the reports of its jobs.
    """

    def __init__(self, *, rounds: bool = True) -> None:
        self._rounds = rounds
        self._first: tuple[str, JSON, Report] | None = None
        self._indices: dict[int, str] = {}
        self._owner: dict[str, str] = {}
        """Case -> name of its report."""
        self._common: dict[str, tuple[str, Verdict | Skip]] = {}
        """Name -> report and row, of modules, classes and missing cases. They are a case of no shard."""
        self._lists: dict[str, list[Any]] = {
            name: [] for name in ("verdicts", "variant_results", "skips", "profiles", "rounds", "due")
        }
        self._seconds: dict[str, dict[str, float]] = {"seconds_by_phase": defaultdict(float), "seconds_by_case": {}}
        self._wall = 0.0
        self._interrupted = False

    def add(self, name: str, report: Report) -> None:
        """Add the report of a shard or job.

        Raises:
            ReportError: It is incomplete, is there twice, or belongs to another suite, policy, side, code or kind of machine.
        """
        if (shard := report.shard) is None:
            raise ReportError(f"{name} is not a shard's report: it was measured without --shard")
        if report.gap:
            raise ReportError(f"{name} cannot be merged: {report.gap}")
        if self._first is None:
            self._first = name, shard, report
        first_name, first, reference = self._first
        known = _started(report) and _started(reference)
        for what, mine, other in (
            ("numbers of shards", first["of"], shard["of"]),
            ("suites of cases", first["suite"], shard["suite"]),
            ("policies", reference.policy, report.policy),
            ("sides", _sides(reference, known=known), _sides(report, known=known)),
        ):
            if mine != other:
                values = some(_differing(mine, other), _FIELDS)
                raise ReportError(f"{first_name} and {name} are not of one run: their {what} differ: {values}")
        if not report.sides or not all(side.get("tree") for side in report.sides.values()):
            raise ReportError(f"{name} does not tell which code it raced; measure again with this version of tfbench")
        if _started(report) and not _started(reference):
            self._first = name, shard, report
        self._own(name, shard)
        _check_rows(name, shard, report)
        report = self._without_common(name, set(shard["cases"]), report)
        for attribute, rows in self._lists.items():
            if attribute != "rounds" or self._rounds:
                rows += getattr(report, attribute)
        for attribute, total in self._seconds.items():
            for key, seconds in getattr(report, attribute).items():
                total[key] = total.get(key, 0.0) + seconds
        self._wall = max(self._wall, report.wall_seconds)
        self._interrupted |= report.interrupted

    def _without_common(self, name: str, mine: Collection[str], report: Report) -> Report:
        """Return the report without the rows that are about no case of its shard.

        Every shard collects all modules, so each may have the same row about a module. The most severe one is kept.
        """
        rows: list[Verdict | Skip] = [*report.verdicts, *report.skips]
        for row in (row for row in rows if row.name not in mine):
            known = self._common.get(row.name)
            if known is None or _severity(row) > _severity(known[1]):
                self._common[row.name] = name, row
        own: dict[str, Any] = {
            name: tuple(row for row in getattr(report, name) if row.name in mine) for name in ("verdicts", "skips")
        }
        return replace(report, due=tuple(name for name in report.due if name in mine), **own)

    def add_lost(self, name: str, shard: JSON, why: str) -> None:
        """Add an error for each case of a job that has no report.

        ``shard`` is the ``shard`` object that the report would have.
        """
        self._own(name, shard)
        for case in shard["cases"]:
            row = Verdict.of(Case.named(case), Outcome.ERROR, because(ReasonCode.NOT_MEASURED, why=why))
            self._lists["verdicts"].append(row)
            self._lists["due"].append(case)

    def add_missing(self, names: Sequence[str]) -> None:
        """Add a row for each case that the other side would run, and that is in no job."""
        reason = because(ReasonCode.NOT_COLLECTED, because(Note.IN_NO_JOB))
        for name in names:
            row = Verdict.of(Case.named(name), Outcome.MISSING, reason)
            self._common.setdefault(name, ("the plan", row))

    def _own(self, name: str, shard: JSON) -> None:
        index, of = shard["index"], shard["of"]
        if index in self._indices:
            raise ReportError(f"{self._indices[index]} and {name} are both shard {index}/{of}")
        self._indices[index] = name
        for case in shard["cases"]:
            if case in self._owner:
                raise ReportError(f"{case} is in {self._owner[case]} and in {name}")
            self._owner[case] = name

    def finish(self) -> Report:
        """Return the report of the whole suite.

        Raises `ReportError` if a shard or a case is missing, or no report was added.
        """
        if self._first is None:
            raise ReportError("no report to merge: no shard has reported")
        named, first, report = self._first
        if missing := [index for index in range(1, first["of"] + 1) if index not in self._indices]:
            which = some([f"{index}/{first['of']}" for index in missing], _SHOWN)
            raise ReportError(f"shard {which} never reported: its job failed, or its report was not uploaded")
        if len(self._owner) != first["suite_cases"] or digest(self._owner) != first["suite"]:
            cases, due = plural(len(self._owner), "case"), first["suite_cases"]
            raise ReportError(f"{named}: the shards have {cases} together, the suite has {due}")
        for case, (name, row) in self._common.items():
            if case in self._owner:
                raise ReportError(f"{name} has a row on {case}, a case of {self._owner[case]}")
            self._lists["due"].append(case)
            self._lists["skips" if isinstance(row, Skip) else "verdicts"].append(row)
        whole: dict[str, Any] = {name: tuple(rows) for name, rows in self._lists.items()}
        whole |= {name: dict(total) for name, total in self._seconds.items()}
        return replace(report, wall_seconds=self._wall, interrupted=self._interrupted, shard=None, **whole)


def _started(report: Report) -> bool:
    """Whether the report knows what its sides are. One without cases, or with skipped ones alone, has started none."""
    ran = any(row.launches or row.outcome not in _NOT_STARTED for row in report.verdicts)
    return ran or all("packages" in side for side in report.sides.values())


def _sides(report: Report, *, known: bool = True) -> JSON:
    """Select the facts of the sides that must be equal in all shards: what they are if ``known``, or should be."""
    kept = ("spec", "slowdown", "commit", "tree", *(("python", "packages", "settings") if known else ()))
    return {
        name: {key: side.get(key) for key in kept}
        | {"machine": {key: side.get("machine", {}).get(key) for key in KIND if known}}
        for name, side in report.sides.items()
    }


def _check_rows(name: str, shard: JSON, report: Report) -> None:
    mine = set(shard["cases"])
    if silent := sorted(mine - set(report.due)):
        raise ReportError(f"{name} has no row for its case {some(silent, 1)}")
    measured = {row.name for row in report.verdicts if row.outcome not in _OF_NO_SHARD}
    if strange := sorted(measured - mine):
        raise ReportError(f"{name} has a verdict on {some(strange, 1)}, a case of another shard")


_NOT_STARTED = (Outcome.MISSING, Outcome.ERROR, Outcome.INCOMPARABLE)
"""Outcomes of cases for which no side may have started."""
_OF_NO_SHARD = (Outcome.MISSING, Outcome.ERROR)
"""Outcomes of what is no case of a shard, the mildest first: a missing case, and a module that cannot be collected."""


def _severity(row: Verdict | Skip) -> int:
    return 0 if isinstance(row, Skip) else 1 + _OF_NO_SHARD.index(row.outcome)
