"""Combine result files of any kind into a report: reports, shards, saved times, versions and calibrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tfbench.compare import result_file
from tfbench.compare.result_file import ResultFile
from tfbench.errors import ReportError
from tfbench.gate.merge import merge
from tfbench.model import (
    JSON,
    Case,
    Outcome,
    Rate,
    Reason,
    ReasonCode,
    Report,
    Run,
    Sample,
    StoredRounds,
    VariantResult,
    Verdict,
)
from tfbench.report import json_reader
from tfbench.report.html.report_page import PageContext, VersionTimes
from tfbench.untrusted import a_list, a_number, a_text, an_integer, an_object, brief, described, times
from tfbench.versions.matrix_report import SCHEMA as VERSIONS

CALIBRATION = "tfbench-calibration/1"
_NOT_RACED = "Median of each file relative to the first file. The runs did not race each other: a third of unchanged cases moves by more than 5% between sessions."


def read_inputs(paths: Sequence[Path]) -> tuple[Report, PageContext]:
    """Read the files of a report: one report or the shards of one run, or files with times; versions; a calibration.

    Raises:
        ReportError: A file cannot be read, is incomplete, or does not belong with the others.
    """
    reports: list[tuple[str, Report]] = []
    timed: list[ResultFile] = []
    versions: VersionTimes | None = None
    rate: Rate | None = None
    for path in paths:
        content, name = result_file.content_of(path), str(path)
        schema = content.get("schema")
        if schema == VERSIONS:
            versions = _versions(content, name)
        elif schema == CALIBRATION:
            rate = _rate(content, name)
        elif schema is not None:
            reports.append((name, _whole(json_reader.report_of(content, name), name)))
        else:
            timed.append(result_file.of_content(name, content))
    notes: list[str] = []
    if reports and timed:
        raise ReportError(
            f"{brief(reports[0][0])} is a report and {brief(timed[0].path)} has saved times: give one kind"
        )
    if len(reports) > 1:
        report = merge(reports)
    elif reports:
        report = reports[0][1]
    elif timed:
        report = of_times(timed[-1])
        notes.append(
            f"Times of {timed[-1].path} ({timed[-1].kind}{', ' + timed[-1].saved if timed[-1].saved else ''})."
        )
        if len(timed) > 1:
            versions = _side_by_side(timed)
    else:
        report = Report({"name": ""}, {})
    return report, PageContext(false_alarms=rate, versions=versions, notes=notes)


def _whole(report: Report, name: str) -> Report:
    if report.complete is not None and report.gap:  # earlier versions did not write which cases were due
        raise ReportError(f"{brief(name)} is incomplete: {brief(report.gap)}; measure again")
    return report


def of_times(file: ResultFile) -> Report:
    """Turn a file of saved times into a report that compares nothing."""
    cases = {
        name: Case(name, name.partition("[")[0].rpartition("::")[2], name.partition("[")[0]) for name in file.times
    }
    measured = Reason(ReasonCode.NO_BASELINE, f"measured: {file.kind}")
    samples = {
        name: Sample(cases[name], tuple(Run(launch, 1) for launch in timing.launches))
        for name, timing in file.times.items()
        if timing.launches
    }
    results = []
    for name, timing in file.times.items():
        size = (len(timing.launches), sum(map(len, timing.launches)))
        results.append(VariantResult(cases[name], name, timing.median, None, None, *size))
    return Report(
        policy={"name": file.kind},
        sides={"contender": {"spec": file.path, "machine": dict(file.machine), "packages": dict(file.environment)}},
        verdicts=tuple(
            Verdict(one.case, Outcome.NEW, measured, launches=one.launches, rounds=one.rounds) for one in results
        ),
        variant_results=tuple(results),
        rounds=tuple(StoredRounds.of_sample(sample, "contender") for sample in samples.values()),
    )


def _side_by_side(files: Sequence[ResultFile]) -> VersionTimes:
    first = files[0].times
    names = [name for name in first if any(name in one.times for one in files[1:])]
    if not names:
        raise ReportError(f"{brief(files[0].path)} and {brief(files[1].path)} have no case in common")

    def ratio(name: str, file: ResultFile) -> float | None:
        return file.times[name].median / first[name].median if name in file.times else None

    return VersionTimes(
        [Path(one.path).stem for one in files],
        {name: [ratio(name, one) for one in files] for name in names},
        _NOT_RACED,
    )


def _versions(content: JSON, name: str) -> VersionTimes:
    """Read the ratios of a comparison of versions."""
    try:
        labels = list(an_object(content["sides"], "sides"))
        reference = a_text(content["reference"], "reference")
        ratios = {}
        for row in a_list(content["cases"], "cases"):
            sides = an_object(an_object(row, "a case")["sides"], "sides")
            ratios[a_text(row["case"], "case")] = [_entry(sides.get(label), label == reference) for label in labels]
    except (ValueError, KeyError) as error:
        raise ReportError(f"{brief(name)} is not of the schema {VERSIONS} ({described(error)})") from None
    return VersionTimes(labels, ratios, f"Ratio of time to {reference}, raced in the same rounds.")


def _entry(entry: object, reference: bool) -> float | None:
    found = an_object(entry or {}, "a side")
    if found.get("median_seconds") is None:
        return None
    times([found["median_seconds"]], "median_seconds")
    ratio = an_object(found.get("ratio") or {}, "ratio")
    return a_number(ratio["center"], "center", 0) if ratio.get("center") is not None else 1.0 if reference else None


def _rate(content: Mapping[str, object], name: str) -> Rate:
    """Read the rate of false alarms of a calibration."""
    try:
        total = an_object(an_object(content["race"], "race")["total"], "total")
        found = an_object(total["false_alarms"], "false_alarms")
        low, high = (a_number(one, "interval", 0, 1) for one in a_list(found["interval"], "interval"))
        return Rate(an_integer(found["hits"], "hits", 0), an_integer(found["trials"], "trials", 0), low, high)
    except (ValueError, KeyError) as error:
        raise ReportError(f"{brief(name)} is not of the schema {CALIBRATION} ({described(error)})") from None
