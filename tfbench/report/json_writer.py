"""Write the report file, ``tfbench-report/1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfbench.model import JSON, Report
from tfbench.untrusted import render_json


def render(report: Report) -> str:
    """Render a report as JSON text."""
    content = {key: list(value) if isinstance(value, Iterator) else value for key, value in _content(report).items()}
    return render_json(content, 1) + "\n"


def lines(report: Report) -> Iterator[str]:
    """Yield the JSON text of a large report, a row per line, so that it is never in memory as a whole."""
    for number, (key, value) in enumerate(_content(report).items()):
        yield f"{',' if number else '{'}{render_json(key)}: "
        if not isinstance(value, Iterator):
            yield render_json(value) + "\n"
            continue
        before = "[\n"
        for row in value:
            yield before + render_json(row)
            before = ",\n"
        yield "]\n" if before == ",\n" else "[]\n"
    yield "}\n"


def _content(report: Report) -> JSON:
    """Return the keys of a report and their values. Long lists are iterators."""
    return {
        "schema": "tfbench-report/1",
        "policy": report.policy,
        "sides": dict(report.sides),
        "verdicts": (verdict.as_json() for verdict in report.verdicts),
        "standings": (variant_result.as_json() for variant_result in report.variant_results),
        "skipped": ({"case": skip.case.name, "reason": skip.reason} for skip in report.skips),
        "wall_seconds": round(report.wall_seconds, 3),
        **({"seconds_by_phase": _rounded(report.seconds_by_phase)} if report.seconds_by_phase else {}),
        **({"seconds_by_case": _rounded(report.seconds_by_case)} if report.seconds_by_case else {}),
        "seed": report.seed,
        "interrupted": report.interrupted,
        "due": iter(report.due),
        **({"shard": report.shard} if report.shard else {}),
        **({"suite": report.suite.as_json()} if report.suite else {}),
        **({"profiles": list(report.profiles)} if report.profiles else {}),
        **({"rounds": (one.as_json() for one in report.rounds)} if report.rounds else {}),
        **({"machines": list(report.machines)} if report.machines else {}),
        **({} if report.complete is None else {"complete": report.complete}),
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
