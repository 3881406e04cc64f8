"""Write the report file, ``tfbench-report/1``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tfbench.model import Report


def render(report: Report) -> str:
    """Render a report as JSON text."""
    content = {
        "schema": "tfbench-report/1",
        "policy": report.policy,
        "sides": dict(report.sides),
        "verdicts": [verdict.as_json() for verdict in report.verdicts],
        "standings": [variant_result.as_json() for variant_result in report.variant_results],
        "skipped": [{"case": skip.case.name, "reason": skip.reason} for skip in report.skips],
        "wall_seconds": round(report.wall_seconds, 3),
        **({"seconds_by_phase": _rounded(report.seconds_by_phase)} if report.seconds_by_phase else {}),
        **({"seconds_by_case": _rounded(report.seconds_by_case)} if report.seconds_by_case else {}),
        "seed": report.seed,
        "interrupted": report.interrupted,
        "due": list(report.due),
        **({"shard": report.shard} if report.shard else {}),
        **({"suite": report.suite.as_json()} if report.suite else {}),
        **({"profiles": list(report.profiles)} if report.profiles else {}),
        **({"rounds": [one.as_json() for one in report.rounds]} if report.rounds else {}),
        **({} if report.complete is None else {"complete": report.complete}),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}
