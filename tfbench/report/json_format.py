"""The report as a file: reading, writing and its schema, which follow from `tfbench.model.Report`.

In the file, a row has the name of its case and the columns of it that readers need, and two values of both sides are an
object. Fields that are null or empty are left out.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from tfbench.errors import ReportError
from tfbench.model import JSON, Reason, Report, VariantResult, Verdict, formats
from tfbench.model.formats import FORMS, Record
from tfbench.untrusted import NO_CASE, brief, is_case, parse_json

SCHEMA = "tfbench-report/1"
LARGEST = 64 << 20
"""Maximum bytes. A report of ten thousand cases with their rounds has 25 million."""

_REPORT = Record(Report, tag=SCHEMA)


def content_of(part: Verdict | VariantResult | Reason) -> JSON:
    """Return the JSON content of a part of a report."""
    content: JSON = formats.plain(FORMS[type(part)].to_file(part))
    return content


# Write the report file


def render(report: Report) -> str:
    """Render a report as JSON text."""
    return "".join(lines(report))


def lines(report: Report) -> Iterator[str]:
    """Yield the JSON text of a report, a row per line, so that a large one is never in memory as a whole."""

    def content(name: str) -> Any:
        item = _REPORT.forms[name].item
        return map(item.to_file, getattr(report, name)) if item else _REPORT.field(report, name)

    return _lines(content)


def _lines(content: Callable[[str], Any]) -> Iterator[str]:
    yield f'{{"schema":"{SCHEMA}"'
    for name, form in _REPORT.forms.items():
        value = content(name)
        if form.item is None:
            if name not in _REPORT.optional or value:
                yield f',\n"{name}":{formats.line(value)}'
            continue
        yield f',\n"{name}":['  # a list is written even if it is empty: scripts read report["verdicts"]
        before = "\n"
        for row in value:
            yield before + formats.line(row)
            before = ",\n"
        yield "]"
    yield "}\n"


# Read a report file from an untrusted source, and refuse a file that violates the schema


def read(text: str, name: str) -> Report:
    """Read a report from its JSON text. ``name`` is its name in errors.

    Raises `ReportError` if the text is not ``tfbench-report/1``. The message names the place.
    """
    _check_size(text, name)
    with formats.uncollected():
        own = formats.own(_REPORT.struct, text, lambda file: "".join(_lines(functools.partial(getattr, file))))
        return report_of(load(text, name), name) if own is None else _checked(own, name)


def _check_size(text: str, name: str) -> None:
    if len(text) > LARGEST:
        raise ReportError(f"{brief(name)} is larger than {LARGEST >> 20} MiB, the limit for a report")


def load(text: str, name: str, *, constants: bool = False) -> Any:
    """Parse JSON text strictly, see `parse_json`. Raises `ReportError` if the text is too large or not JSON."""
    _check_size(text, name)
    try:
        return parse_json(text, constants=constants)
    except ValueError as error:
        why = brief(error) if text.strip() else "it is empty; write it again"
        raise ReportError(f"{brief(name)} is not JSON: {why}") from None


def report_of(content: Any, name: str) -> Report:
    """Build a report from the parsed content of its file. Raises `ReportError` if the content violates the schema."""
    if isinstance(content, dict) and "schema" not in content and content.keys() & {"tfbench", "machine_info"}:
        kind = "a baseline" if "tfbench" in content else "a file of pytest-benchmark"
        raise ReportError(
            f"{brief(name)} is {kind}, not a report: write one with pytest --benchmark --report-json PATH"
        )
    try:
        formats.check_schema(content, SCHEMA)
        file = formats.convert(_REPORT.struct, formats.visible(content))
    except ValueError as error:
        raise ReportError(f"{brief(name)} is not a report of the schema {SCHEMA}: {error}") from None
    return _checked(file, name)


def _checked(file: Any, name: str) -> Report:
    """Build a report whose rows do not contradict each other, and have the rounds that they are about."""
    try:
        report: Report = _REPORT.of_file(file)
        _unique([f"verdicts on the {row.metric} of {row.case.name}" for row in report.verdicts])
        _unique(report.due)
        if not isinstance(report.policy.get("name"), str):
            raise ValueError("at policy, the name is missing")
        _unique(report.shard["cases"] if report.shard else ())
        raced = {(row.case, row.side) for row in report.rounds}
        for row in report.verdicts if raced else ():  # the report of a large fleet has no rounds
            sides = ("baseline", "contender") if row.calls else ("contender",)
            if row.compares_times and not all((row.case.name, side) in raced for side in sides):
                raise ValueError(f"{brief(row.case.name)} has a verdict on time without its rounds")
    except ValueError as error:
        raise ReportError(f"{brief(name)} is not a report of the schema {SCHEMA}: {error}") from None
    for number, rounds in enumerate(report.rounds):
        try:
            rounds.check()
        except ValueError as error:
            raise ReportError(f"{brief(name)} has damaged rounds at rounds[{number}]: {brief(error)}") from None
    return report


def _unique(values: Sequence[Hashable]) -> None:
    if len(set(values)) != len(values):
        (value, _), *_ = Counter(values).most_common(1)
        raise ValueError(f"{brief(value)} is there twice")


def check_names(report: Report, name: str) -> None:
    """Refuse a report with a case name that pytest cannot give to a benchmark below its root; raises `ReportError`."""
    cases = [row.case.name for rows in (report.verdicts, report.variant_results, report.skips) for row in rows]
    for case in (*report.due, *report.seconds_by_case, *cases, *(profile["case"] for profile in report.profiles)):
        if not is_case(case):
            raise ReportError(f"{brief(name)} has a case named {brief(repr(case))}, {NO_CASE}")


def schema() -> JSON:
    """Return the JSON Schema of reports."""
    return formats.json_schema(SCHEMA, "What --report-json writes.", _REPORT.struct)
