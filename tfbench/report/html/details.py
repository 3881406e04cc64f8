"""Collect everything about each case, which a page shows when a reader opens the case."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tfbench.model import JSON, TIME, Report, StoredRounds, Verdict
from tfbench.model.rounds import by_side
from tfbench.report.html.charts import number
from tfbench.report.reproduce import command_for
from tfbench.report.summary import Summary
from tfbench.report.units import explanation
from tfbench.untrusted import printable

_ROWS = 20
"""Rows of a profile's table that a page shows. The profile's folder has all."""


def case_details(report: Report, summary: Summary, shared: bool = False) -> tuple[list[str], list[JSON]]:
    """Return the names of all cases, and what a page shows of each.

    Args:
        shared: Whether the report may be a stranger's, see `command_for`.
    """
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for one in report.verdicts:
        rows[one.case.name].append(one)
    results = {one.case.name: one for one in report.variant_results}
    rounds = by_side(report.rounds)
    profiles: dict[str, list[JSON]] = defaultdict(list)
    for profile in report.profiles:
        profiles[profile["case"]].append(profile)
    causes = {one.case.name: one.causes for found in summary.findings.values() for one in found}
    names = list(dict.fromkeys((*rows, *results, *rounds)))
    made = [
        {
            "case": name,
            "verdicts": [_verdict(one) for one in rows.get(name, ())],
            "causes": [printable(cause) for cause in causes.get(name, ())],
            "command": command_for(report, rows[name][0], shared=shared) if name in rows else "",
            "rounds": {side: _rounds(one) for side, one in rounds.get(name, {}).items()},
            "facts": _facts(results[name].facts) if name in results else {},
            "profiles": [_profile(one) for one in profiles.get(name, ())],
        }
        for name in names
    ]
    return names, made


def _verdict(one: Verdict) -> JSON:
    before, now = one.values or (None, None)
    ratio = one.ratio and [number(one.ratio.low), number(one.ratio.center), number(one.ratio.high)]
    return {
        "metric": printable(one.metric), "outcome": str(one.outcome), "why": printable(explanation(one)),
        "ratio": ratio, "launches": one.launches, "rounds": one.rounds, "seconds": one.wall_seconds,
        "old": number(before), "new": number(now), "unit": printable(one.unit), "time": one.metric == TIME,
    }  # fmt: skip


def _rounds(one: StoredRounds) -> JSON:
    return {"median": one.median_seconds, "launches": list(one.launches), "every": one.every, "steps": one.steps}


def _facts(facts: JSON) -> JSON:
    """Return the facts that are numbers or short texts."""
    usable = {key: value for key, value in facts.items() if isinstance(value, (int, float, str)) and value != ""}
    return {
        printable(key): printable(value[:200]) if isinstance(value, str) else number(value)
        for key, value in usable.items()
    }


def _profile(profile: JSON) -> JSON:
    """Return what a page shows of a profile. The tables of another version of tfbench may have any form."""
    sections = []
    for section in profile.get("sections", []):
        if isinstance(section, dict):
            tables = [found for one in section.get("sheets") or [] if (found := _sheet(one)) is not None]
            notes = [printable(str(note)) for note in section.get("notes") or []]
            sections.append({"title": printable(str(section.get("title", ""))), "notes": notes, "tables": tables})
    side, why = str(profile.get("side", "")), [printable(str(line)) for line in profile.get("why", [])]
    return {
        "side": printable(side),
        "why": why,
        "folder": printable(str(profile.get("folder", ""))),
        "sections": sections,
    }


def _sheet(sheet: Any) -> JSON | None:
    try:
        columns = [(printable(str(one["name"])), printable(str(one["unit"]))) for one in sheet["columns"]]
        rows = [[_cell(value) for value in row][: len(columns)] for row in sheet["rows"][:_ROWS]]
        return {"title": printable(str(sheet["title"])), "columns": columns, "rows": rows}
    except (KeyError, TypeError):
        return None


def _cell(value: Any) -> str | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None if value is None else printable(str(value))[:200]
    return printable(value)[:200] if isinstance(value, str) else number(float(value))
