"""Compare two files of results: reports of tfbench, pytest-benchmark and asv.

The runs took place at different times, perhaps in different states of the machine, and cannot be raced.
An interval from their times covers the scatter within the two runs. It does not cover the difference
between two runs of the same code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from tfbench.errors import ReportError
from tfbench.fs import read_text
from tfbench.model import (
    JSON,
    TIME,
    Case,
    Note,
    Outcome,
    Ratio,
    Reason,
    ReasonCode,
    Report,
    Run,
    Sample,
    StoredRounds,
    VariantResult,
    Verdict,
    because,
)
from tfbench.model.formats import plain
from tfbench.model.words import duration
from tfbench.model.words import times as formatted
from tfbench.report import json_format
from tfbench.report.merge import merge
from tfbench.report.report_page import PageContext
from tfbench.report.screen import COLOURS, add_columns, add_row, break_name, table
from tfbench.report.summary import VersionTimes
from tfbench.sides.environments import minor
from tfbench.stats.interval import Floats
from tfbench.storage import baselines
from tfbench.untrusted import a_list, a_text, an_object, brief, described, some, times

# The times of a case in a result file


class Timing(NamedTuple):
    """The times of a case in a result file, in seconds per iteration."""

    median: float
    launches: tuple[tuple[float, ...], ...] = ()
    """The rounds of each process; empty if the file has no raw times."""


# Read any result file into one form: a report, a baseline, a file of plain pytest-benchmark or of asv


PYTHON = "Python"
"""Name of the version of Python among the facts of a machine."""
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
    left_out: Sequence[str] = ()
    """Results that are not read, with the reason, one phrase each."""
    packages: Collection[str] = ()
    """Names of all packages, if the file has all. A report has the main ones."""

    @property
    def cases(self) -> set[str]:
        """Names of all cases, with times or without."""
        return {*self.times, *(result.case.name for result in (self.report.verdicts if self.report else ()))}


def read(path: Path) -> ResultFile:
    """Read any result file. Raises `ReportError` if the file cannot be read, or is not a result file."""
    content = content_of(path)
    if "schema" in content:
        report = json_format.report_of(content, str(path))
        if report.gap:
            raise ReportError(f"{brief(path)} cannot be compared: {brief(report.gap)}")
        return of_report(str(path), report)
    return of_content(str(path), content)


def content_of(path: Path) -> dict[str, Any]:
    """Parse a result file. Raises `ReportError` if it cannot be read, or is not a JSON object."""
    text = read_text(path)
    # asv writes ``Infinity`` where JSON has no number.
    content = json_format.load(text, str(path), constants=f'"{COLUMNS}"' in text)
    if not isinstance(content, dict):
        raise ReportError(f"{brief(path)} is not a result file: expected a JSON object, found {type(content).__name__}")
    return content


def of_report(path: str, report: Report) -> ResultFile:
    """Convert a report, which has medians and no raw times."""
    side = report.sides.get("contender", {})
    times_by_name = {result.case.name: Timing(result.median_seconds) for result in report.variant_results}
    return ResultFile(
        path, f"tfbench report, {STATISTICS if times_by_name else RATIOS}", "", times_by_name,
        _machine(side.get("machine", {}), side.get("python", "")),
        {**side.get("packages", {}), **side.get("settings", {})}, report,
    )  # fmt: skip


def of_content(path: str, content: Any) -> ResultFile:
    """Convert a baseline, or a file of pytest-benchmark. Raises `ReportError` if the content is neither."""
    try:
        if isinstance(an_object(content, "the content").get("tfbench"), dict):
            return _of_baseline(path, baselines.parse(Path(path).stem, content))
        if COLUMNS in content:
            return _of_asv(path, content)
        if _is_machine(content):
            raise ReportError(f"{brief(path)} describes a machine of asv and has no results; give the files beside it")
        if "commit_hash" in content and "results" in content:
            text = "was written by asv before 0.5; write it again with a newer one (asv update)"
            raise ReportError(f"{brief(path)} {text}")
        return _of_plain(path, content)
    except (ValueError, KeyError) as error:
        text = f"{brief(path)} is neither a report nor a baseline of tfbench nor a file of pytest-benchmark or asv"
        raise ReportError(f"{text} ({described(error)})") from None


def _of_baseline(path: str, saved: baselines.Baseline) -> ResultFile:
    measured = {}
    for name, sample in saved.samples.items():
        measured[name] = Timing(median(sample.seconds), tuple(run.seconds for run in sample.runs))
    saved_environment = saved.environment
    machine = _machine(saved_environment.machine, saved_environment.python) | {
        "threads": str(saved_environment.threads)
    }
    settings = {**saved_environment.packages, **saved_environment.settings}
    kind, packages = f"tfbench baseline, {RAW}", {*saved_environment.packages}
    return ResultFile(path, kind, saved.saved, measured, machine, settings, packages=packages)


def _of_plain(path: str, content: JSON) -> ResultFile:
    times_by_name: dict[str, Timing] = {}
    occurrences: Counter[str] = Counter()
    left_out: list[str] = []
    for row in a_list(content["benchmarks"], "benchmarks"):
        name, stats = a_text(an_object(row, "a benchmark")["fullname"], "fullname"), an_object(row["stats"], "stats")
        raw = a_list(stats.get("data") or [], "data")
        try:
            middle, *seconds = times([stats["median"], *raw], name)
        except ValueError:
            left_out.append(f"{brief(name)} has a time that is not a positive number")
            continue
        again = occurrences[name]
        occurrences[name] += 1
        times_by_name[f"{name} (again {again})" if again else name] = Timing(
            middle, (tuple(seconds),) if seconds else ()
        )
    if not times_by_name:
        raise ValueError(some(left_out, 1) or "it has no benchmarks")
    info = an_object(content["machine_info"], "machine_info")
    cpu = an_object(info.get("cpu") or {}, "cpu")
    machine = {
        "system": info.get("system", ""),
        "architecture": info.get("machine", ""),
        "processor": cpu.get("brand_raw") or cpu.get("brand") or info.get("processor", ""),
        "processors": cpu.get("count", ""),
    }
    kind = f"pytest-benchmark, {RAW if any(timing.launches for timing in times_by_name.values()) else STATISTICS}"
    saved = a_text(content.get("datetime", ""), "datetime")
    of_machine = _machine(machine, info.get("python_version", ""))
    return ResultFile(path, kind, saved, times_by_name, of_machine, left_out=left_out)


def _of_asv(path: str, content: JSON) -> ResultFile:
    (times_by_name, left_out), params = timings(content), an_object(content.get("params") or {}, "params")
    if not times_by_name:
        raise ValueError("; ".join(["it has no times of benchmarks whose names start with time_", *left_out]))
    machine = {
        "system": params.get("os", ""), "architecture": params.get("arch", ""), "processor": params.get("cpu", ""),
        "processors": params.get("num_cpu", ""),
    }  # fmt: skip
    kind = f"asv, {RAW if any(timing.launches for timing in times_by_name.values()) else STATISTICS}"
    packages = {str(name): str(version) for name, version in an_object(content.get("requirements") or {}, "").items()}
    # asv gives the path of an interpreter or a version, and only a version can be compared.
    python = str(content.get("python") or "")
    facts = _machine(machine, "" if "/" in python else python)
    commit = f"commit {brief(content.get('commit_hash') or 'unknown')[:12]}"  # the one that was measured
    return ResultFile(path, kind, commit, times_by_name, facts, packages, left_out=left_out)


def _machine(info: Mapping[str, Any], python: str) -> dict[str, str]:
    named = {name: brief(info.get(name) or "") for name in ("system", "architecture", "processor", "processors")}
    return {name: value for name, value in {**named, PYTHON: brief(python)}.items() if value}


@dataclass(frozen=True)
class FileDifferences:
    """How two result files differ besides their times, one phrase each."""

    machine: Sequence[str]
    environment: Sequence[str]
    """The minor version of Python, packages and settings."""
    patch: Sequence[str]
    """Another patch version of the same Python. The times stay comparable."""

    def __iter__(self) -> Iterator[str]:
        return iter([*self.machine, *self.environment, *self.patch])

    @property
    def incomparable(self) -> str:
        """Why the times of the files are not comparable, ``""`` if they are."""
        kinds = {"machines": self.machine, "environments": self.environment}
        return "; ".join(
            f"the files are from different {kind}: {'; '.join(each)}" for kind, each in kinds.items() if each
        )


def differences(first: ResultFile, second: ResultFile) -> FileDifferences:
    """List the differences of machine and environment between two files."""
    # A package or setting that one side lacks is a difference. A fact of the machine that one file lacks is not.
    shared = {*first.machine} & {*second.machine}
    python = _unlike(first.machine, second.machine, shared & {PYTHON})
    same_minor = len({minor(file.machine.get(PYTHON, "")) for file in (first, second)}) == 1
    names = {*first.environment, *second.environment} if first.environment and second.environment else set()
    for one, other in ((first, second), (second, first)):
        if one.report is not None:
            names -= {*other.packages} - {*one.environment}
    packages = _unlike(first.environment, second.environment, names)
    return FileDifferences(
        _unlike(first.machine, second.machine, shared - {PYTHON}),
        packages if same_minor else [*python, *packages],
        python if same_minor else [],
    )


def _unlike(there: Mapping[str, str], here: Mapping[str, str], names: Collection[str]) -> list[str]:
    return [
        f"{name} {there.get(name, 'absent')} in the first, {here.get(name, 'absent')} in the second"
        for name in sorted(names)
        if there.get(name) != here.get(name)
    ]


# Read the result files of asv 0.5 and later: ``results/MACHINE/COMMIT-ENVIRONMENT.json``


COLUMNS = "result_columns"
"""The key that only files of asv have."""
_TIMED = ("time_", "timeraw_")
"""Prefixes of the functions whose results are seconds; others count bytes, or track anything."""
_NAMED = 5
"""Benchmarks that a note names."""
_MOST = 10_000
"""Parameters of a benchmark that a file may state."""


def _is_machine(content: JSON) -> bool:
    """Tell whether a file is asv's ``machine.json``, which lies beside the results of a machine and has none."""
    return {"machine", "arch", "os"} <= content.keys() and "benchmarks" not in content


def timings(content: JSON) -> tuple[dict[str, Timing], list[str]]:
    """Return the times by case, ``module.Class.time_name`` with its parameters in brackets, and what is left out.

    Failed benchmarks have no times. Raises ValueError or KeyError if asv did not write the content.
    """
    columns = [a_text(column, "a column") for column in a_list(content[COLUMNS], COLUMNS)]
    times_by_name: dict[str, Timing] = {}
    others: list[str] = []
    left_out: list[str] = []
    for name, row in an_object(content["results"], "results").items():
        if not name.rpartition(".")[2].startswith(_TIMED):
            others.append(brief(name))
            continue
        fields = dict(zip(columns, a_list(row, name), strict=False))
        if fields.get("result") is None:  # every parameter failed
            continue
        results = a_list(fields["result"], name)
        samples = a_list(fields.get("samples") or [None] * len(results), name)
        cases = _cases(name, fields.get("params"))
        if not len(results) == len(samples) == len(cases):
            counts = f"{len(results)} results, {len(samples)} samples and {len(cases)} combinations of parameters"
            left_out.append(f"{brief(name)} is left out: it has {counts}")
            continue
        for case, seconds, raw in zip(cases, results, samples, strict=True):
            if seconds is not None:
                times_by_name[case] = _timing(case, seconds, raw)
    if others:
        left_out.append(f"benchmarks that are no times are left out: {some(others, _NAMED)}")
    return times_by_name, left_out


def _cases(name: str, params: Any) -> list[str]:
    levels = [a_list(parameter, name) for parameter in a_list(params or [], name)]
    if (number := math.prod(map(len, levels))) > _MOST:
        raise ValueError(f"{brief(name)} has {number} parameters, more than {_MOST}")
    chosen = [", ".join(str(level) for level in some) for some in product(*levels)]
    return [f"{name}[{parameter}]" for parameter in chosen] if levels else [name]


def _timing(case: str, seconds: Any, raw: Any) -> Timing:
    rounds = times(a_list(raw, case), case) if raw else ()
    return Timing(median(rounds) if rounds else times([seconds], case)[0], (rounds,) if rounds else ())


# Combine result files of any kind into a report: reports, shards and saved times


_NOT_RACED = "Median of each file relative to the first file. The runs did not race each other: a third of unchanged cases moves by more than 5% between sessions."


def read_inputs(paths: Sequence[Path]) -> tuple[Report, PageContext]:
    """Read the files of a report: one report or the shards of one run, or files with times.

    Of several files with times, one that is no result file is left out with a note, and asv's description of a machine
    without. Raises `ReportError` if a file cannot be read, is incomplete, or does not belong with the others.
    """
    reports: list[tuple[str, Report]] = []
    timed: list[ResultFile] = []
    versions: VersionTimes | None = None
    unread: list[str] = []
    known: list[tuple[str, dict[str, Any]]] = []
    for path in paths:
        try:
            content = content_of(path)
            if "schema" not in content and (len(paths) == 1 or not _is_machine(content)):
                timed.append(of_content(str(path), content))
        except ReportError as error:
            if len(paths) == 1:
                raise
            unread.append(str(error))
        else:
            known.append((str(path), content))
    if unread and (not known or any("schema" in content for _, content in known)):
        raise ReportError("; ".join(unread))  # no shard of a run may be left out
    notes = [f"left out: {why}" for why in unread]
    for name, content in known:
        if "schema" in content:
            reports.append((name, _whole(json_format.report_of(content, name), name)))
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
        notes += [f"{brief(file.path)}: {why}" for file in timed for why in file.left_out]
        if len(timed) > 1:
            versions = _side_by_side(timed)
    else:
        report = Report({"name": ""}, {})
    return report, PageContext(versions=versions, notes=notes)


def _whole(report: Report, name: str) -> Report:
    if report.gap:
        raise ReportError(f"{brief(name)} is incomplete: {brief(report.gap)}; measure again")
    return report


def of_times(file: ResultFile) -> Report:
    """Turn a file of saved times into a report that compares nothing."""
    cases = {name: Case.named(name) for name in file.times}
    measured = because(ReasonCode.NO_BASELINE, because(Note.MEASURED, kind=file.kind))
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
            Verdict(result.case, Outcome.NEW, measured, launches=result.launches, rounds=result.rounds)
            for result in results
        ),
        variant_results=tuple(results),
        rounds=tuple(StoredRounds.of_sample(sample, "contender") for sample in samples.values()),
    )


def _side_by_side(files: Sequence[ResultFile]) -> VersionTimes:
    first = files[0].times
    names = [name for name in first if any(name in file.times for file in files[1:])]
    if not names:
        raise ReportError(f"{brief(files[0].path)} and {brief(files[1].path)} have no case in common")

    def ratio(name: str, file: ResultFile) -> float | None:
        return file.times[name].median / first[name].median if name in file.times else None

    return VersionTimes(
        [Path(file.path).stem for file in files],
        {name: [ratio(name, file) for file in files] for name in names},
        _NOT_RACED,
    )


# Compare the times of a case in two finished runs


CONFIDENCE = 0.95
BATCHES = 20
"""Number of equally long parts into which the times of one process are divided, in time order."""
MIN_BATCHES = 5
MIN_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class FileComparison:
    """One case in two result files; if there is no ``interval``, the reason says why."""

    case: str
    first: Timing | None
    second: Timing | None
    reason: Reason
    ratio: float | None = None
    interval: Ratio | None = None

    def as_json(self) -> JSON:
        return {
            "case": self.case,
            "first_median_seconds": self.first and self.first.median,
            "second_median_seconds": self.second and self.second.median,
            "ratio": self.ratio,
            "interval": self.interval and plain(self.interval),
            "reason": json_format.content_of(self.reason),
        }


def contrast(case: str, first: Timing | None, second: Timing | None) -> FileComparison:
    """Compare the second file's time of a case with the first file's."""
    if first is None or second is None:
        reason = because(ReasonCode.ONE_FILE, file="first" if second is None else "second")
        return FileComparison(case, first, second, reason)
    before, after = _units(first), _units(second)
    for missing in (before, after):
        if isinstance(missing, Reason):
            reason = because(ReasonCode.NO_INTERVAL, missing)
            return FileComparison(case, first, second, reason, second.median / first.median)
    assert not isinstance(before, Reason)
    assert not isinstance(after, Reason)
    interval = _welch(np.log(before[0]), np.log(after[0]))
    units = " and ".join(dict.fromkeys((before[1], after[1])))
    reason = because(ReasonCode.WITHIN_SCATTER, units=units)
    if not interval.low <= 1 <= interval.high:
        reason = because(ReasonCode.STANDS_OUT, ratio=interval.center, units=units)
    return FileComparison(case, first, second, reason, interval.center, interval)


def _units(timing: Timing) -> tuple[Sequence[float], str] | Reason:
    """Return values that are nearly independent, and their description: launches, or batches of one process.

    Successive rounds are correlated. So the rounds of one process are divided into batches whose medians
    nearly are not (batch means, Alexopoulos & Seila 1998, Handbook of Simulation, ch. 7).
    Without values, return why.
    """
    if not timing.launches:
        return because(Note.NO_ROUNDS)
    if len(timing.launches) >= MIN_LAUNCHES:
        return [float(np.median(launch)) for launch in timing.launches], "launches"
    rounds = [second for launch in timing.launches for second in launch]
    batches = min(BATCHES, len(rounds) // 2)
    if batches < MIN_BATCHES:
        return because(Note.FEW_ROUNDS, rounds=len(rounds))
    return [float(np.median(part)) for part in np.array_split(rounds, batches)], "rounds of one process"


def _welch(before: Floats, after: Floats) -> Ratio:
    """Return the ratio of two geometric means with its interval, from the logarithms (Welch 1947, Biometrika 34)."""
    from scipy import stats  # takes 0.7 s to import, and only a comparison of raw times needs it

    effect = float(after.mean() - before.mean())
    low = high = effect
    if np.ptp(before) or np.ptp(after):
        low, high = map(float, stats.ttest_ind(after, before, equal_var=False).confidence_interval(CONFIDENCE))
    return Ratio(math.exp(effect), math.exp(low), math.exp(high), CONFIDENCE)


# Print two result files side by side


LIMITS = (
    "Intervals (95%) cover the scatter within the two runs only. Runs of the same code differ more than that: "
    "a third of unchanged cases moves by more than 5% between sessions. So this comparison is no verdict. "
    "For a verdict, run pytest --benchmark with --against SPEC or --baseline NAME."
)

NO_TIMES = (
    "it holds no times, because a race against another side measures ratios; "
    "a report of pytest --benchmark without --against and --baseline has times"
)


_NAME, _REASON = 22, 14
"""Characters of a line of a name, and of a reason beside four columns of numbers, which fit on 80."""


def contrasts(rows: Sequence[FileComparison], comparable: bool) -> RenderableType:
    """Make a table of cases, largest slowdown first. Files of one machine and environment are comparable."""
    made = table("times")
    made.add_column("case", overflow="fold", min_width=_NAME)
    add_columns(made, "first", "second", "second / first", right=True)
    made.add_column("", min_width=_REASON)
    for row in sorted(rows, key=lambda row: (row.interval is None, -(row.ratio or 0))):
        ratio = _lines(row.interval) if row.interval else f"{row.ratio:.3f}" if row.ratio else "-"
        reason = row.reason.message if comparable or row.ratio is None else "incomparable"
        medians = (duration(timing.median) if timing else "-" for timing in (row.first, row.second))
        add_row(made, break_name(row.case, _NAME), *medians, ratio, reason)
    return Group(made, Text(LIMITS, "dim"))


def verdicts(first: Report | None, second: Report | None, every: bool = False) -> RenderableType:
    """Make a table of the verdicts of the reports, each against its own baseline.

    With ``every``, it has metrics that are unchanged or new in each report, too.
    """
    columns = {name: _by_case(report) for name, report in (("first", first), ("second", second)) if report}
    made = table("verdicts, each against its own baseline")
    made.add_column("case", overflow="fold", min_width=_NAME)
    add_columns(made, *columns)
    rows = {row: None for column in reversed(columns.values()) for row in column}
    shown = [row for row in rows if every or any(_moved(column.get(row)) for column in columns.values())]
    for row in shown:
        add_row(made, break_name(row, 2 * _NAME), *(_cell(column.get(row)) for column in columns.values()))
    parts: list[RenderableType] = [made] if shown else []
    if hidden := len(rows) - len(shown):
        parts.append(Text(f"{hidden} unchanged or new verdicts are not listed: add --all", "dim"))
    return Group(*parts)


def _moved(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.outcome not in (Outcome.UNCHANGED, Outcome.NEW)


def _by_case(report: Report) -> dict[str, Verdict]:
    return {
        verdict.case.name if verdict.metric == TIME else f"{verdict.case.name} {verdict.metric}": verdict
        for verdict in report.verdicts
    }


def _cell(verdict: Verdict | None) -> str | Text:
    if verdict is None:
        return "-"
    outcome = Text(str(verdict.outcome), COLOURS[verdict.outcome])
    return Text.assemble(outcome, f"\n{_lines(verdict.ratio)}") if verdict.ratio else outcome


def _lines(ratio: Ratio) -> str:
    """Return a ratio and its interval on two lines, so that a table of several fits on a narrow terminal."""
    return formatted(ratio).replace(" (", "\n(")
