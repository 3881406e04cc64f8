"""Annotations on lines of the code, which GitHub's runner reads from the output of a job."""

from __future__ import annotations

from tfbench.model import TIME, Outcome, Verdict
from tfbench.untrusted import printable

_LEVELS = {Outcome.REGRESSED: "error", Outcome.ERROR: "error", Outcome.MISSING: "error"}


def annotation(verdict: Verdict, line: int | None) -> str:
    """Build a workflow command that shows a verdict at the benchmark.

    Args:
        line: First line of the benchmark in its file, if known.
    """
    metric = "" if verdict.metric == TIME else f" {verdict.metric}"
    fields = {"title": f"{verdict.outcome}{metric}: {verdict.case.name.rpartition('::')[2]}"}
    if line is not None:
        fields = {"file": verdict.case.name.partition("::")[0], "line": str(line), **fields}
    level = _LEVELS.get(verdict.outcome, "warning")
    properties = ",".join(f"{key}={_field(value)}" for key, value in fields.items())
    return f"::{level} {properties}::{_text(verdict.reason.message)}"


def _text(value: str) -> str:
    return printable(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _field(value: str) -> str:
    return _text(value).replace(":", "%3A").replace(",", "%2C")
