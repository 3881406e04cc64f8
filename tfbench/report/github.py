"""What GitHub's runner reads from a job's output: annotations on lines of the code."""

from __future__ import annotations

from tfbench.model import TIME, Outcome, Verdict

_LEVELS = {Outcome.REGRESSED: "error", Outcome.ERROR: "error", Outcome.MISSING: "error"}


def annotation(verdict: Verdict, line: int | None) -> str:
    """A workflow command that shows a verdict beside the benchmark.

    Args:
        line: Where the benchmark begins in its file, if that is known.
    """
    metric = "" if verdict.metric == TIME else f" {verdict.metric}"
    fields = {"title": f"{verdict.outcome}{metric}: {verdict.case.name.rpartition('::')[2]}"}
    if line is not None:
        fields = {"file": verdict.case.name.partition("::")[0], "line": str(line), **fields}
    level = _LEVELS.get(verdict.outcome, "warning")
    return f"::{level} {','.join(f'{key}={_field(value)}' for key, value in fields.items())}::{_text(verdict.reason.message)}"


def _text(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _field(value: str) -> str:
    return _text(value).replace(":", "%3A").replace(",", "%2C")
