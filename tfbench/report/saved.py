"""Read result files of any kind for a report: reports, baselines, files of pytest-benchmark and asv; and put them side by side."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tfbench.errors import ReportError
from tfbench.fs import read_text
from tfbench.model import JSON, Case, Outcome, Report, Run, Sample, StoredRounds, VariantResult, Verdict
from tfbench.model.reasons import Note, ReasonCode, because
from tfbench.report import json_format
from tfbench.report.merge import merge
from tfbench.report.summary import CaseTable
from tfbench.storage import baselines
from tfbench.untrusted import a_list, a_number, a_text, an_object, brief, described, plural, some, times


class Timing(NamedTuple):
    """The times of a case in a result file, in seconds per iteration."""

    median: float
    launches: tuple[tuple[float, ...], ...] = ()
    """The rounds of each process; empty if the file has no raw times."""


@dataclass(frozen=True)
class ResultFile:
    """The times of a file, and the machine and environment they were measured in."""

    path: str
    kind: str
    saved: str
    """When it was saved; of asv, the date of the commit and the commit."""
    times: Mapping[str, Timing]
    facts: Mapping[str, str]
    """Machine, Python and packages, as far as the file has them."""
    left_out: Sequence[str] = ()
    """Results that are not read, with the reason, one phrase each."""
    report: Report | None = None
    """The report itself, if the file is one."""

    @property
    def place(self) -> str:
        """The machine and the Python or environment: times of different ones are never compared."""
        pairs = ("machine", "processor"), ("environment", "Python")
        return ", ".join(filter(None, (self.facts.get(one) or self.facts.get(other) for one, other in pairs)))


def read(path: Path) -> ResultFile:
    """Read any result file. Raises `ReportError` if the file cannot be read, or is not a result file."""
    name, text = str(path), read_text(path)
    # asv writes ``Infinity`` where JSON has no number.
    content = json_format.load(text, name, constants=f'"{COLUMNS}"' in text)
    if not isinstance(content, dict):
        raise ReportError(f"{brief(path)} is not a result file: expected a JSON object, found {type(content).__name__}")
    if "schema" in content:
        report = json_format.report_of(content, name)
        if report.gap:
            raise ReportError(f"{brief(name)} is incomplete: {brief(report.gap)}; measure again")
        return _of_report(name, report)
    try:
        if isinstance(content.get("tfbench"), dict):
            return _of_baseline(name, baselines.parse(path.stem, content))
        if COLUMNS in content:
            return _of_asv(name, content)
        return _of_plain(name, content)
    except (ValueError, KeyError) as error:
        text = f"{brief(path)} is neither a report nor a baseline of tfbench nor a file of pytest-benchmark or asv"
        raise ReportError(f"{text} ({described(error)})") from None


def _of_report(path: str, report: Report) -> ResultFile:
    """Take the median of each case: of its variant, or of its rounds on the contender's side."""
    side = report.sides.get("contender", {})
    medians = {rounds.case: rounds.median_seconds for rounds in report.rounds if rounds.side == "contender"}
    medians |= {result.case.name: result.median_seconds for result in report.variant_results}
    facts = _facts(side.get("machine", {}), side.get("python", ""), side.get("packages", {}))
    timings = {name: Timing(seconds) for name, seconds in medians.items()}
    return ResultFile(path, "tfbench report", "", timings, facts, report=report)


def _of_baseline(path: str, saved: baselines.Baseline) -> ResultFile:
    measured = {
        name: Timing(median(sample.seconds), tuple(run.seconds for run in sample.runs))
        for name, sample in saved.samples.items()
    }
    environment = saved.environment
    facts = _facts(environment.machine, environment.python, environment.packages)
    return ResultFile(path, "tfbench baseline", saved.saved, measured, facts)


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
        again = f" (again {occurrences[name]})" if occurrences[name] else ""
        occurrences[name] += 1
        times_by_name[f"{name}{again}"] = Timing(middle, (tuple(seconds),) if seconds else ())
    if not times_by_name:
        raise ValueError(some(left_out, 1) or "it has no benchmarks")
    info = an_object(content["machine_info"], "machine_info")
    cpu = an_object(info.get("cpu") or {}, "cpu")
    machine = {
        "system": info.get("system"), "architecture": info.get("machine"), "processors": cpu.get("count"),
        "processor": cpu.get("brand_raw") or cpu.get("brand") or info.get("processor"),
    }  # fmt: skip
    facts, saved = _facts(machine, info.get("python_version", "")), a_text(content.get("datetime", ""), "datetime")
    return ResultFile(path, "pytest-benchmark", brief(saved), times_by_name, facts, left_out)


def _of_asv(path: str, content: JSON) -> ResultFile:
    (times_by_name, left_out), params = timings(content), an_object(content.get("params") or {}, "params")
    if not (times_by_name or left_out):
        raise ValueError("it has no times of benchmarks whose names start with time_")
    machine = {
        "system": params.get("os"), "architecture": params.get("arch"), "processor": params.get("cpu"),
        "processors": params.get("num_cpu"), "machine": params.get("machine"),
    }  # fmt: skip
    python = str(content.get("python") or "")  # the path of an interpreter, or a version
    facts = _facts(machine, "" if "/" in python else python, an_object(content.get("requirements") or {}, ""))
    facts |= {"environment": brief(content["env_name"])} if content.get("env_name") else {}
    date = datetime.fromtimestamp(min(a_number(content.get("date") or 0, "date", 0) / 1000, 1e10), timezone.utc)
    commit = f"{date:%Y-%m-%d %H:%M} {brief(content.get('commit_hash') or 'unknown')[:8]}"
    return ResultFile(path, "asv", commit, times_by_name, facts, left_out)


def _facts(machine: Mapping[str, Any], python: Any, packages: Mapping[str, Any] | None = None) -> dict[str, str]:
    names = "system", "architecture", "processor", "processors", "machine"
    facts = {**{name: machine.get(name) for name in names}, "Python": python, **(packages or {})}
    return {brief(name): brief(value) for name, value in facts.items() if value}


# Read asv 0.5 and later: ``results/MACHINE/COMMIT-ENVIRONMENT.json``


COLUMNS = "result_columns"
"""The key that only files of asv have."""
_TIMED = ("time_", "timeraw_")
"""Prefixes of the functions whose results are seconds; others count bytes, or track anything."""
_NAMED = 5
"""Benchmarks that a note names."""
_FEW = 8
"""Files whose times stand side by side. Of more, a table has the first and the newest, and where the times changed most."""
_NEAR, _STEP = 5, 0.1
"""Files before and after a step whose medians are compared, and the least step that is shown, as a log-ratio."""
_SHOWN = 60
"""Rows of many files on a terminal."""
_MOST = 10_000
"""Parameters of a benchmark that a file may state."""


def timings(content: JSON) -> tuple[dict[str, Timing], list[str]]:
    """Return the times by case, ``module.Class.time_name`` with its parameters in brackets, and what is left out.

    Raises ValueError or KeyError if asv did not write the content.
    """
    columns = [a_text(column, "a column") for column in a_list(content[COLUMNS], COLUMNS)]
    if "result" not in columns:
        raise ValueError("it has no column of results")
    times_by_name: dict[str, Timing] = {}
    others, failed, left_out = list[str](), list[str](), list[str]()
    for name, row in an_object(content["results"], "results").items():
        if not name.rpartition(".")[2].startswith(_TIMED):
            others.append(brief(name))
            continue
        fields = dict(zip(columns, a_list(row, name), strict=False))
        if fields.get("result") is None:
            failed.append(brief(name))
            continue
        results = a_list(fields["result"], name)
        samples = a_list(fields.get("samples") or [None] * len(results), name)
        levels = [a_list(parameter, name) for parameter in a_list(fields.get("params") or [], name)]
        if (number := math.prod(map(len, levels))) > _MOST:
            raise ValueError(f"{brief(name)} has {number} parameters, more than {_MOST}")
        cases = [f"{name}[{', '.join(map(str, chosen))}]" for chosen in product(*levels)] if levels else [name]
        if not len(results) == len(samples) == len(cases):
            counts = f"{len(results)} results, {len(samples)} samples and {len(cases)} combinations of parameters"
            left_out.append(f"{brief(name)} is left out: it has {counts}")
            continue
        for case, seconds, raw in zip(cases, results, samples, strict=True):
            if seconds is None:
                failed.append(brief(case))
            else:
                rounds = times(a_list(raw, case), case) if raw else ()
                middle = median(rounds) if rounds else times([seconds], case)[0]
                times_by_name[case] = Timing(middle, (rounds,) if rounds else ())
    if failed:
        left_out.append(f"failed benchmarks have no times: {some(failed, _NAMED)}")
    if others:
        left_out.append(f"benchmarks that are no times are left out: {some(others, _NAMED)}")
    return times_by_name, left_out


# Combine them: shards of one run, one file of any kind, or several side by side


_NOT_RACED = (
    "Median of each file, and relative to the first file. The runs did not race each other: a third of unchanged cases "
    "moves by more than 5% between sessions."
)


Inputs = tuple[Report, CaseTable | None, list[str]]
"""The last file as a report, the times of several files side by side, and remarks on the files."""


def read_inputs(paths: Sequence[Path]) -> Inputs:
    """Read the files of a report: one file, the shards of one run, or files whose times stand side by side.

    Of several files, one that is no result file is left out with a note. Raises `ReportError` if a single file or a report
    cannot be read, or two files have no case in common.
    """
    files: list[ResultFile] = []
    notes: list[str] = []
    series: _Series = defaultdict(lambda: (array("I"), array("d")))
    for path in paths:
        try:
            file = read(path)
            if len(paths) > _FEW and not (file.report and file.report.shard):
                for name, timing in file.times.items():
                    numbers, values = series[file.place, name]
                    numbers.append(len(files))
                    values.append(timing.median)
                file = replace(file, times={}, report=None)
            files.append(file)
        except ReportError as error:
            notes.append(str(error))
    shards = [file for file in files if file.report and file.report.shard]
    if not files or (notes and any(file.report for file in files)):
        raise ReportError("; ".join(notes))  # no shard of a run may be left out
    if series:
        return _of_many(files, series, notes)
    notes = [f"left out: {why}" for why in notes]
    if all(file.kind == "asv" for file in files):
        files.sort(key=lambda file: file.saved)
    if len(files) == len(shards) > 1:
        return merge([(file.path, file.report) for file in shards if file.report]), None, []
    last, versions = files[-1], side_by_side(files) if len(files) > 1 else None
    notes += [
        f"{brief(file.path)}: {file.kind}{', ' + file.saved if file.saved else ''}"
        for file in files
        if versions or not file.report
    ]
    notes += [f"{brief(file.path)}: {why}" for file in files for why in file.left_out]
    notes += [note for file in files[1:] if (note := _unlike(files[0], file))]
    return last.report or _of_times(last), versions, notes


_Series = dict[tuple[str, str], tuple["array[int]", "array[float]"]]
"""Machine with Python, and name of a case -> the numbers of the files that have it, and its median in each."""


def _of_many(files: Sequence[ResultFile], series: _Series, errors: Sequence[str]) -> Inputs:
    """Return the newest file, and a row per case, machine and Python: the first and the newest times, and the largest step."""
    order = sorted(range(len(files)), key=lambda number: files[number].saved)
    ranks, places = np.argsort(order), Counter(file.place for file in files)
    medians, steps = dict[str, list[float]](), dict[str, tuple[float, str]]()
    for (place, case), (numbers, values) in series.items():
        by_date = np.argsort(ranks[np.array(numbers)], kind="stable")
        seconds = np.array(values)[by_date]
        at, step = _step(np.log(seconds))
        name = f"{case} ({place})" if len(places) > 1 else case
        medians[name] = [float(seconds[number]) for number in (0, max(0, len(seconds) - 2), -1)]
        steps[name] = step, f"{math.exp(step):.2f}x at {files[numbers[by_date[at]]].saved}" if abs(step) > _STEP else ""
    names = sorted(medians, key=lambda name: -abs(steps[name][0]))
    table = CaseTable.of_times(_NOT_RACED, ["first", "previous", "newest"], {name: medians[name] for name in names})
    rows, labels = [[*row, steps[row[0]][1]] for row in table.rows], [*table.labels, "largest step"]
    notes = [f"{len(files):,} files, from {files[order[0]].saved} to {files[order[-1]].saved}; --html has all cases"]
    notes += [f"{plural(count, 'file')} of {place}" for place, count in places.most_common(_NAMED)]
    left_out = Counter([*errors, *(why for file in files for why in file.left_out)])
    notes += [f"left out in {plural(count, 'file')}: {why}" for why, count in left_out.most_common(_NAMED)]
    more = len(left_out) - _NAMED
    notes += [f"left out besides, for {plural(more, 'other reason')}"] if more > 0 else []
    table = replace(table, labels=labels, rows=rows, most=_SHOWN)
    return _of_times(read(Path(files[order[-1]].path))), table, notes


def _step(logs: NDArray[np.float64]) -> tuple[int, float]:
    """Return where the medians of as many logarithms before and after differ most, and by how much."""
    if not (near := min(_NEAR, len(logs) // 2)):
        return 0, 0.0
    windows = sliding_window_view(logs, near)
    jumps, moved = (side[near:] - side[:-near] for side in (np.median(windows, axis=1), windows.mean(axis=1)))
    # Medians alone jump as soon as most of a window is beyond the step.
    at = int((np.abs(jumps) + np.abs(moved)).argmax())
    return at + near, float(jumps[at])


def _unlike(first: ResultFile, other: ResultFile) -> str:
    """Name the facts that two files state differently; ``""`` without any."""
    unlike = [
        f"{name} {first.facts[name]} and {value}"
        for name, value in other.facts.items()
        if first.facts.get(name, value) != value
    ]
    return f"{brief(first.path)} and {brief(other.path)} differ in {some(unlike, _NAMED)}" if unlike else ""


def _of_times(file: ResultFile) -> Report:
    """Turn a file of saved times into a report that compares nothing."""
    measured = because(ReasonCode.NO_BASELINE, because(Note.MEASURED, kind=file.kind))
    verdicts, results, rounds = list[Verdict](), list[VariantResult](), list[StoredRounds]()
    for name, timing in file.times.items():
        size: JSON = {"launches": len(timing.launches), "rounds": sum(map(len, timing.launches))}
        case = Case.named(name)
        verdicts.append(Verdict.of(case, Outcome.NEW, measured, **size))
        results.append(VariantResult.about(case, reference=name, median_seconds=timing.median, **size))
        if timing.launches:
            sample = Sample(case, tuple(Run(launch, 1) for launch in timing.launches))
            rounds.append(StoredRounds.of_sample(sample, "contender"))
    policy, sides = {"name": file.kind}, {"contender": {"spec": file.path, "machine": dict(file.facts)}}
    return Report(policy, sides, tuple(verdicts), tuple(results), rounds=tuple(rounds))


def side_by_side(files: Sequence[ResultFile]) -> CaseTable:
    """Return the medians of the cases that the first file shares with another. Raises `ReportError` without any."""
    first = files[0].times
    if not (names := [name for name in first if any(name in file.times for file in files[1:])]):
        others = " and ".join(brief(file.path) for file in files[1:])
        raise ReportError(f"{brief(files[0].path)} has no case in common with {others}")
    medians = {name: [file.times[name].median if name in file.times else None for file in files] for name in names}
    return CaseTable.of_times(_NOT_RACED, [Path(file.path).stem for file in files], medians)
