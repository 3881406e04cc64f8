"""Represent any result file alike: a report, a baseline, or a file of plain pytest-benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tfbench.compare.timing import Timing
from tfbench.errors import ReportError
from tfbench.model import JSON, Report
from tfbench.storage import baselines
from tfbench.untrusted import a_list, a_text, an_integer, an_object, brief, described, times

RAW, STATISTICS = "with raw times", "statistics only"


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


def of_report(path: str, report: Report) -> ResultFile:
    """Convert a report, which has medians and no raw times."""
    side = report.sides.get("contender", {})
    found = {one.case.name: Timing(one.case.name, one.median_seconds, one.rounds) for one in report.variant_results}
    return ResultFile(
        path, f"tfbench report, {STATISTICS}", "", found, _machine(side.get("machine", {}), side.get("python", "")),
        {**side.get("packages", {}), **side.get("settings", {})}, report,
    )  # fmt: skip


def of_content(path: str, content: Any) -> ResultFile:
    """Convert a baseline, or a file of pytest-benchmark.

    Raises:
        ReportError: The content is neither.
    """
    try:
        if isinstance(an_object(content, "the content").get("tfbench"), dict):
            return _of_baseline(path, baselines.parse(Path(path).stem, content))
        return _of_plain(path, content)
    except (ValueError, KeyError) as error:
        raise ReportError(
            f"{brief(path)} is neither a report nor a baseline of tfbench nor a file of pytest-benchmark "
            f"({described(error)})"
        ) from None


def _of_baseline(path: str, saved: baselines.Baseline) -> ResultFile:
    environment = saved.environment
    found = {
        name: Timing(name, median(sample.seconds), len(sample.seconds), tuple(run.seconds for run in sample.runs))
        for name, sample in saved.samples.items()
    }
    machine = _machine(environment.machine, environment.python) | {"threads": str(environment.threads)}
    packages_and_settings = {**environment.packages, **environment.settings}
    return ResultFile(path, f"tfbench baseline, {RAW}", saved.saved, found, machine, packages_and_settings)


def _of_plain(path: str, content: JSON) -> ResultFile:
    found = {}
    for row in a_list(content["benchmarks"], "benchmarks"):
        name, stats = a_text(an_object(row, "a benchmark")["fullname"], "fullname"), an_object(row["stats"], "stats")
        raw = a_list(stats.get("data") or [], "data")
        try:
            middle, *seconds = times([stats["median"], *raw], name)
        except ValueError:
            raise ValueError(f"{brief(name)} has a time that is not a positive number") from None
        rounds = an_integer(stats["rounds"], "rounds", 0)
        found[name] = Timing(name, middle, rounds, (tuple(seconds),) if seconds else ())
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


def _machine(found: Mapping[str, Any], python: str) -> dict[str, str]:
    named = {name: brief(found.get(name) or "") for name in ("system", "architecture", "processor", "processors")}
    return {name: value for name, value in {**named, "Python": brief(python)}.items() if value}


def differences(first: ResultFile, second: ResultFile) -> list[str]:
    """List the differences of machine and environment between two files, one phrase each."""
    found = _unlike(first.machine, second.machine, {*first.machine} & {*second.machine})
    if first.environment and second.environment:
        # A package or setting that one side lacks is a difference. A fact of the machine that one file lacks is not.
        found += _unlike(first.environment, second.environment, {*first.environment, *second.environment})
    return found


def _unlike(there: Mapping[str, str], here: Mapping[str, str], names: Iterable[str]) -> list[str]:
    return [
        f"{name} {there.get(name, 'absent')} in the first, {here.get(name, 'absent')} in the second"
        for name in sorted(names)
        if there.get(name) != here.get(name)
    ]
