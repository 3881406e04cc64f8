"""Turn pytest's items into cases: which items are benchmarks, their marks, and the code that identifies them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NoReturn, TypeGuard
from unittest import TestCase

import pytest
from _pytest.unittest import TestCaseFunction  # pytest offers it nowhere else

from tfbench.errors import DeclarationError, SideError
from tfbench.facts import interpreter_options
from tfbench.imports import PACKAGE, is_below, is_installed
from tfbench.model import JSON, STATISTICS, THRESHOLDS, Case
from tfbench.model.formats import Name, convert
from tfbench.plugin import takes_bench
from tfbench.plugin.options import COMMAND, own_options
from tfbench.policy import Policy
from tfbench.session.options import read_number
from tfbench.sides.counterparts import collect as run_collection
from tfbench.stats.alpha_spending import completed
from tfbench.suite.axes import Variant
from tfbench.suite.claims import claims_of
from tfbench.suite.functions import TF_TEST_ERROR, digest, dump, function_of, listed
from tfbench.suite.tensorflow_stub import StubError
from tfbench.untrusted import an_object, brief, described, printable

# Collect ``tf.test.Benchmark`` classes in the controller, by their names only: another process imports their files


_SECONDS = 300.0
"""Time limit for the import of all these files."""
_LISTING: pytest.StashKey[JSON] = pytest.StashKey()


class _Listed(pytest.Function):
    """An item without a module, for whose headings pytest would join the names of its folders by dots."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return *super().reportinfo()[:2], self.name


class ListedFile(pytest.File):
    """A file with ``tf.test.Benchmark`` classes, of which the controller knows the names."""

    def collect(self) -> Iterator[pytest.Function]:
        config = self.config
        if _LISTING not in config.stash:
            config.stash[_LISTING] = _listing(config)
        names = dict(an_object(config.stash[_LISTING].get(self.nodeid, {}), self.nodeid))
        if error := names.pop(TF_TEST_ERROR, ""):
            raise self.CollectError(error)
        for name, code in names.items():
            yield _Listed.from_parent(self, name=name, callobj=function_of(_never, code))


def _never(bench: object) -> None:
    raise AssertionError("the measuring processes run it")


def _listing(config: pytest.Config) -> JSON:
    """Return file -> name of a benchmark -> digest of its code, or `TF_TEST_ERROR` -> text."""
    root = config.rootpath
    request = {
        "root": str(root),
        "files": [str(path) for path in listed(config)],
        "import_mode": config.getoption("importmode"),
        "inifile": str(config.inipath or ""),
    }
    command = [sys.executable, *interpreter_options(), "-m", "tfbench.worker.adopted"]
    try:
        return run_collection(command, request, root, _SECONDS, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    except SideError as error:
        why = ": ".join([error.headline, *error.rest.splitlines()[-1:]])
        raise pytest.UsageError(f"tf.test.Benchmark: {why}") from None


# Collect a module that uses values of TensorFlow while it is imported, in a process with the real one


CASE: pytest.StashKey[Case] = pytest.StashKey()
"""The case of an item that another process has collected."""
STUBBED = (StubError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""Errors of modules that take a stub for a value."""
ELSEWHERE: JSON = {}
"""What this process was asked to collect, if it collects another source tree."""


class RealModule(pytest.File):
    """Stands for a module that was collected with the real TensorFlow."""

    listing: JSON
    """Name of a case -> what the process with TensorFlow says of it."""

    def collect(self) -> Iterator[pytest.Function]:
        """Yield the items of the listed cases.

        Raises `ValueError`, `KeyError` or `TypeError` if the list is damaged.
        """
        for name, content in self.listing.items():
            case = convert(Case, content["case"])
            function = function_of(_never, case.source, "benchmark" if content["plain"] else "bench")
            item: pytest.Function = _Listed.from_parent(
                self, name=name.removeprefix(f"{self.nodeid}::"), callobj=function
            )
            item.stash[CASE] = case
            for mark in content["marks"]:
                item.add_marker(mark)
            if content["skip"] is not None:
                item.add_marker(pytest.mark.skip(reason=content["skip"]))
            yield item


def with_real_tensorflow(module: pytest.Module, policy: Policy) -> list[pytest.Function]:
    """Collect a module in a process with the real TensorFlow, and return its benchmarks.

    Raises `SideError` if it cannot be collected there either.
    """
    config, parent = module.config, module.parent
    assert parent is not None
    options = ["--import-mode", config.getoption("importmode"), "--tfbench-policy", policy.name]
    for name in ("statistic", "scale"):
        if value := config.getoption(f"tfbench_{name}"):
            options += [f"--tfbench-{name}", value]
    inifile = str(config.inipath or "")
    order: JSON = {
        "root": str(config.rootpath),
        "arguments": [*options, *(["-c", inifile] if inifile else []), str(module.path)],
        "tree_redirect": None,
        **{name: value for name, value in ELSEWHERE.items() if name in ("tree_redirect", "inifile", "above")},
        "values": own_options(config)[0],
        "real": True,
    }
    listing = run_collection(COMMAND, order, config.rootpath, _SECONDS, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    try:
        module_node: RealModule = RealModule.from_parent(parent, path=module.path)
        module_node.listing = listing
        return list(module_node.collect())
    except (ValueError, KeyError, TypeError) as error:
        raise SideError(f"the list of its benchmarks is damaged ({described(error)})") from None


# Refuse a file whose name no report can state


_UNFIT = re.compile(r"::|[\[<>`\\\t\n]")
"""What pytest takes for the end of a file's name, or no report may have in the name of a case."""


class MisnamedFile(pytest.File):
    """Stands for a file whose name no report, baseline or option can state."""

    unfit: Sequence[str]

    def collect(self) -> NoReturn:
        """Refuse the file, as pytest refuses a file that it cannot import."""
        fault = f"its name has {self.unfit[0]!a}, which the name of a case cannot have"
        raise self.CollectError(f"{fault}; rename the file or its folder")


def misnamed(path: Path, parent: pytest.Collector) -> MisnamedFile | None:
    """Return a collector that refuses the file, ``None`` if the name of a case can have its name below pytest's root."""
    name = os.path.relpath(path, parent.config.rootpath)
    unfit = [*_UNFIT.findall(name), *(char for char in name if printable(char) != char)]
    if not unfit:
        return None
    shown = "".join("?" if char in unfit else char for char in name)
    refused: MisnamedFile = MisnamedFile.from_parent(parent, path=path, nodeid=shown)
    refused.unfit = unfit
    return refused


# Tell which items are cases, benchmarks of ours and plain tests of pytest-benchmark, and take these over


def is_benchmark(item: pytest.Item, adopting: bool) -> TypeGuard[pytest.Function]:
    """Tell whether the item is a test function that takes ``bench``, or ``benchmark`` if plain tests are cases too."""
    return takes_bench(item) or (adopting and is_plain(item))


def is_plain(item: pytest.Item) -> bool:
    """Tell whether the item is a plain pytest-benchmark test."""
    names = getattr(item, "fixturenames", ())
    return isinstance(item, pytest.Function) and "benchmark" in names and not takes_bench(item)


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
    defined = next((name for name in ("__init__", "__new__") if getattr(kind, name) is not getattr(object, name)), "")
    methods = [value for name, value in inspect.getmembers(kind, inspect.isfunction) if name.startswith("test")]
    if not defined or not any({"bench", "benchmark"} & set(inspect.signature(method).parameters) for method in methods):
        return ""
    return f"{collector.name} has a constructor ({defined}), so pytest collects none of its tests; use setup_method or a fixture"


def unknown_fixture(item: pytest.Item) -> str:
    """Return the first argument of a test that is no fixture, such as a misspelt ``bench``; ``""`` without one."""
    if not isinstance(item, pytest.Function):
        return ""
    known = {*item._fixtureinfo.name2fixturedefs, "request", *getattr(getattr(item, "callspec", None), "params", ())}
    return next((name for name in item.fixturenames if name not in known), "")


def take_over(item: pytest.Function, run: Callable[[pytest.Function], None]) -> None:
    """Have an item run its case. The worker sets up its own fixtures; here pytest-benchmark stores the sample.

    pytest calls ``run`` by a hook, except for methods of unittest's classes.
    """
    fixtures = item.session._fixturemanager.getfixturedefs("benchmark", item) or ()
    # A conftest.py that replaces the fixture must not act here either, and the plugin may be absent (-p no:benchmark).
    own = any(fixture.func.__module__.startswith("pytest_benchmark.") for fixture in fixtures[-1:])
    item.fixturenames = ["benchmark"] if own else []
    if isinstance(item, TestCaseFunction):
        item.runtest = partial(run, item)  # type: ignore[method-assign]


def by_environment(items: Sequence[pytest.Item], cases: Mapping[str, Case]) -> list[pytest.Item]:
    """Put items of one start-up environment together. Where cases race alone, every change costs new zygotes."""
    envs = [case.env if (case := cases.get(item.nodeid)) else () for item in items]
    return [item for env in dict.fromkeys(envs) for item, own in zip(items, envs, strict=True) if own == env]


# Make the case of an item


def case_of(item: pytest.Function, place: tuple[int, int], policy: Policy) -> Case:
    """Turn a benchmark's item into its case.

    Raises `DeclarationError` if no file can have its name, the ``tfbench`` mark has unknown arguments, a contract
    names no variant, or a plugin of the repository takes part that measuring processes lack.
    """
    try:
        convert(Name, item.nodeid)
    except ValueError:
        fix = "a name has at most 2,000 characters, none of them a line break or a tab; give its parameters shorter ids"
        raise DeclarationError(f"{brief(item.nodeid)}: {fix}") from None
    if plugin := _unloaded_plugin(item):
        fix = f'name it in the conftest.py of the root: pytest_plugins = ["{plugin}"]'
        raise DeclarationError(f"{item.nodeid}: measuring processes do not load the plugin {plugin}; {fix}")
    try:
        marked = _marked(item, policy)
    except ValueError as error:
        raise DeclarationError(f"{item.nodeid}: @pytest.mark.tfbench: {error}") from None
    variant, others = Variant(), ""
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        others = callspec.id
        if isinstance(given := callspec.params.get("variant"), Variant):
            variant, others = given, callspec.id.replace(given.id, "", 1).strip("-")
    workload = item.originalname
    base = item.nodeid.partition("[")[0]
    return Case(
        name=item.nodeid, workload=workload, group=f"{base}[{others}]" if others else base, variant=tuple(variant),
        reference=variant.reference, env=tuple(sorted(variant.env.items())),
        source=digest(item.function), file=_file_digest(str(item.path)), claims=claims_of(item, variant),
        shared="shared" in item.fixturenames, place=place,
        alone=isinstance(item.parent, ListedFile), **marked,
    )  # fmt: skip


_HOOKS = (
    "pytest_fixture_setup", "pytest_pyfunc_call",
    *(f"pytest_runtest_{step}" for step in ("protocol", "setup", "call")),
)  # fmt: skip
"""Hooks of pytest around a benchmark, which can do what its fixtures can. The others select, configure and report."""


def _unloaded_plugin(item: pytest.Function) -> str:
    """Return the plugin of the repository whose hooks or autouse fixtures the item has and no other plugin names.

    The run has it by ``-p`` or a variable, which measuring processes leave out. They report a fixture that they miss, unless
    nothing asks for it by name. Returns ``""`` if there is none.
    """
    root, manager = str(item.config.rootpath), item.config.pluginmanager
    plugins = [plugin for plugin in manager.get_plugins() if inspect.ismodule(plugin)]
    # Neither a conftest.py nor an entry point has the name of its module.
    by_name = {plugin.__name__: plugin for plugin in plugins if manager.get_name(plugin) == plugin.__name__}
    own = {name for name, plugin in by_name.items() if _is_own(getattr(plugin, "__file__", None) or "", root)}
    if not own:
        return ""
    for plugin in plugins:
        names = getattr(plugin, "pytest_plugins", ())
        own -= {names} if isinstance(names, str) else set(names)
    info = item._fixtureinfo
    asked_for = {*info.argnames, *(name for mark in item.iter_markers("usefixtures") for name in mark.args)}
    autouse = (info.name2fixturedefs.get(name, ()) for name in info.initialnames if name not in asked_for)
    used = {definition.func.__module__ for definitions in autouse for definition in definitions}
    used |= {name for name in own if any(hasattr(by_name[name], hook) for hook in _HOOKS)}
    return min(own & used, default="")


def _is_own(file: str, root: str) -> bool:
    return is_below(file, root) and not is_below(file, PACKAGE) and not is_installed(file, root)


STATISTIC = "statistic"
"""The argument of the mark that says what a verdict on time is about."""
_ARGUMENTS = {"cpus", "gate", "reason", STATISTIC, *THRESHOLDS}


def _marked(item: pytest.Item, policy: Policy) -> JSON:
    """Return the fields of a case that the marks ``tfbench`` of its item set; the closest mark counts.

    Raises `ValueError` if an argument is unknown, or its value is invalid.
    """
    given: JSON = {}
    for mark in reversed(list(item.iter_markers("tfbench"))):
        if mark.args or set(mark.kwargs) - _ARGUMENTS:
            raise ValueError(f"it takes only {', '.join(sorted(_ARGUMENTS))}")
        given |= {"reason": "", **mark.kwargs} if "gate" in mark.kwargs else mark.kwargs
    cpus, gate, why = given.get("cpus", 1), given.get("gate", True), given.get("reason", "")
    if cpus != "all" and (type(cpus) is not int or cpus < 1):
        raise ValueError(f"cpus={cpus!r}: write a number of processors such as 2, or 'all'")
    if not isinstance(gate, bool) or not isinstance(why, str) or gate == bool(why.strip()):
        raise ValueError('write gate=False, reason="why it must not fail a run"')
    if (statistic := given.get(STATISTIC, "")) not in ("", *STATISTICS):
        raise ValueError(f"{STATISTIC}={statistic!r}: use one of {', '.join(map(repr, STATISTICS))}")
    own = {name: _fraction(name, given[name]) for name in THRESHOLDS if name in given}
    return {
        "cpus": 0 if cpus == "all" else cpus, "ungated": printable(" ".join(why.split())), STATISTIC: statistic,
        "thresholds": tuple(completed(own, policy).items()) if own else (),
    }  # fmt: skip


def _fraction(name: str, value: object) -> float:
    if not 0 < (fraction := read_number(value)) < 1:
        raise ValueError(f"{name}={value}: write a fraction between 0 and 1, such as 0.05 for 5%")
    return fraction


@cache
def _file_digest(file: str) -> str:
    """Return a digest of the code of a file without layout, comments and docstrings; ``""`` if it cannot be read."""
    try:
        return hashlib.sha256(dump(ast.parse(Path(file).read_bytes())).encode()).hexdigest()[:16]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ""
