"""Tell which of pytest's items are cases, benchmarks of ours and plain tests of pytest-benchmark, and take these over."""

from __future__ import annotations

import argparse
import inspect
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeGuard
from unittest import TestCase

import pytest
from _pytest.unittest import TestCaseFunction  # pytest offers it nowhere else

from tfbench.gpus.selection import parse_device
from tfbench.model import Case
from tfbench.plugin import STARTED_WITH, whole_suite
from tfbench.sides.counterparts import Selection
from tfbench.suite.shards import Shard


class MisnamedFile(pytest.File):
    """Stands for a file whose name is not UTF-8, which no report, baseline or option can state."""

    def collect(self) -> NoReturn:
        """Refuse the file, as pytest refuses a file that it cannot import."""
        raise self.CollectError("its name is not UTF-8; rename the file or its folder")


def misnamed(path: Path, parent: pytest.Collector) -> MisnamedFile | None:
    """Return a collector that refuses the file, ``None`` if its name below pytest's root is UTF-8."""
    name = os.path.relpath(path, parent.config.rootpath)
    shown = name.encode(errors="replace").decode()
    return None if shown == name else MisnamedFile.from_parent(parent, path=path, nodeid=shown)


def adopts(config: pytest.Config) -> bool:
    """Tell whether plain pytest-benchmark tests are cases: if the run compares them, saves them or only collects."""
    return any(config.getoption(name) for name in ("against", "baseline", "save_baseline", "collectonly"))


def is_benchmark(item: pytest.Item, adopting: bool) -> TypeGuard[pytest.Function]:
    """Tell whether the item is a test function that takes ``bench``, or ``benchmark`` if plain tests are cases too."""
    names = item.fixturenames if isinstance(item, pytest.Function) else ()
    return "bench" in names or (adopting and is_plain(item))


def is_plain(item: pytest.Item) -> bool:
    """Tell whether the item is a plain pytest-benchmark test."""
    names = getattr(item, "fixturenames", ())
    return isinstance(item, pytest.Function) and "benchmark" in names and "bench" not in names


def in_shard(item: pytest.Item, shard: Shard | None) -> bool:
    """Tell whether a plain pytest-benchmark test that is no case belongs to this shard."""
    return shard is None or shard.has(Case(item.nodeid, "", item.nodeid.partition("[")[0]))


def places(items: Sequence[pytest.Item]) -> dict[str, tuple[int, int]]:
    """Return the place of each item among those of its function, by name, see `Case.place`."""
    names: dict[str, list[str]] = {}
    for item in items:
        names.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    return {name: (place, len(alike)) for alike in names.values() for place, name in enumerate(alike)}


def constructor_of(collector: pytest.Collector) -> str:
    """Return why pytest collects none of the benchmarks of a class, ``""`` if it does or if the class has none."""
    if not isinstance(collector, pytest.Class) or issubclass(kind := collector.obj, TestCase):
        return ""
    found = next((name for name in ("__init__", "__new__") if getattr(kind, name) is not getattr(object, name)), "")
    methods = [value for name, value in inspect.getmembers(kind, inspect.isfunction) if name.startswith("test")]
    if not found or not any({"bench", "benchmark"} & set(inspect.signature(method).parameters) for method in methods):
        return ""
    return f"{collector.name} has a constructor ({found}), so pytest collects none of its tests; use setup_method or a fixture"


def unknown_fixture(item: pytest.Item) -> str:
    """Return the first argument of a test that is no fixture, such as a misspelt ``bench``; ``""`` without one."""
    if not isinstance(item, pytest.Function):
        return ""
    known = {*item._fixtureinfo.name2fixturedefs, "request", *getattr(getattr(item, "callspec", None), "params", ())}
    return next((name for name in item.fixturenames if name not in known), "")


def take_over(item: pytest.Function, run: Callable[[pytest.Function], None]) -> None:
    """Have an item run its case. The worker sets up its own fixtures; here pytest-benchmark stores the sample.

    Args:
        run: Runs the case. pytest calls it by a hook, except for methods of unittest's classes.
    """
    fixtures = item._fixtureinfo.name2fixturedefs.get("benchmark", ())
    # A conftest.py that replaces the fixture must not act here either.
    own = not fixtures or fixtures[-1].func.__module__.startswith("pytest_benchmark.")
    item.fixturenames = ["benchmark"] if own else []
    if isinstance(item, TestCaseFunction):
        item.runtest = partial(run, item)  # type: ignore[method-assign]


def by_environment(items: Sequence[pytest.Item], cases: Mapping[str, Case]) -> list[pytest.Item]:
    """Put items of one start-up environment together. Where cases race alone, every change costs new zygotes."""
    groups: dict[tuple[tuple[str, str], ...], list[pytest.Item]] = {}
    for item in items:
        case = cases.get(item.nodeid)
        groups.setdefault(case.env if case else (), []).append(item)
    return [item for group in groups.values() for item in group]


def given(config: pytest.Config) -> argparse.Namespace:
    """Parse the options of the command line and of ``PYTEST_ADDOPTS`` alone, without those of the configuration file.

    A source tree has a configuration of its own, which must not select the cases of another one.
    """
    words = [*shlex.split(STARTED_WITH.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    return config._parser.parse_known_args(words, argparse.Namespace())


_ONCE = {"keyword": "-k", "markexpr": "-m", "policy": "--policy"}
_REPEATED = {"deselect": "--deselect", "override_ini": "-o"}
_PATHS = {"ignore": "--ignore", "ignore_glob": "--ignore-glob"}


def selection_of(config: pytest.Config, policy: str) -> Selection:
    """Return what the user selected, to select the same cases in another source tree.

    Args:
        policy: Name of the run's policy.
    """
    options, root, start = given(config), config.rootpath, config.invocation_params.dir

    def below_root(path: str) -> str:
        file, colons, case = path.partition("::")
        return os.path.relpath(start / file, root).replace(os.sep, "/") + colons + case

    words = [word for name, option in _ONCE.items() if (value := getattr(options, name)) for word in (option, value)]
    for name, option in _REPEATED.items():
        words += [word for value in getattr(options, name) or [] for word in (option, value)]
    ignored = {name: [below_root(path) for path in getattr(options, name) or []] for name in _PATHS}
    words += [word for name, paths in ignored.items() for path in paths for word in (_PATHS[name], path)]
    if options.device:
        words += ["--device", parse_device(options.device)[0]]
    paths = [below_root(path) for path in options.file_or_dir]
    if not paths and not whole_suite(config) and config.args_source is not pytest.Config.ArgsSource.ARGS:
        paths = [below_root(".")]
    inifile = below_root(options.inifilename) if options.inifilename else ""
    return Selection(tuple(words), tuple(paths), tuple(ignored["ignore"]), policy, inifile)
