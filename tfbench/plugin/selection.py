"""Tell which of pytest's items are cases, benchmarks of ours and plain tests of pytest-benchmark, and take these over."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn
from unittest import TestCase

import pytest
from _pytest.unittest import TestCaseFunction  # pytest offers it nowhere else

from tfbench.model import Case
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


def is_benchmark(item: pytest.Item, adopting: bool) -> bool:
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


def selecting_options(config: pytest.Config, device: str) -> tuple[str, ...]:
    """Return the options that selected the cases, to select the same cases in another source tree.

    Args:
        device: The kind of devices that the run is for.
    """
    option = config.getoption
    given = [("-k", option("keyword")), ("-m", option("markexpr")), ("--device", device)]
    given += [("--deselect", prefix) for prefix in option("deselect") or []]
    return tuple(word for name, value in given if value for word in (name, value))
