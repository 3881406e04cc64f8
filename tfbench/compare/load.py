"""Load result files of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfbench.compare import result_file
from tfbench.compare.result_file import ResultFile
from tfbench.errors import ReportError
from tfbench.fs import read_text
from tfbench.model import JSON
from tfbench.report import json_reader
from tfbench.untrusted import a_list, a_text, an_object, brief, described, times
from tfbench.versions.matrix_report import SCHEMA as VERSIONS


def read(path: Path) -> ResultFile:
    """Read a report, a baseline, or a file of plain pytest-benchmark.

    Raises:
        ReportError: The file cannot be read, or is not a result file.
    """
    content = _content(path)
    if "schema" in content:
        report = json_reader.report_of(content, str(path))
        if report.complete is not None and report.gap:  # earlier versions did not write which cases were due
            raise ReportError(f"{brief(path)} cannot be compared: {brief(report.gap)}")
        return result_file.of_report(str(path), report)
    return result_file.of_content(str(path), content)


def medians(path: Path) -> dict[str, Mapping[str, float]]:
    """Map the label of each side to its median seconds by case; a comparison of versions has several sides.

    Raises:
        ReportError: The file cannot be read, or is not a result file.
    """
    content = _content(path)
    if content.get("schema") != VERSIONS:
        return {path.name: {name: timing.median for name, timing in read(path).times.items()}}
    try:
        cases = [an_object(case, "a case") for case in a_list(content["cases"], "cases")]
        return {f"{label} in {path.name}": _of_side(cases, label) for label in an_object(content["sides"], "sides")}
    except (ValueError, KeyError) as error:
        raise ReportError(f"{brief(path)} is not of the schema {VERSIONS} ({described(error)})") from None


def _of_side(cases: Sequence[JSON], label: str) -> dict[str, float]:
    """Read the medians of a side from the cases of a comparison of versions; a case may have no time there."""
    found = {}
    for case in cases:
        entry = an_object(an_object(case["sides"], "sides")[label], label)
        if entry.get("median_seconds") is not None:
            (found[a_text(case["case"], "case")],) = times([entry["median_seconds"]], label)
    return found


def _content(path: Path) -> dict[str, Any]:
    content = json_reader.load(read_text(path), str(path))
    if not isinstance(content, dict):
        raise ReportError(f"{brief(path)} is not a result file: expected a JSON object, found {type(content).__name__}")
    return content
