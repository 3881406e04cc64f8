"""Since when a case is slower: as text for the terminal, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.model import JSON
from tfbench.report.style import COLOURS, table
from tfbench.report.units import duration, times
from tfbench.versions.search import BisectResult, BisectStep, Point

SCHEMA = "tfbench-bisect/1"


def answer(result: BisectResult, points: Sequence[Point]) -> str:
    """What was found, in a sentence."""
    good, bad = points[0].label, points[-1].label
    if result.failure:
        return result.failure
    last = result.last
    assert last is not None
    if last.bad is None:
        return f"inconclusive whether {bad} is slower than {good}: {last.reason}"
    if last.bad is False:
        faster = "; give them the other way round to find since when" if last.ratio and last.ratio.high < 1 else ""
        return f"{bad} is not slower than {good}: {last.reason}{faster}"
    suspects = result.search.suspects
    before = points[result.search.good].label
    if result.first_bad is None:
        named = ", ".join(points[point].label for point in suspects)
        return f"slower since one of {named}, which could not be told apart; {before} is not slower"
    step = result.step_of(result.first_bad)
    assert step is not None
    return f"slower since {points[result.first_bad].label}: {step.reason}; {before} is not slower"


def hints(result: BisectResult, points: Sequence[Point], skipped: bool) -> list[str]:
    """What to ask next.

    Args:
        skipped: Whether releases between the points were left out.
    """
    if result.first_bad is None:
        return []
    found, last = result.step_of(result.first_bad), result.last
    before, first, end = points[result.search.good], points[result.first_bad], points[-1]
    lines = []
    if skipped:
        lines.append(f"releases between the two: tfbench bisect --good {before.spec} --bad {first.spec}")
    if found and last and found.ratio and last.ratio and found is not last and found.ratio.high < last.ratio.low:
        lines.append(
            f"{end.label} is slower still, {times(last.ratio)}: tfbench bisect --good {first.spec} --bad {end.spec}"
        )
    return lines


def terminal(result: BisectResult, points: Sequence[Point], skipped: bool) -> RenderableType:
    """The answer with its evidence.

    Args:
        skipped: As for `hints`.
    """
    made = table(result.case.name.rpartition("::")[2])
    made.add_column("race", justify="right")
    made.add_column("version" if not points[0].spec.startswith("git:") else "commit", no_wrap=True)
    made.add_column("verdict", no_wrap=True)
    made.add_column(f"ratio to {points[0].label}", justify="right", no_wrap=True)
    for heading in ("launches", "time"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("", overflow="fold")
    for number, step in sorted(enumerate(result.steps, 1), key=lambda one: one[1].point):
        made.add_row(str(number), points[step.point].label, *_cells(step), Text(points[step.point].about, "dim"))
    return Group(made, Text(answer(result, points), "bold"), *map(Text, hints(result, points, skipped)))


def _cells(step: BisectStep) -> tuple[Text, ...]:
    if step.outcome is None:
        return Text("cannot be run", "red"), Text(step.reason), Text(""), Text("")
    again = " (asked twice)" if step.again else ""
    return (
        Text(f"{step.outcome}{again}", COLOURS[step.outcome]),
        Text(times(step.ratio) if step.ratio else ""),
        Text(str(step.launches)),
        Text(duration(step.seconds)),
    )


def as_json(
    results: Sequence[BisectResult],
    points: Sequence[Point],
    changes: Mapping[str, Sequence[Sequence[str]]],
    asked: JSON,
) -> str:
    """Everything, for programs.

    Args:
        changes: Rows of what changed in a case's graph, by its name.
        asked: Policy, metric and the like.
    """
    content = {
        "schema": SCHEMA,
        **asked,
        "points": [{"label": one.label, "spec": one.spec, "about": one.about} for one in points],
        "cases": [_case(result, points, changes.get(result.case.name, ())) for result in results],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _case(result: BisectResult, points: Sequence[Point], changes: Sequence[Sequence[str]]) -> JSON:
    slower = result.is_slower and not result.failure
    return {
        "case": result.case.name,
        "answered": result.is_answered,
        "answer": answer(result, points),
        "last_good": points[result.search.good].label if slower else None,
        "first_bad": points[result.first_bad].label if result.first_bad is not None else None,
        "suspects": [points[point].label for point in result.search.suspects] if slower else [],
        "steps": [
            {
                "point": points[step.point].label,
                "outcome": step.outcome and str(step.outcome),
                "reason": step.reason,
                "ratio": step.ratio and step.ratio.as_json(),
                "launches": step.launches,
                "wall_seconds": round(step.seconds, 3),
                "again": step.again,
            }
            for step in result.steps
        ],
        "changes": [list(row) for row in changes],
    }
