"""Read any result file into one form: a report, a baseline, a file of plain pytest-benchmark or of asv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tfbench.compare import asv
from tfbench.compare.timing import Timing
from tfbench.errors import ReportError
from tfbench.fs import read_text
from tfbench.model import JSON, Report
from tfbench.report import json_reader
from tfbench.storage import baselines
from tfbench.untrusted import a_list, a_text, an_object, brief, described, times
from tfbench.versions.matrix_report import SCHEMA as VERSIONS

RAW, STATISTICS, RATIOS = "with raw times", "statistics only", "verdicts only"


@dataclass(frozen=True)
class ResultFile:
    """The times of a file, and the machine and environment they were measured in."""

    path: str
    kind: str
    saved: str
    times: Mapping[str, Timing]
    machine: Mapping[str, str]
    """Facts of the machine, under names that all kinds of files share."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Packages and settings, if the file has them."""
    report: Report | None = None
    """The report itself, if the file is one."""

    @property
    def cases(self) -> set[str]:
        """Names of all cases, with times or without."""
        return {*self.times, *(one.case.name for one in (self.report.verdicts if self.report else ()))}


def read(path: Path) -> ResultFile:
    """Read any result file. Raises `ReportError` if the file cannot be read, or is not a result file."""
    content = content_of(path)
    if "schema" in content:
        report = json_reader.report_of(content, str(path))
        if report.complete is not None and report.gap:  # earlier versions did not write which cases were due
            raise ReportError(f"{brief(path)} cannot be compared: {brief(report.gap)}")
        return of_report(str(path), report)
    return of_content(str(path), content)


def medians(path: Path) -> dict[str, Mapping[str, float]]:
    """Map the label of each side to its median seconds by case; a comparison of versions has several sides.

    Raises `ReportError` as `read` does.
    """
    content = content_of(path)
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


def content_of(path: Path) -> dict[str, Any]:
    """Parse a result file. Raises `ReportError` if it cannot be read, or is not a JSON object."""
    text = read_text(path)
    content = json_reader.load(text, str(path), constants=asv.is_result(text))
    if not isinstance(content, dict):
        raise ReportError(f"{brief(path)} is not a result file: expected a JSON object, found {type(content).__name__}")
    return content


def of_report(path: str, report: Report) -> ResultFile:
    """Convert a report, which has medians and no raw times."""
    side = report.sides.get("contender", {})
    found = {one.case.name: Timing(one.median_seconds) for one in report.variant_results}
    return ResultFile(
        path, f"tfbench report, {STATISTICS if found else RATIOS}", "", found,
        _machine(side.get("machine", {}), side.get("python", "")),
        {**side.get("packages", {}), **side.get("settings", {})}, report,
    )  # fmt: skip


def of_content(path: str, content: Any) -> ResultFile:
    """Convert a baseline, or a file of pytest-benchmark. Raises `ReportError` if the content is neither."""
    try:
        if isinstance(an_object(content, "the content").get("tfbench"), dict):
            return _of_baseline(path, baselines.parse(Path(path).stem, content))
        if asv.COLUMNS in content:
            return _of_asv(path, content)
        return _of_plain(path, content)
    except (ValueError, KeyError) as error:
        text = f"{brief(path)} is neither a report nor a baseline of tfbench nor a file of pytest-benchmark or asv"
        raise ReportError(f"{text} ({described(error)})") from None


def _of_baseline(path: str, saved: baselines.Baseline) -> ResultFile:
    measured = {}
    for name, sample in saved.samples.items():
        measured[name] = Timing(median(sample.seconds), tuple(run.seconds for run in sample.runs))
    found = saved.environment
    machine = _machine(found.machine, found.python) | {"threads": str(found.threads)}
    settings = {**found.packages, **found.settings}
    return ResultFile(path, f"tfbench baseline, {RAW}", saved.saved, measured, machine, settings)


def _of_plain(path: str, content: JSON) -> ResultFile:
    found = {}
    for row in a_list(content["benchmarks"], "benchmarks"):
        name, stats = a_text(an_object(row, "a benchmark")["fullname"], "fullname"), an_object(row["stats"], "stats")
        raw = a_list(stats.get("data") or [], "data")
        try:
            middle, *seconds = times([stats["median"], *raw], name)
        except ValueError:
            raise ValueError(f"{brief(name)} has a time that is not a positive number") from None
        found[name] = Timing(middle, (tuple(seconds),) if seconds else ())
    if not found:
        raise ValueError("it has no benchmarks")
    info = an_object(content["machine_info"], "machine_info")
    cpu = an_object(info.get("cpu") or {}, "cpu")
    machine = {
        "system": info.get("system", ""),
        "architecture": info.get("machine", ""),
        "processor": cpu.get("brand_raw") or cpu.get("brand") or info.get("processor", ""),
        "processors": cpu.get("count", ""),
    }
    kind = f"pytest-benchmark, {RAW if any(one.launches for one in found.values()) else STATISTICS}"
    saved = a_text(content.get("datetime", ""), "datetime")
    return ResultFile(path, kind, saved, found, _machine(machine, info.get("python_version", "")))


def _of_asv(path: str, content: JSON) -> ResultFile:
    found, params = asv.timings(content), an_object(content.get("params") or {}, "params")
    if not found:
        raise ValueError("it has no times; tfbench reads the benchmarks whose names start with time_")
    machine = {
        "system": params.get("os", ""), "architecture": params.get("arch", ""), "processor": params.get("cpu", ""),
        "processors": params.get("num_cpu", ""),
    }  # fmt: skip
    kind = f"asv, {RAW if any(one.launches for one in found.values()) else STATISTICS}"
    packages = {str(name): str(version) for name, version in an_object(content.get("requirements") or {}, "").items()}
    # asv gives the path of an interpreter or a version, and only a version can be compared.
    python = str(content.get("python") or "")
    return ResultFile(
        path, kind, asv.commit(content), found, _machine(machine, "" if "/" in python else python), packages
    )


def _machine(found: Mapping[str, Any], python: str) -> dict[str, str]:
    named = {name: brief(found.get(name) or "") for name in ("system", "architecture", "processor", "processors")}
    return {name: value for name, value in {**named, "Python": brief(python)}.items() if value}


def differences(first: ResultFile, second: ResultFile) -> list[str]:
    """List the differences of machine and environment between two files, one phrase each."""
    # A package or setting that one side lacks is a difference. A fact of the machine that one file lacks is not.
    compared = [(first.machine, second.machine, {*first.machine} & {*second.machine})]
    if first.environment and second.environment:
        compared += [(first.environment, second.environment, {*first.environment, *second.environment})]
    return [
        f"{name} {there.get(name, 'absent')} in the first, {here.get(name, 'absent')} in the second"
        for there, here, names in compared
        for name in sorted(names)
        if there.get(name) != here.get(name)
    ]
