"""Parse the values of options."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import library_variables
from tfbench.fs import require_linux
from tfbench.model import STATISTICS
from tfbench.plugin import DEFAULTS, HISTORY_PLACES, OPTIONS, OWN, PREFIX, present_folders, setting
from tfbench.policy import Policy
from tfbench.race.lanes import Processors, processors
from tfbench.race.workers import Suite
from tfbench.sides.source_tree import ignored_modules, top_level
from tfbench.sides.yardstick import Yardstick
from tfbench.storage.baselines import HISTORY, JOURNAL, Layout
from tfbench.storage.history import is_url

_GATE = ("policy", "scale", "statistic", "gate_suite", "gate_device", "strict_gate", "require_gpu", "changed_only")
"""Options that decide what passes."""


def gate_options(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the words of those options that decide what passes."""
    values = {f"{PREFIX}{name.replace('_', '-')}": getattr(options, f"tfbench_{name}") for name in _GATE}
    return tuple(name if value is True else f"{name}={value}" for name, value in values.items() if value)


_KEPT = {"statistic", "device", "scale", "cpus", "require-gpu"}
_OF_TFBENCH = [(f"{start}{one.name}", one.metavar) for one in OPTIONS if one.name in _KEPT for start in ("--", PREFIX)]
_WITH_VALUE = {
    "-c", "-n", "-o", "-p", "--config-file", "--override-ini", "--rootdir", "--import-mode", "--numprocesses", "--dist",
    "--timeout", *(name for name, metavar in _OF_TFBENCH if metavar),
}  # fmt: skip
_FLAGS = {"--no-cov", *(name for name, metavar in _OF_TFBENCH if not metavar)}


def kept_options(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of pytest's command line that a case needs to run in the same way.

    They include options that disable a plugin's setting in ``addopts``, such as ``-n0``.
    """
    rest = iter(words)
    for word in rest:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if name in _WITH_VALUE or word in _FLAGS:
            yield word
            if word == name and name in _WITH_VALUE:
                yield from islice(rest, 1)


def parse_cpus(text: str) -> tuple[int, ...]:
    """Parse a list of processors, such as ``0,2-3``.

    Raises `UsageError` if the text is not a list, or this process may not use one of the processors.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        if not (match := re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)):
            raise UsageError(f"--cpus {text!r}: write processors as in 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        chosen.update(range(first, last + 1))
    if unusable := sorted(chosen - set(available_cpus())):
        usable = ",".join(map(str, available_cpus()))
        raise UsageError(f"--cpus {text}: processor {unusable[0]} is not available; choose from {usable}")
    if not chosen:
        raise UsageError(f"--cpus {text!r} names no processor")
    return tuple(sorted(chosen))


def suite_of(
    config: pytest.Config,
    names: Iterable[str],
    every: Iterable[str],
    variables: Mapping[str, str],
    imports_tensorflow: bool,
    other_tree: bool = False,
) -> Suite:
    """Return the benchmark files of the named cases, and how workers import them.

    Args:
        every: The cases of all shards.
        variables: The environment of the workers, without what their sides add.
        imports_tensorflow: Whether one of them does.
        other_tree: Whether a side has a source tree of its own.
    """
    root, inifile = config.rootpath, config.inipath
    top = top_level(root)
    configured = Path(os.path.relpath(inifile, root)).as_posix() if inifile else ""
    return Suite(
        files=tuple(dict.fromkeys(name.partition("::")[0] for name in names)),
        inifile=configured,
        yardstick=Yardstick(
            (*present_folders(config), *dict.fromkeys(name.partition("::")[0] for name in every)), configured
        ),
        import_mode=config.getoption("importmode"),
        made=str(Layout.of(root).shared_set_ups),
        cpus=available_cpus(),
        variables=variables,
        tree=str(top or ""),
        imports_tensorflow=imports_tensorflow,
        options=own_options(config)[0],
        ignored=ignored_modules(top) if top and other_tree else (),
    )


def own_options(config: pytest.Config) -> tuple[dict[str, Any], list[str]]:
    """Return the values that the run gives to options of the project's conftest.py files.

    Returns:
        Name in Python -> value, where it is not the default; and the names of those whose values no message can carry.
    """
    defaults = config.stash.get(OWN, {})
    known = {name: value for name in defaults if (value := getattr(config.option, name, None)) != defaults[name]}
    plain = {name: value for name, value in known.items() if _is_plain(value)}
    return plain, sorted(known.keys() - plain)


_REFUSED = {
    "benchmark_timer": "races take wall-clock time by time.perf_counter; leave the option out",
    "benchmark_compare_fail": "a race decides by itself; give --baseline NAME or --against git:REV, and limits in tfbench_thresholds",
    "benchmark_cprofile": "a profiler would slow the measured calls down; give --profile",
}
"""Option of pytest-benchmark without which the user would read a result otherwise -> what replaces it in a race."""
_PLANNED = "--policy plans its rounds"
_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("benchmark_min_time", "benchmark_max_time", "benchmark_min_rounds", "benchmark_precision", "benchmark_confidence",
         "benchmark_calibration_precision", "benchmark_warmup", "benchmark_warmup_iterations"), _PLANNED,
    ),
    "benchmark_disable_gc": "it collects garbage between its rounds only",
}  # fmt: skip
"""Other option of pytest-benchmark -> what a race does instead."""


def check_replaced(config: pytest.Config) -> None:
    """Raise `UsageError` if an option of pytest-benchmark asks for what no race does."""
    for name, why in _REFUSED.items():
        if _is_given(config, name):
            raise UsageError(f"{_written(name)}: {why}")


def without_effect(config: pytest.Config) -> dict[str, str]:
    """Return what a race does instead of options of pytest-benchmark -> the names of these, which change no result."""
    found: dict[str, str] = {}
    for name, why in _WITHOUT_EFFECT.items():
        if _is_given(config, name):
            found[why] = f"{found[why]}, {_written(name)}" if why in found else _written(name)
    return found


def _is_given(config: pytest.Config, name: str) -> bool:
    defaults = config.stash.get(DEFAULTS, {})
    return name in defaults and str(getattr(config.option, name, defaults[name])) != str(defaults[name])


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))


def worker_variables(before: Mapping[str, str], now: Mapping[str, str], other_tree: bool) -> dict[str, str]:
    """Return the environment of the workers of all sides: this one, without what this tree's benchmarks have set.

    What libraries read is as it was ``before`` a conftest.py or a benchmark was imported. Each side imports its own,
    which set the variables again, or set others. If a side has a source tree of its own (``other_tree``), all variables
    but tfbench's own are as before.
    """
    if other_tree:
        own = {name: value for name, value in now.items() if name.startswith("TFBENCH_")}
        return {name: value for name, value in before.items() if not name.startswith("TFBENCH_")} | own
    read_by_libraries = library_variables(now)
    free = {name: value for name, value in now.items() if name not in read_by_libraries}
    return free | library_variables(before)


def set_by_suite(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that conftest.py files and benchmarks have set ``now``, without those of pytest and tfbench."""
    own = ("PYTEST_", "TFBENCH_")
    return {name: value for name, value in now.items() if before.get(name) != value and not name.startswith(own)}


def with_statistic(policy: Policy, name: str) -> Policy:
    """Return the policy with the statistic of ``--statistic``, its own without one; raises `UsageError` if unknown."""
    if name and name not in STATISTICS:
        raise UsageError(f"--statistic {name!r}: use one of {', '.join(map(repr, STATISTICS))}")
    return dataclasses.replace(policy, statistic=name) if name else policy


def available_cpus() -> tuple[int, ...]:
    """Return the processors that this process may use, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def worker_processors(cpus: str | None, *, listing: bool = False) -> Processors:
    """Return the processors of the option --cpus, or the default ones without it. Every command that races asks first.

    With ``listing``, the cases are only listed, which works on every system.
    Raises `UsageError` if a race is impossible on this system, or the option is invalid.
    """
    if not listing:
        require_linux()
    return processors(parse_cpus(cpus) if cpus else None, available_cpus())


def parse_slowdown(text: str) -> float:
    """Parse the fraction of ``--inject-slowdown``. Raises `UsageError` if the text is not a number from 0 to 10."""
    if not 0 <= (fraction := read_number(text)) <= 10:
        raise UsageError(f"--inject-slowdown {text!r}: write a fraction from 0 to 10, such as 0.10 for 10% more work")
    return fraction


def parse_suite_limit(text: str | None, *, raced: bool, partial: str) -> float:
    """Parse the slowdown of ``--gate-suite``, such as ``0.5%`` or ``0.005``; return 0 for ``None``.

    Raises `UsageError` if the text is no fraction between 0 and 1, or the run cannot have a mean to judge.

    Args:
        raced: Whether the run has a baseline to race.
        partial: Option that lets it race a part of the suite only, ``""`` without one.
    """
    if text is None:
        return 0.0
    if not 0 < (limit := read_fraction(text)) < 1:
        raise UsageError(f"--gate-suite {text!r}: write the slowdown of the mean to find, such as 0.5% or 0.005")
    if not raced:
        raise UsageError("--gate-suite judges the mean of cases that race a baseline: add --against SPEC or --baseline")
    if partial:
        raise UsageError(f"--gate-suite needs a race of all cases in one run; run without {partial}")
    return limit


def read_number(value: Any) -> float:
    """Read a number; return NaN, which lies between no bounds, for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def read_fraction(text: str) -> float:
    """Read ``5%`` or ``0.05`` as `read_number` does."""
    return read_number(text[:-1]) / 100 if text.endswith("%") else read_number(text)


def parse_device_gate(text: str | None) -> float:
    """Parse the growth of ``--gate-device``, such as ``5%`` or ``0.05``; return 0 for ``None``.

    Raises `UsageError` if the text is no fraction between 0 and 0.5.
    """
    if text is not None and not 0 < read_fraction(text) < 0.5:
        raise UsageError(f"--gate-device {text!r}: write the growth to find, below half, such as 5% or 0.05")
    return read_fraction(text) if text else 0.0


def job_options(config: pytest.Config) -> dict[str, Any]:
    """Return the fields of `RunRequest` that the job of ``--job`` determines, ``{}`` without one.

    Raises `UsageError` if the job cannot be read, or another option contradicts it.
    """
    if not (path := setting(config, "job")):
        return {}
    from tfbench.fleet.jobs import load

    if setting(config, "shard") or not setting(config, "against") or not setting(config, "report_json"):
        raise UsageError("--job needs --against and --report-json, and excludes --shard; tfbench fleet job gives them")
    try:
        job = load(Path(path))
    except TfbenchError as error:
        raise UsageError(f"--job: {error}") from None
    journal = Path(setting(config, "report_json")).with_name(JOURNAL)
    return {"job": job.part, "seed": job.seed, "session_name": job.session, "journal": journal}


def given_folder(config: pytest.Config, given: str, default: str) -> Path:
    """Return the folder of an option. The default is below pytest's root, and others where pytest was started."""
    return config.rootpath / default if given in ("", default) else config.invocation_params.dir / given


def given_history(config: pytest.Config, given: str | None) -> str | Path | None:
    """Return the place of ``--history``, ``None`` without it."""
    if not given:
        return None
    place = (HISTORY_PLACES[config.pluginmanager] or given) if given == HISTORY else given
    return place if is_url(place) else given_folder(config, place, HISTORY)


def check_folder(config: pytest.Config, option: str, path: str) -> None:
    """Refuse a file in place of a folder, and a path that pytest would take for a test. Raises `UsageError`."""
    check_not_taken_for_test(config, option, path)
    if path and not is_url(path) and (config.invocation_params.dir / path).is_file():
        raise UsageError(f"{option} {path}: this is a file; name a folder")


def check_not_taken_for_test(config: pytest.Config, option: str, path: str) -> None:
    """Refuse a path that pytest would take for a test, and its folder for the root.

    pytest parses its arguments before it knows the options of plugins.
    Raises `UsageError` if the path exists outside the current folder.
    """
    given = config.invocation_params
    if (
        path
        and path in given.args
        and Path(path).exists()
        and not Path(path).resolve().is_relative_to(given.dir.resolve())
    ):
        raise UsageError(
            f"{option} {path}: pytest takes an existing path outside this folder for a test; "
            f"write {option}={path}, with an equals sign"
        )
