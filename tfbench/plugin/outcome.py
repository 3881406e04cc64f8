"""Turn the result of a case into the outcome of its pytest test, and into a row of pytest-benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tfbench.model import PLAIN, TIME, Case, Verdict
from tfbench.ruling import grave
from tfbench.session.request import CaseResult


def end_test(result: CaseResult, strict: bool) -> None:
    """Fail, skip or pass a test by the verdicts on its case, see `tfbench.ruling`."""
    assert result.verdict is not None
    output = f"\n--- last output ---\n{result.output}" if result.output else ""
    if failures := result.failures:
        pytest.fail("\n".join([*map(_describe, failures), *result.why]) + output, pytrace=False)
    if bad := grave(result.rows, strict):
        text = "\n".join(map(_describe, bad)) + output
        if strict:
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


def _describe(verdict: Verdict) -> str:
    metric = "" if verdict.metric == TIME else f"{verdict.metric} "
    return f"{metric}{verdict.outcome}: {verdict.reason.message}"


def skip_reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return why pytest skipped something; ``""`` if it did not."""
    if not report.skipped:
        return ""
    if hasattr(report, "wasxfail"):
        return f"marked xfail without a run: {report.wasxfail}"
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ") or "no reason given"


def failure(report: pytest.TestReport) -> str:
    """Return the error that failed a test, in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return lines[0] if lines else "no reason given"


def benchmark_fixture(item: pytest.Function) -> Any:
    """Return pytest-benchmark's fixture of this item, ``None`` without one."""
    return item.funcargs.get("benchmark")


_TABLE_OPTIONS = ("columns", "sort", "group-by", "name", "histogram", "compare", "verbose", "cprofile")
"""Options of pytest-benchmark that are about its tables."""


def table_groups(config: pytest.Config, groups: Sequence[Any]) -> list[Any]:
    """Return the groups of pytest-benchmark's tables, which are wide and repeat the summary.

    Returns:
        All groups if the command line has an option of these tables, otherwise those of plain pytest-benchmark tests.
    """
    given = config.invocation_params.args
    if any(word.startswith(f"--benchmark-{name}") for word in given for name in _TABLE_OPTIONS):
        return list(groups)
    kept = [(name, [one for one in rows if "tfbench" not in one["extra_info"]]) for name, rows in groups]
    return [(name, rows) for name, rows in kept if rows]


def store_sample(item: pytest.Function, case: Case, result: CaseResult) -> None:
    """Hand the sample to pytest-benchmark, so that its table, storage and options work on the sample.

    This uses private parts of pytest-benchmark 5.3, so requirements.txt bounds its version.
    """
    sample, fixture = result.sample, benchmark_fixture(item)
    if fixture is None or fixture.disabled or sample is None or not sample.runs:
        return
    if (noted := sample.runs[-1].facts.get(PLAIN)) is not None:
        fixture.group = noted["group"]
        fixture.extra_info |= noted["extra_info"]
    else:
        fixture.group = fixture.group or case.group.rpartition("::")[2]
        fixture.params = {**(fixture.params or {}), **case.levels}
        fixture.params.pop("variant", None)
    verdict = result.verdict.as_json() if result.verdict else None
    fixture.extra_info["tfbench"] = {"verdict": verdict, "facts": sample.runs[0].facts}
    iterations = sample.runs[0].iterations
    stats = fixture._make_stats(iterations)
    for seconds in sample.seconds:
        stats.update(seconds * iterations)
