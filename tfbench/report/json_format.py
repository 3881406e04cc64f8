"""The report as a file: reading, writing and its schema, which follow from `tfbench.model.Report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from tfbench.errors import ReportError
from tfbench.model import Report, formats
from tfbench.untrusted import NO_CASE, brief, is_case

SCHEMA = "tfbench-report/1"
LARGEST = 64 << 20
"""Maximum bytes. A report of ten thousand cases with their rounds has 25 million."""


# Write the report file


def render(report: Report) -> str:
    """Render a report as JSON text."""
    return "".join(lines(report))


def lines(report: Report) -> Iterator[str]:
    """Yield the JSON text of a report, a row per line, so that a large one is never in memory as a whole."""
    yield f'{{"schema":"{SCHEMA}"'
    for name in (field.name for field in fields(Report) if field.name != "schema"):
        value = getattr(report, name)
        if isinstance(value, tuple):  # it is written even if it is empty: scripts read report["verdicts"]
            yield f',\n"{name}":['
            before = "\n"
            for row in value:
                yield before + formats.line(row)
                before = ",\n"
            yield "]"
        elif value is not None:
            yield f',\n"{name}":{formats.line(value)}'
    yield "}\n"


# Read a report file from an untrusted source, and refuse a file that violates the schema


def read(text: str, name: str) -> Report:
    """Read a report from its JSON text. ``name`` is its name in errors.

    Raises `ReportError` if the text is not ``tfbench-report/1``. The message names the place.
    """
    with formats.uncollected():
        return report_of(load(text, name), name)


def load(text: str, name: str, *, constants: bool = False) -> Any:
    """Parse JSON text strictly, see `formats.parsed`. Raises `ReportError` if the text is too large or not JSON."""
    if len(text) > LARGEST:
        raise ReportError(f"{brief(name)} is larger than {LARGEST >> 20} MiB, the limit for a report")
    try:
        return formats.parsed(text, constants=constants)
    except ValueError as error:
        raise ReportError(f"{brief(name)} is not JSON: {brief(error)}") from None


def report_of(content: Any, name: str) -> Report:
    """Build a report from the parsed content of its file. Raises `ReportError` if the content violates the schema."""
    try:
        formats.check_schema(content, SCHEMA)
        if lacks := [name for name in ("interrupted", "complete") if name not in content]:
            raise ValueError(f"at the top, the field {lacks[0]!r} is missing")
        report = formats.convert(Report, content)
        _unique([f"verdicts on the {row.metric} of {row.name}" for row in report.verdicts])
        _unique(report.due)
        if not isinstance(report.policy.get("name"), str):
            raise ValueError("at policy, the name is missing")
        _unique(report.shard["cases"] if report.shard else ())
        raced = {(row.case, row.side) for row in report.rounds}
        for row in report.verdicts if raced else ():  # the report of a large fleet has no rounds
            sides = ("baseline", "contender") if row.calls else ("contender",)
            if row.compares_times and not all((row.name, side) in raced for side in sides):
                raise ValueError(f"{brief(row.name)} has a verdict on time without its rounds")
    except ValueError as error:
        fix = "write one with pytest --benchmark --report-json PATH"
        raise ReportError(f"{brief(name)} is not a report of the schema {SCHEMA}: {error}; {fix}") from None
    return report


def _unique(values: Sequence[Hashable]) -> None:
    if len(set(values)) != len(values):
        (value, _), *_ = Counter(values).most_common(1)
        raise ValueError(f"{brief(value)} is there twice")


def check_names(report: Report, name: str) -> None:
    """Refuse a report with a case name that pytest cannot give to a benchmark below its root; raises `ReportError`."""
    cases = [row.name for rows in (report.verdicts, report.variant_results, report.skips) for row in rows]
    for case in (*report.due, *report.seconds_by_case, *cases, *(profile["case"] for profile in report.profiles)):
        if not is_case(case):
            raise ReportError(f"{brief(name)} has a case named {brief(repr(case))}, {NO_CASE}")
