"""Saved baselines.

A baseline is a pytest-benchmark JSON file, so that its tools read it. Data without a field there is stored under
``tfbench``, at the top level and in each benchmark's ``extra_info``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pytest_benchmark
from msgspec import Meta
from pytest_benchmark.stats import Stats

from tfbench.errors import BaselineError
from tfbench.fs import DATA_FOLDER, write_whole
from tfbench.model.case import JSON, SET_LATE, Case, own_thresholds
from tfbench.model.formats import Free, Name, Text, Texts, check_schema, convert, exactly, plain, read_file
from tfbench.model.measurement import STATISTICS, MetricValues, Run, Sample
from tfbench.model.report import BASELINE_NAME, EnvironmentInfo, MeasurementContext
from tfbench.storage.history import ignore_in_git
from tfbench.untrusted import TIMES, a_number, brief, render_json

# Name every file and folder that tfbench keeps below a project's root


HISTORY = f"{DATA_FOLDER}/history"
"""Default folder of histories, relative to pytest's root."""
HISTORY_VARIABLE = "TFBENCH_HISTORY"
"""Environment variable with the folder of the history for ``--history`` without a value."""
PROFILES = f"{DATA_FOLDER}/profiles"
"""Default folder of profiles, relative to pytest's root."""
JOURNAL = "journal.jsonl"
"""File of the finished cases of a run that has not come to its end."""
_UNSHARED = (
    "candidates/", "calibration/", "fleets/", "history/", "made/", "profiles/", "trees/", "journal.*",
)  # fmt: skip
"""Patterns that git ignores. Baselines may be shared."""


class Layout:
    """Paths below the data folder of one project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.baselines = folder / "baselines"
        self.candidates = folder / "candidates"
        """The last run against each baseline, which `tfbench baseline accept` makes the new one."""
        self.trees = folder / "trees"
        """Source trees of other revisions."""
        self.shared_set_ups = folder / "made"
        """Folders that one launch builds for all, such as trained models."""
        self.calibration = folder / "calibration"
        self.fleets = folder / "fleets"
        """Folders of plans, jobs and reports of `tfbench fleet`."""
        self.journal = folder / JOURNAL

    @staticmethod
    def of(root: Path) -> Layout:
        """Return the layout below pytest's root."""
        return Layout(root / DATA_FOLDER)

    def write_gitignore(self) -> None:
        """Make git ignore the folders that are not shared. An existing file stays unchanged.

        Raises `OSError` if the folder cannot be created or written.
        """
        ignore_in_git(self.folder, *_UNSHARED)


# Save and read baselines: times, other metrics, and the environment info of the measured side


SCHEMA: Final = "tfbench-baseline/1"
NUMBERS = frozenset(
    {"first_call", "peak_host_memory", "dispatch_time", "gpu_clock", "flops", "bytes", "items", "beside", "collections"}
)
"""Facts of a launch that are numbers. Verdicts are computed from some of them."""


@dataclass(frozen=True)
class Acceptance:
    """A replacement of a baseline by a later run, and its reason."""

    when: Text
    reason: Text
    replaced: Text
    """Time at which the replaced baseline was saved."""


@dataclass(frozen=True, slots=True)
class SavedLaunch:
    """A launch of a sample, as files store it."""

    iterations: Annotated[int, Meta(ge=1, le=10**15)]
    nanoseconds: Annotated[tuple[float, ...], Meta(min_length=1)]
    """Of the blocks. Whole numbers are the measured values, and take half the space of fractions of a second."""
    facts: Free

    def __post_init__(self) -> None:
        low, high = TIMES
        if not all(low <= block * 1e-9 / self.iterations <= high for block in self.nanoseconds):
            raise ValueError("the nanoseconds are no usable times")
        for name in NUMBERS.intersection(self.facts):
            a_number(self.facts[name], name, 0)
        if not all(isinstance(variable, str) for variable in self.facts.get(SET_LATE, ())):
            raise ValueError(f"{SET_LATE} is no list of variables")

    @staticmethod
    def of(run: Run) -> SavedLaunch:
        """Return a launch in the form of files."""
        blocks = tuple(round(second * run.iterations * 1e9) for second in run.seconds)
        return SavedLaunch(run.iterations, blocks, run.facts)

    @property
    def run(self) -> Run:
        """The launch, without what other processes took away."""
        return Run(tuple(block * 1e-9 / self.iterations for block in self.nanoseconds), self.iterations, self.facts)


@dataclass(frozen=True)
class _SavedCase:
    """What a benchmark of the file has under ``extra_info/tfbench``."""

    workload: Name
    source: Text
    launches: Annotated[tuple[SavedLaunch, ...], Meta(min_length=1)]
    thresholds: Mapping[str, float] = field(default_factory=dict)
    statistic: Annotated[str, exactly("|".join(("", *STATISTICS)))] = ""
    metric_values: MetricValues | None = None
    file: Text = ""
    ungated: Text = ""

    def __post_init__(self) -> None:
        own_thresholds(self.thresholds)


@dataclass(frozen=True)
class _Extra:
    tfbench: _SavedCase


@dataclass(frozen=True)
class _Benchmark:
    """A benchmark of the file, as far as it is read."""

    fullname: Name
    group: Text
    params: Texts
    extra_info: _Extra


@dataclass(frozen=True)
class _Head:
    """What the file has under ``tfbench`` at the top."""

    schema: Literal["tfbench-baseline/1"]
    context: MeasurementContext
    accepted: tuple[Acceptance, ...] = ()
    against: Text = ""
    """Of a run that can be accepted: when the baseline was saved that it raced against."""


@dataclass(frozen=True)
class BaselineFile:
    """The parts of the file that are read."""

    datetime: Text
    tfbench: _Head
    benchmarks: tuple[_Benchmark, ...]

    def __post_init__(self) -> None:
        names = Counter(benchmark.fullname for benchmark in self.benchmarks)
        if twice := next((name for name, count in names.items() if count > 1), ""):
            raise ValueError(f"{brief(twice)} is there twice")


@dataclass(frozen=True)
class Baseline:
    """The content of a baseline file."""

    context: MeasurementContext
    samples: Mapping[str, Sample]
    """Name of a case -> its sample."""
    metric_values: Mapping[str, MetricValues] = field(default_factory=dict)
    """Name of a case -> its metrics other than time."""
    name: str = ""
    saved: str = ""
    accepted: tuple[Acceptance, ...] = ()
    """Oldest first."""
    against: str = ""
    """Of a candidate: when the baseline was saved that it raced against."""

    @property
    def environment(self) -> EnvironmentInfo:
        return self.context.environment

    @property
    def tree(self) -> str:
        return self.context.tree


class Baselines:
    """The baselines of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the names of all baselines, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def check_name(self, name: str) -> None:
        """Check that a name can be a file name and a git ref. Raises `BaselineError` if it cannot."""
        if not re.fullmatch(BASELINE_NAME, name) or ".." in name or name.endswith((".lock", ".")):
            raise BaselineError(f"{brief(repr(name))} cannot name a baseline: use letters, digits, '.', '_' and '-'")

    def check_can_save(self, name: str) -> None:
        """Check before a run that its baseline can be saved.

        Raises `BaselineError` if the name is unusable, or this user cannot write into the folder.
        """
        self.check_name(name)
        there = next(folder for folder in (self.folder, *self.folder.parents) if folder.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise BaselineError(
                f"the baseline {name!r} cannot be saved, because this user cannot write into {there}; "
                "run in a copy of the checkout that you can write"
            )

    def fetch(self, name: str) -> Baseline:
        """Read a baseline.

        Raises `BaselineError` if no baseline has this name, or tfbench did not write its file, which stays unchanged.
        """
        path = self._path(name)
        if not path.exists():
            raise self._unknown(name)
        fix = "the file stays unchanged: move it away or save under another name"
        return _of_file(name, read_file(path, BaselineFile, SCHEMA, fix, BaselineError))

    def save(self, name: str, baseline: Baseline) -> Path:
        """Write a baseline, and replace an earlier one with this name.

        Raises `BaselineError` if the name is unusable, there is no sample, or the file exists and is no baseline.
        """
        path = self._path(name)
        if path.exists():
            self.fetch(name)  # a corrupt file is evidence, and never overwritten
        samples = list(baseline.samples.values())
        if not samples:
            raise BaselineError(f"the baseline {name!r} was not saved: no case was measured")
        environment = baseline.environment
        content = {
            "machine_info": dict(environment.machine) | {"python_version": environment.python},
            "commit_info": {"id": environment.commit, "dirty": environment.dirty},
            "benchmarks": [_benchmark(sample, baseline.metric_values.get(sample.case.name)) for sample in samples],
            "datetime": now(),
            "version": pytest_benchmark.__version__,
            "tfbench": plain(_Head(SCHEMA, baseline.context, baseline.accepted, baseline.against)),
        }
        try:
            write_whole(path, render_json(content, 1))
        except OSError as error:
            raise BaselineError(f"{path}: the baseline cannot be written: {error}") from error
        return path

    def remove(self, name: str) -> Path:
        """Delete a baseline, even an unreadable one. Raises `BaselineError` if no baseline has this name."""
        path = self._path(name)
        try:
            path.unlink()
        except FileNotFoundError:
            raise self._unknown(name) from None
        return path

    def _unknown(self, name: str) -> BaselineError:
        known = ", ".join(self.names())
        fix = f"the baselines are: {known}" if known else "save one with --save-baseline NAME"
        return BaselineError(f"no baseline named {name!r} in {self.folder}; {fix}")

    def _path(self, name: str) -> Path:
        self.check_name(name)
        return self.folder / f"{name}.json"


def describe(saved: Baseline) -> str:
    """Return the baseline's name and date, for messages and as the specification of its side."""
    return f"baseline {saved.name!r} of {saved.saved}"


def now() -> str:
    """Return the current time in the format of the files."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _benchmark(sample: Sample, values: MetricValues | None) -> JSON:
    case = sample.case
    stats: Any = Stats()  # type: ignore[no-untyped-call]
    for second in sample.seconds:
        stats.update(second)
    launches = tuple(map(SavedLaunch.of, sample.runs))
    thresholds = dict(case.thresholds)
    own = _SavedCase(case.workload, case.source, launches, thresholds, case.statistic, values, case.file, case.ungated)
    return {
        "group": case.group,
        "name": case.short_name,
        "fullname": case.name,
        "params": case.levels,
        "param": case.label if case.variant else None,
        "extra_info": {"tfbench": plain(own)},
        "options": {},
        "stats": {**stats.as_dict(), "iterations": sample.runs[0].iterations},
    }


def parse(name: str, content: JSON) -> Baseline:
    """Build a baseline from the content of its file. Raises `ValueError` if tfbench did not write the content."""
    check_schema(content, SCHEMA)
    return _of_file(name, convert(BaselineFile, content))


def _of_file(name: str, file: BaselineFile) -> Baseline:
    samples: dict[str, Sample] = {}
    metric_values = {}
    for benchmark in file.benchmarks:
        own = benchmark.extra_info.tfbench
        case = Case(
            name=benchmark.fullname, workload=own.workload, group=benchmark.group,
            variant=tuple(sorted(benchmark.params.items())), source=own.source, file=own.file,
            thresholds=own_thresholds(own.thresholds), statistic=own.statistic, ungated=own.ungated,
        )  # fmt: skip
        samples[case.name] = Sample(case, tuple(launch.run for launch in own.launches))
        if own.metric_values is not None:
            metric_values[case.name] = own.metric_values
    head = file.tfbench
    return Baseline(head.context, samples, metric_values, name, file.datetime, head.accepted, head.against)
