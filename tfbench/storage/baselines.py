"""Saved baselines.

A baseline is a pytest-benchmark JSON file, so that its tools read it. Data without a field there is stored under
``tfbench``, at the top level and in each benchmark's ``extra_info``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest_benchmark
from pytest_benchmark.stats import Stats

from tfbench.errors import BaselineError, ReportError
from tfbench.fs import DATA_FOLDER, read_text, write_whole
from tfbench.model import (
    JSON,
    STATISTICS,
    Case,
    EnvironmentInfo,
    MeasurementContext,
    MetricValues,
    Run,
    Sample,
    own_thresholds,
)
from tfbench.untrusted import (
    a_list,
    a_number,
    a_text,
    an_integer,
    an_object,
    brief,
    described,
    parse_json,
    render_json,
    texts,
    times,
)

# Name every file and folder that tfbench keeps below a project's root


HISTORY = f"{DATA_FOLDER}/history"
"""Default folder of histories, relative to pytest's root."""
HISTORY_VARIABLE = "TFBENCH_HISTORY"
"""Environment variable with the place of the history for ``--history`` without a value. It may have a password."""
PROFILES = f"{DATA_FOLDER}/profiles"
"""Default folder of profiles, relative to pytest's root."""
JOURNAL = "journal.jsonl"
"""File of the finished cases of a run that has not come to its end."""
_UNSHARED = (
    "candidates/",
    "calibration/",
    "fleets/",
    "history/",
    "made/",
    "profiles/",
    "trees/",
    "journal.*",
)
"""Patterns that git ignores. Baselines may be shared."""


class Layout:
    """Paths below the data folder of one project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.baselines = folder / "baselines"
        self.candidates = folder / "candidates"
        """The last run against each baseline, which `tfbench baseline accept` makes the new one."""
        self.history = folder / "history"
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

        Raises:
            OSError: The folder cannot be created or written.
        """
        file = self.folder / ".gitignore"
        if not file.exists():
            write_whole(file, "".join(f"{name}\n" for name in _UNSHARED))


# Store and read the conditions of a measurement, which files of histories and baselines have alike


def check_schema(content: JSON, schema: str) -> None:
    """Raise ValueError if the content has another schema."""
    if (found := an_object(content, "the content")["schema"]) != schema:
        raise ValueError(f"schema {brief(found)!r} instead of {schema!r}")


CONTEXT = ("session", "tree", "policy", "way")
"""Text fields of a `MeasurementContext`."""


def context_json(context: MeasurementContext) -> JSON:
    """Return a context as files store it."""
    return {"recipe": context.environment.as_json(), **{name: getattr(context, name) for name in CONTEXT}}


def context_of(content: JSON) -> MeasurementContext:
    """Read a context from a file's content."""
    found = {name: a_text(content[name], name) for name in CONTEXT}
    if not _TREE.fullmatch(found["tree"]):  # it names a folder, and an argument of git
        raise ValueError(f"{brief(found['tree'])!r} is no tree of git")
    return MeasurementContext(environment=EnvironmentInfo.of_json(content["recipe"]), **found)


_TREE = re.compile(r"[0-9a-z]{0,64}")


# Save and read baselines: times, other metrics, and the environment info of the measured side


SCHEMA = "tfbench-baseline/1"
NUMBERS = frozenset({"first_call", "peak_host_memory", "dispatch_time", "gpu_clock", "flops", "bytes", "items"})
"""Facts of a launch that are numbers. Verdicts are computed from some of them."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DESCRIPTION = re.compile(rf"baseline '({_NAME.pattern})' of [0-9T:.+-]+")


@dataclass(frozen=True)
class Acceptance:
    """A replacement of a baseline by a later run, and its reason."""

    when: str
    reason: str
    replaced: str
    """Time at which the replaced baseline was saved."""


@dataclass(frozen=True)
class Baseline:
    """The content of a baseline file."""

    context: MeasurementContext
    samples: Mapping[str, Sample]
    """Name of a case -> its sample."""
    metric_values: Mapping[str, MetricValues] = field(default_factory=dict)
    """Name of a case -> its metrics other than time. Early baselines have none."""
    name: str = ""
    saved: str = ""
    accepted: tuple[Acceptance, ...] = ()
    """Oldest first."""

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
        """Check that a name can be a file name and a git ref.

        Raises:
            BaselineError: The name cannot.
        """
        if not _NAME.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
            raise BaselineError(f"{brief(repr(name))} cannot name a baseline: use letters, digits, '.', '_' and '-'")

    def check_can_save(self, name: str) -> None:
        """Check before a run that its baseline can be saved.

        Raises:
            BaselineError: The name is unusable, or this user cannot write into the folder.
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

        Raises:
            BaselineError: No baseline has this name, or tfbench did not write its file, which stays unchanged.
        """
        path = self._path(name)
        if not path.exists():
            known = ", ".join(self.names())
            fix = f"the baselines are: {known}" if known else "save one with --save-baseline NAME"
            raise BaselineError(f"no baseline named {name!r} in {self.folder}; {fix}")
        try:
            return parse(name, parse_json(read_text(path)))
        except ReportError as error:
            raise BaselineError(str(error)) from None
        except (ValueError, KeyError) as error:
            raise BaselineError(
                f"{brief(path)} is not a baseline that tfbench can read ({described(error)}); "
                "the file stays unchanged: move it away or save under another name"
            ) from None

    def save(self, name: str, baseline: Baseline) -> Path:
        """Write a baseline, and replace an earlier one with this name.

        Raises:
            BaselineError: The name is unusable, the baseline has no sample, or its file exists and is no baseline.
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
            "tfbench": {
                "schema": SCHEMA,
                **context_json(baseline.context),
                "accepted": [asdict(acceptance) for acceptance in baseline.accepted],
            },
        }
        try:
            write_whole(path, render_json(content, 1))
        except OSError as error:
            raise BaselineError(f"{path}: the baseline cannot be written: {error}") from error
        return path

    def remove(self, name: str) -> Path:
        """Delete a baseline, even an unreadable one.

        Raises:
            BaselineError: No baseline has this name.
        """
        path = self._path(name)
        try:
            path.unlink()
        except FileNotFoundError:
            raise BaselineError(f"no baseline named {name!r} in {self.folder}") from None
        return path

    def _path(self, name: str) -> Path:
        self.check_name(name)
        return self.folder / f"{name}.json"


def describe(saved: Baseline) -> str:
    """Return the baseline's name and date, for messages and as the specification of its side."""
    return f"baseline {saved.name!r} of {saved.saved}"


def baseline_of(spec: str) -> str:
    """Return the name of the baseline that the specification of a side describes, ``""`` if it describes none."""
    found = _DESCRIPTION.fullmatch(spec)
    return found[1] if found else ""


def now() -> str:
    """Return the current time in the format of the files."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _statistic(content: object) -> str:
    if (name := a_text(content, "statistic")) and name not in STATISTICS:
        raise ValueError(f"there is no statistic {brief(name)}")
    return name


def _benchmark(sample: Sample, values: MetricValues | None) -> JSON:
    case, seconds = sample.case, sample.seconds
    own: JSON = {"workload": case.workload, "source": case.source, "launches": [run_json(run) for run in sample.runs]}
    if case.thresholds:
        own["thresholds"] = dict(case.thresholds)
    if case.statistic:
        own["statistic"] = case.statistic
    if values is not None:
        own["reading"] = values.as_json()
    return {
        "group": case.group,
        "name": case.name.rpartition("::")[2],
        "fullname": case.name,
        "params": case.levels,
        "param": case.label if case.variant else None,
        "extra_info": {"tfbench": own},
        "options": {},
        "stats": _stats(seconds, sample.runs[0].iterations),
    }


def run_json(run: Run) -> JSON:
    """Return one launch of a sample as files store it."""
    # Whole nanoseconds of a block are the measured values, and take half the space of fractions of a second.
    return {
        "iterations": run.iterations,
        "nanoseconds": [round(second * run.iterations * 1e9) for second in run.seconds],
        "facts": run.facts,
    }


def _stats(seconds: Sequence[float], iterations: int) -> JSON:
    stats: Any = Stats()  # type: ignore[no-untyped-call]
    for second in seconds:
        stats.update(second)
    return {**stats.as_dict(), "iterations": iterations}


def parse(name: str, content: JSON) -> Baseline:
    """Build a baseline from the content of its file.

    Raises:
        ValueError, KeyError: tfbench did not write the content.
    """
    own = an_object(an_object(content, "the content")["tfbench"], "tfbench")
    check_schema(own, SCHEMA)
    samples: dict[str, Sample] = {}
    metric_values = {}
    for row in a_list(content["benchmarks"], "benchmarks"):
        benchmark = an_object(row, "a benchmark")
        extra = an_object(an_object(benchmark["extra_info"], "extra_info")["tfbench"], "tfbench")
        case = Case(
            name=a_text(benchmark["fullname"], "fullname"),
            workload=a_text(extra["workload"], "workload"),
            group=a_text(benchmark["group"], "group"),
            variant=tuple(sorted(texts(benchmark["params"], "params").items())),
            source=a_text(extra.get("source", ""), "source"),
            thresholds=own_thresholds(extra.get("thresholds", {})),
            statistic=_statistic(extra.get("statistic", "")),
        )
        runs = tuple(run_of(run, case.name) for run in a_list(extra["launches"], "launches"))
        if not runs or case.name in samples:
            raise ValueError(f"{brief(case.name)} has no launch, or is there twice")
        samples[case.name] = Sample(case, runs)
        if "reading" in extra:
            metric_values[case.name] = MetricValues.of_json(extra["reading"])
    # Early baselines lack the way of racing. Their times are then never judged without a race.
    context = context_of({**dict.fromkeys(CONTEXT, ""), **own})
    accepted = tuple(_acceptance_of(entry) for entry in a_list(own.get("accepted", []), "accepted"))
    return Baseline(context, samples, metric_values, name, a_text(content["datetime"], "datetime"), accepted)


def run_of(run: Any, case: str = "a launch") -> Run:
    """Build a launch of a sample from its JSON.

    Raises:
        ValueError, KeyError: tfbench did not write the content.
    """
    iterations = an_integer(an_object(run, "a launch")["iterations"], f"iterations of {case}", 1, 1e15)
    nanoseconds = [a_number(one, case) for one in a_list(run["nanoseconds"], "nanoseconds")]
    facts = dict(an_object(run["facts"], "facts"))
    for name in NUMBERS.intersection(facts):
        a_number(facts[name], name, 0)
    return Run(times([one * 1e-9 / iterations for one in nanoseconds], case), iterations, facts)


def _acceptance_of(entry: Any) -> Acceptance:
    found = texts(entry, "an acceptance")
    return Acceptance(found["when"], found["reason"], found["replaced"])
