"""Report where cases became slower: text for the terminal, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.model import JSON, Outcome
from tfbench.report.style import COLOURS, add_columns, add_row, table
from tfbench.report.units import duration, times
from tfbench.untrusted import command
from tfbench.versions.search import BisectResult, BisectStep, Point

SCHEMA = "tfbench-bisect/1"


def answer(result: BisectResult, points: Sequence[Point]) -> str:
    """Return the result as one sentence."""
    good, bad = points[0].label, points[-1].label
    if result.failure:
        return result.failure
    end = result.steps[0]
    if end.bad is None:
        return f"inconclusive whether {bad} is {result.word} than {good}: {end.reason}"
    if end.bad is False:
        better = "; swap --good and --bad to find where it became better" if end.outcome is Outcome.IMPROVED else ""
        return f"{bad} is not {result.word} than {good}: {end.reason}{better}"
    before = points[result.search.good].label
    if (found := result.found) is None:
        named = ", ".join(points[point].label for point in result.search.suspects)
        return f"{result.word} since one of {named}, which could not be told apart; {before} is not {result.word}"
    return f"{result.word} since {points[found.point].label}: {found.reason}; {before} is not {result.word}"


def hints(result: BisectResult, points: Sequence[Point], skipped: bool) -> list[str]:
    """Return the commands that narrow or extend the result. The search may have skipped releases between points."""
    if (found := result.found) is None:
        return []
    end, before, first, last = result.steps[0], points[result.search.good], points[found.point], points[-1]
    lines = []
    if skipped:
        narrower = command("tfbench", "bisect", "--good", before.spec, "--bad", first.spec)
        lines.append(f"releases between the two: {narrower}")
    if found.ratio and end.ratio and found.ratio.high < end.ratio.low:
        later = command("tfbench", "bisect", "--good", first.spec, "--bad", last.spec)
        lines.append(f"{last.label} is slower still, {times(end.ratio)}: {later}")
    return lines


def terminal(result: BisectResult, points: Sequence[Point], skipped: bool) -> RenderableType:
    """Return the answer with a table of its races and the `hints`."""
    made = table(result.case.short_name)
    made.add_column("race", justify="right")
    add_columns(made, "commit" if points[0].spec.startswith("git:") else "version", "verdict")
    add_columns(made, f"ratio to {points[0].label}", "launches", "time", right=True)
    add_columns(made, "", fold=True)
    for number, step in sorted(enumerate(result.steps, 1), key=lambda one: one[1].point):
        point = points[step.point]
        add_row(made, str(number), point.label, *_cells(step), Text(point.about, "dim"))
    return Group(made, Text(answer(result, points), "bold"), *map(Text, hints(result, points, skipped)))


def _cells(step: BisectStep) -> tuple[str | Text, ...]:
    if step.outcome is None:
        return Text("cannot be run", "red"), step.reason, "", ""
    outcome = Text(f"{step.outcome}{' (raced twice)' * step.again}", COLOURS[step.outcome])
    return outcome, times(step.ratio) if step.ratio else "", str(step.launches), duration(step.seconds)


def as_json(
    results: Sequence[BisectResult],
    points: Sequence[Point],
    changes: Mapping[str, Sequence[Sequence[str]]],
    causes: Mapping[str, Sequence[str]],
    asked: JSON,
) -> str:
    """Return the whole result as JSON: changes in graphs and causes by the case's name, and the settings that were asked for."""
    content = {
        "schema": SCHEMA,
        **asked,
        "points": [point._asdict() for point in points],
        "cases": [
            _case(result, points, changes.get(result.case.name, ()), causes.get(result.case.name, ()))
            for result in results
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _case(
    result: BisectResult, points: Sequence[Point], changes: Sequence[Sequence[str]], causes: Sequence[str]
) -> JSON:
    slower, search = result.is_slower and not result.failure, result.search
    return {
        "case": result.case.name,
        "answered": result.is_answered,
        "answer": answer(result, points),
        "last_good": points[search.good].label if slower else None,
        "first_bad": points[result.found.point].label if result.found else None,
        "suspects": [points[point].label for point in search.suspects] if slower else [],
        "steps": [
            {
                "point": points[step.point].label,
                "outcome": step.outcome,
                "reason": step.reason,
                "ratio": step.ratio and step.ratio.as_json(),
                "launches": step.launches,
                "wall_seconds": round(step.seconds, 3),
                "again": step.again,
            }
            for step in result.steps
        ],
        "changes": [list(row) for row in changes],
        "causes": list(causes),
    }
