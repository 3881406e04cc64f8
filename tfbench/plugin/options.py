"""Parse the values of options."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import random
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import interpreter_options, library_variables, unusable_option
from tfbench.fs import require_linux
from tfbench.gpus.selection import parse_device
from tfbench.plugin import DEFAULTS, OWN, STARTED_WITH, only_lists, whole_suite
from tfbench.race.lanes import Processors, processors
from tfbench.session.options import GATE, OPTIONS, PREFIX, RunOptions
from tfbench.sides.counterparts import Selection
from tfbench.storage.baselines import HISTORY, HISTORY_VARIABLE, JOURNAL


def gate_options(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the words of those options that decide what passes."""
    values = {PREFIX + one.name: getattr(options, f"tfbench_{one.setting}") for one in OPTIONS if GATE in one.roles}
    return tuple(name if value is True else f"{name}={value}" for name, value in values.items() if value)


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
    "benchmark_compare_fail": "a race decides by itself; give --baseline NAME or --against git:REV, with @pytest.mark.tfbench(minimum_effect=…), or @at_most(seconds=…)",
    "benchmark_cprofile": "a profiler would slow the measured calls down; give --profile",
}
"""Option of pytest-benchmark without which the user would read a result otherwise -> what replaces it in a race."""
WITHOUT_EFFECT = (
    "benchmark_calibration_precision", "benchmark_confidence", "benchmark_disable_gc", "benchmark_max_time", "benchmark_min_rounds",
    "benchmark_min_time", "benchmark_precision", "benchmark_warmup", "benchmark_warmup_iterations",
)  # fmt: skip
"""Other options of pytest-benchmark that change no result of a race."""


def is_given(config: pytest.Config, name: str) -> bool:
    """Tell whether an option of another plugin has another value than its default."""
    defaults = config.stash.get(DEFAULTS, {})
    return name in defaults and str(getattr(config.option, name, defaults[name])) != str(defaults[name])


def written(name: str) -> str:
    """Return an option as the command line has it."""
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


def set_by_suite() -> dict[str, str]:
    """Return the variables that conftest.py files and benchmarks have set, without those of pytest and tfbench."""
    own = ("PYTEST_", "TFBENCH_")
    known = os.environ.items()
    return {name: value for name, value in known if STARTED_WITH.get(name) != value and not name.startswith(own)}


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


def check_options(config: pytest.Config, options: RunOptions) -> None:
    """Raise `UsageError` if options contradict each other, or a plugin of pytest takes the processes that a run needs."""
    listing, raced = only_lists(config), bool(options.against or options.baseline)
    if unusable := unusable_option():
        raise UsageError(unusable)
    if options.against and options.baseline:
        raise UsageError("--against and --baseline both name the other side; give only one of them")
    if options.job and (options.shard or not options.against or not options.report_json):
        raise UsageError("--job needs --against and --report-json, and excludes --shard; tfbench fleet job gives them")
    parts = {"--shard": options.shard, "--job": options.job, "--changed-only": options.changed_only}
    whole = "--gate-suite" if options.gate_suite else "--save-baseline" if options.save_baseline else ""
    if whole and (partial := next((name for name, given in parts.items() if given), "")):
        raise UsageError(f"{whole} needs all cases in one run; run without {partial}")
    for option, path in (("--profile", options.profile), ("--history", options.history)):
        if path and (config.invocation_params.dir / path).is_file():
            raise UsageError(f"{option} {path}: this is a file; name a folder")
    if listing:
        return
    if options.inject_slowdown and not raced:
        raise UsageError("--inject-slowdown slows down the contender of a comparison; add --against self")
    if options.gate_suite and not raced:
        raise UsageError("--gate-suite judges the mean of cases that race a baseline: add --against SPEC or --baseline")
    if options.changed_only and not options.against:
        raise UsageError("--changed-only compares the code of two sides; add --against git:REV")
    # pytest-xdist registers its scheduler later than this.
    if hasattr(config, "workerinput") or (config.getoption("tx", None) and config.getoption("dist", "no") != "no"):
        raise UsageError("pytest-xdist's -n would measure in parallel: add -n 0; --lanes N races N cases at a time")
    if config.getoption("forked", False):
        raise UsageError("each case is measured in processes of its own already; run it without --forked")
    for name, why in _REFUSED.items():
        if is_given(config, name):
            raise UsageError(f"{written(name)}: {why}")


def job_of(options: RunOptions) -> dict[str, Any]:
    """Return the fields of `RunRequest` that the job of ``--job`` determines. Raises `UsageError` if it cannot be read."""
    if not options.job:
        return {"seed": random.SystemRandom().randrange(2**32)}
    from tfbench.fleet.jobs import load

    try:
        job = load(Path(options.job))
    except TfbenchError as error:
        raise UsageError(f"--job: {error}") from None
    journal = Path(options.report_json).with_name(JOURNAL)
    return {"part": job.part, "seed": job.seed, "session_name": job.session, "journal": journal}


def given_folder(config: pytest.Config, given: str, default: str) -> Path:
    """Return the folder of an option. The default is below pytest's root, and others where pytest was started."""
    return config.rootpath / default if given in ("", default) else config.invocation_params.dir / given


def history_of(config: pytest.Config, given: str) -> str:
    """Return the folder of ``--history``, ``""`` without it."""
    place = (os.environ.get(HISTORY_VARIABLE) if given == HISTORY else "") or given
    return str(given_folder(config, place, HISTORY)) if place else ""


# What the user selected, for another process that has to select the same


COMMAND = (sys.executable, *interpreter_options(), "-m", "tfbench.plugin.collect")
"""Collects another source tree, see `sides.counterparts`."""


def given(config: pytest.Config) -> argparse.Namespace:
    """Parse the options of the command line and of ``PYTEST_ADDOPTS`` alone, without those of the configuration file.

    A source tree has a configuration of its own, which must not select the cases of another one. Options of tfbench that are
    not given are ``None``, since a default would replace what that configuration says.
    """
    words = [*shlex.split(STARTED_WITH.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    nothing = argparse.Namespace(**dict.fromkeys(f"tfbench_{option.setting}" for option in OPTIONS))
    return config._parser.parse_known_args(words, nothing)


PLUGIN = "-p"
_ONCE = {"keyword": "-k", "markexpr": "-m"}
_REPEATED = {"deselect": "--deselect", "override_ini": "-o", "plugins": PLUGIN}
_PATHS = {"ignore": "--ignore", "ignore_glob": "--ignore-glob"}


def selection_of(config: pytest.Config, options: argparse.Namespace, policy: str) -> Selection:
    """Return what the user selected by the `given` options, to select the same cases in another source tree."""
    root, start = config.rootpath, config.invocation_params.dir

    def below_root(path: str, module: bool = False) -> str:
        file, colons, case = path.partition("::")
        place = Path(os.path.abspath(start / ((module and place_of_module(file)) or file)))
        if place.is_relative_to(root):  # as pytest writes it in the names of cases
            return place.relative_to(root).as_posix() + colons + case
        return os.path.relpath(place.resolve(), root.resolve()).replace(os.sep, "/") + colons + case

    words = [word for name, option in _ONCE.items() if (value := getattr(options, name)) for word in (option, value)]
    for name, option in _REPEATED.items():
        words += [word for value in getattr(options, name) or [] for word in (option, value)]
    ignored = {name: [below_root(path) for path in getattr(options, name) or []] for name in _PATHS}
    words += [word for name, paths in ignored.items() for path in paths for word in (_PATHS[name], path)]
    words += gate_options(options)
    words += ["--import-mode", config.getoption("importmode")]  # as in all workers, whatever the other tree's file says
    if options.tfbench_device:
        words += ["--tfbench-device", parse_device(options.tfbench_device)[0]]
    paths = [below_root(path, config.getoption("pyargs")) for path in options.file_or_dir]
    if not paths and not whole_suite(config) and config.args_source is not pytest.Config.ArgsSource.ARGS:
        paths = [below_root(".")]
    inifile = below_root(options.inifilename) if options.inifilename else ""
    cache = getattr(config, "cache", None)
    failed = getattr(options, "lf", False) and cache is not None and cache.get("cache/lastfailed", {})
    reruns = bool(failed or getattr(options, "stepwise", False) or getattr(options, "stepwise_skip", False))
    values, _ = own_options(config)
    variables = worker_variables(STARTED_WITH, os.environ, other_tree=True)
    above = below_root(str(config.pluginmanager._confcutdir or root))
    return Selection(
        tuple(words), tuple(paths), tuple(ignored["ignore"]), policy, inifile, values, reruns, above, variables
    )


def place_of_module(name: str) -> str:
    """Return the file or folder that pytest's option ``--pyargs`` takes an argument for, ``""`` if it names no module."""
    try:
        spec = importlib.util.find_spec(name)
    except (AttributeError, ImportError, ValueError):  # the argument is a path
        return ""
    if spec is None or not spec.submodule_search_locations:
        return (spec and spec.origin) or ""
    return spec.submodule_search_locations[0]
