"""Collect the benchmarks with pytest: of this tree, of another one, and of files that only a worker imports."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks  # pytest offers it nowhere else

from tfbench.errors import DeclarationError, SideError, UsageError
from tfbench.facts import interpreter_options
from tfbench.fs import scratch_dir, write_whole
from tfbench.gpus.selection import parse_device
from tfbench.imports import FolderByFolder, enter, redirect_imports
from tfbench.model import JSON, THRESHOLDS, Case
from tfbench.model.formats import convert, line
from tfbench.plugin import OPTIONS, RUNNER, STARTED_WITH, setting, takes_bench, whole_suite
from tfbench.plugin.options import gate_options, own_options, worker_variables
from tfbench.policy import Policy
from tfbench.race.workers import Suite
from tfbench.report.screen import say
from tfbench.sides.counterparts import Benchmark, Listing, Selection
from tfbench.sides.counterparts import collect as run_collection
from tfbench.sides.yardstick import ini_file
from tfbench.storage.baselines import HISTORY_VARIABLE
from tfbench.suite import tensorflow_stub
from tfbench.suite.functions import TF_TEST_ERROR, function_of, listed
from tfbench.suite.tensorflow_stub import StubError
from tfbench.untrusted import an_object, described, printable, render_json, some

if TYPE_CHECKING:
    from tfbench.plugin.runner import Runner


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
        raise pytest.UsageError(
            f"tf.test.Benchmark: {': '.join([error.headline, *error.rest.splitlines()[-1:]])}"
        ) from None


# Collect a module that uses values of TensorFlow while it is imported, in a process with the real one


CASE: pytest.StashKey[Case] = pytest.StashKey()
"""The case of an item that another process has collected."""
_STUBBED = (StubError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""Errors of modules that take a stub for a value."""
_ELSEWHERE: JSON = {}
"""What this process was asked to collect, if it collects another source tree."""
_LEFT_OUT = {"parametrize", "usefixtures", "skip", "skipif", "xfail"}
"""Marks that the other process has applied already."""


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


def may_need_tensorflow(collector: pytest.Collector, error: BaseException | None) -> TypeGuard[pytest.Module]:
    """Tell whether an error may come from the stub of TensorFlow."""
    return isinstance(collector, pytest.Module) and isinstance(error, _STUBBED)


def with_real_tensorflow(module: pytest.Module, policy: Policy) -> list[pytest.Function]:
    """Collect a module in a process with the real TensorFlow, and return its benchmarks.

    Raises `SideError` if it cannot be collected there either.
    """
    config, parent = module.config, module.parent
    assert parent is not None
    options = ["--import-mode", config.getoption("importmode"), "--tfbench-policy", policy.name]
    for name in ("statistic", "scale"):
        if value := setting(config, name):
            options += [f"--tfbench-{name}", value]
    inifile = str(config.inipath or "")
    order: JSON = {
        "root": str(config.rootpath),
        "arguments": [*options, *(["-c", inifile] if inifile else []), str(module.path)],
        "tree_redirect": None,
        **{name: value for name, value in _ELSEWHERE.items() if name in ("tree_redirect", "inifile", "above")},
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


def _listed_with_tensorflow(collected: Collected) -> JSON:
    def content(case: Case) -> JSON:
        item = collected.functions[case.name]
        skip, plain = evaluate_skip_marks(item), not takes_bench(item)
        marks = sorted({mark.name for mark in item.iter_markers()} - _LEFT_OUT)
        return {"case": dataclasses.asdict(case), "plain": plain, "marks": marks, "skip": skip and skip.reason}

    return {name: content(case) for name, case in collected.cases.items()}


# Refuse a file whose name no report can state


_UNFIT = re.compile(r"::|[\[<>`\\\t\n]")
"""What pytest takes for the end of a file's name, or no report may have in the name of a case."""


class MisnamedFile(pytest.File):
    """Stands for a file whose name no report, baseline or option can state."""

    fault: str

    def collect(self) -> NoReturn:
        """Refuse the file, as pytest refuses a file that it cannot import."""
        raise self.CollectError(f"its name {self.fault}; rename the file or its folder")


def misnamed(path: Path, parent: pytest.Collector) -> MisnamedFile | None:
    """Return a collector that refuses the file, ``None`` if the name of a case can have its name below pytest's root."""
    name = os.path.relpath(path, parent.config.rootpath)
    shown, fault = name.encode(errors="replace").decode(), "is not UTF-8"
    unfit = [*_UNFIT.findall(shown), *(char for char in shown if printable(char) != char)]
    if shown == name:
        if not unfit:
            return None
        fault = f"has {unfit[0]!a}, which the name of a case cannot have"
    shown = "".join("?" if char in unfit and char != "[" else char for char in shown)
    refused: MisnamedFile = MisnamedFile.from_parent(parent, path=path, nodeid=shown)
    refused.fault = fault
    return refused


def given(config: pytest.Config) -> argparse.Namespace:
    """Parse the options of the command line and of ``PYTEST_ADDOPTS`` alone, without those of the configuration file.

    A source tree has a configuration of its own, which must not select the cases of another one. Options of tfbench that are
    not given are ``None``, since a default would replace what that configuration says.
    """
    words = [*shlex.split(STARTED_WITH.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    nothing = argparse.Namespace(**dict.fromkeys(f"tfbench_{option.setting}" for option in OPTIONS))
    return config._parser.parse_known_args(words, nothing)


_PLUGIN = "-p"
_ONCE = {"keyword": "-k", "markexpr": "-m"}
_REPEATED = {"deselect": "--deselect", "override_ini": "-o", "plugins": _PLUGIN}
_PATHS = {"ignore": "--ignore", "ignore_glob": "--ignore-glob"}


def selection_of(config: pytest.Config, options: argparse.Namespace, policy: str) -> Selection:
    """Return what the user selected by the `given` options, to select the same cases in another source tree."""
    root, start = config.rootpath, config.invocation_params.dir

    def below_root(path: str, module: bool = False) -> str:
        file, colons, case = path.partition("::")
        place = Path(os.path.abspath(start / ((module and _place_of_module(file)) or file)))
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


def _place_of_module(name: str) -> str:
    """Return the file or folder that pytest's option ``--pyargs`` takes an argument for, ``""`` if it names no module."""
    try:
        spec = importlib.util.find_spec(name)
    except (AttributeError, ImportError, ValueError):  # the argument is a path
        return ""
    if spec is None or not spec.submodule_search_locations:
        return (spec and spec.origin) or ""
    return spec.submodule_search_locations[0]


# Collect the benchmarks with pytest, for commands and for other source trees; runs none of them


COMMAND = (sys.executable, *interpreter_options(), "-m", "tfbench.plugin.collect")
"""Collects another source tree, see `sides.counterparts`."""
_TAIL = 15


@dataclass(frozen=True)
class Collected:
    """The benchmarks that pytest collected."""

    root: Path
    suite: Suite
    cases: Mapping[str, Case]
    """By name."""
    skipped: frozenset[str] = frozenset()
    """Names of the cases that a mark of pytest skips."""
    deselected: Mapping[str, Case] = field(default_factory=dict)
    """Cases in the collected files that are not selected."""
    policy: Policy = field(default_factory=Policy)
    selection: Selection = field(default_factory=Selection)
    """What selected the cases, to select those of another source tree."""
    gate: tuple[str, ...] = ()
    """Options that decide what passes, those of the configuration file included."""
    functions: Mapping[str, pytest.Function] = field(default_factory=dict)
    """The pytest item of each case, by name."""
    broken: frozenset[str] = frozenset()
    """Files and folders that cannot be imported, relative to the root; ``.`` for all."""
    seen: frozenset[str] = frozenset()
    """Files and folders that pytest has collected or skipped, whether they have benchmarks or not."""

    def named(self, name: str) -> Case:
        """Find a case by its name, or by any part of the name that is unique.

        Raises `UsageError` if no case or several cases match.
        """
        exact = [case for case in self.cases.values() if case.name == name or case.name.endswith(f"::{name}")]
        matching = exact or [case for case in self.cases.values() if name in case.name] or self._with_levels(name)
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise UsageError(f"no benchmark matches {name!r}; `pytest --benchmark --collect-only -q` lists them")
        names = some([case.name for case in matching], 3)
        raise UsageError(f"{name!r} matches {len(matching)} benchmarks: {names}; give a full name")

    def _with_levels(self, name: str) -> list[Case]:
        """Return the cases ``workload[axis=level,…]`` that have these levels, and the reference level of other axes."""
        workload, _, text = name.removesuffix("]").partition("[")
        given = dict(part.partition("=")[::2] for part in text.split(","))
        alike = [
            case for case in self.cases.values() if case.workload == workload and given.items() <= case.levels.items()
        ]
        references = {case.group: case.levels for case in self.cases.values() if case.reference}
        return [case for case in alike if references.get(case.group, {}) | given == case.levels] or alike


def collect(
    arguments: Sequence[str] = (), tolerant: bool = False, values: Mapping[str, Any] | None = None
) -> Collected:
    """Collect the benchmarks, as ``pytest --benchmark`` would.

    Raises `UsageError` if pytest fails; the message contains its last lines.

    Args:
        arguments: Files, folders and selections for pytest; empty for its configured ones.
        tolerant: Go on without files, and folders of a ``conftest.py``, that cannot be imported.
        values: Of options that conftest.py files define, by their names in Python.
    """
    catcher = _Catcher(values or {})
    printed = io.StringIO()
    with (
        # Plugins may need a cache, and the user's stays.
        tempfile.TemporaryDirectory(prefix="cache-", dir=scratch_dir()) as cache,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        options = ["--benchmark", "--collect-only", "-q", "-p", "tfbench.plugin", "-o", f"cache_dir={cache}"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this process has imported the plugin
        options += ["--continue-on-collection-errors"] if tolerant else []
        history = os.environ.get(HISTORY_VARIABLE)
        try:
            code = pytest.main([*options, *arguments], plugins=[catcher, *([FolderByFolder()] if tolerant else [])])
        finally:
            if history is not None:  # the plugin took it out of the environment, and the jobs of a fleet need it
                os.environ[HISTORY_VARIABLE] = history
    fine = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    if tolerant and catcher.broken:
        fine.add(pytest.ExitCode.TESTS_FAILED)
    if catcher.collected is None or code not in fine:
        lines = printed.getvalue().strip().splitlines()
        wrong = [line for line in lines if line.startswith("ERROR: ")]  # a list of cases may come before it
        last = "\n".join(wrong if code == pytest.ExitCode.USAGE_ERROR and wrong else lines[-_TAIL:])
        raise UsageError(f"pytest could not collect the benchmarks:\n{last}")
    return catcher.collected


class _Catcher:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.collected: Collected | None = None
        self.broken: set[str] = set()
        self.seen: set[str] = set()
        self._values = values

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        vars(config.option).update(self._values)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        (self.broken if report.failed else self.seen).add(report.nodeid.partition("::")[0] or ".")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        runner = session.config.stash[RUNNER]
        skipped = frozenset(item.nodeid for item in session.items if _skipped(item))
        functions = {item.nodeid: item for item in session.items if isinstance(item, pytest.Function)}
        self.collected = Collected(
            session.config.rootpath,
            runner.suite,
            dict(runner.cases),
            skipped,
            _deselected(runner),
            runner.policy,
            selection_of(session.config, given(session.config), runner.policy.name),
            gate_options(session.config.option),
            functions,
            frozenset(self.broken),
            frozenset(self.seen),
        )


def _deselected(runner: Runner) -> dict[str, Case]:
    """Return the other cases in the collected files, without wrongly declared ones."""
    cases = {}
    for name, item in runner.collected.items():
        if name not in runner.cases:
            with contextlib.suppress(DeclarationError):
                cases[name] = runner.case(item)
    return cases


def _skipped(item: pytest.Item) -> bool:
    """Tell whether pytest would skip an item by its marks. A mark that cannot be evaluated fails when it runs."""
    try:
        xfail = evaluate_xfail_marks(item)
        return evaluate_skip_marks(item) is not None or (xfail is not None and not xfail.run)
    except pytest.fail.Exception:
        return False


def _without_unknown_plugins(words: Sequence[str]) -> list[str]:
    """Return options without the plugins that this tree does not have, such as one that the change adds."""
    known = {point.name for point in entry_points(group="pytest11")}
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] == _PLUGIN and not (word.startswith("no:") or word in known or _place_of_module(word)):
            kept.pop()
        else:
            kept.append(word)
    return kept


def _collect_elsewhere(text: str) -> int:
    """Write the cases of another source tree with digests of their code, on request of `sides.counterparts`."""
    order = json.loads(text)
    _ELSEWHERE.update(order)
    tensorflow_stub.REAL = order.get("real", False)
    enter(order["root"])
    sys.path.append(order["root"])  # as in the workers, which would import what this process could not
    if order["tree_redirect"]:
        redirect_imports(*order["tree_redirect"])
    # Warnings of the other tree must not fail the listing, as they do not fail its race.
    arguments = ["--rootdir=.", "-W", "ignore", *_without_unknown_plugins(order["arguments"])]
    if "above" in order:  # otherwise a configuration file elsewhere lets -k match the folders that the tree lies in
        arguments += [f"--confcutdir={order['above']}"]
    if order["tree_redirect"]:
        named = os.path.exists(order["inifile"])
        top = Path(order["tree_redirect"][1])
        arguments += ["-c", order["inifile"] if named else ini_file(Path(order["root"]), top)]
    try:
        collected = collect(arguments, not tensorflow_stub.REAL, order.get("values"))
    except UsageError as error:
        say(str(error), error=True)
        return 1
    if tensorflow_stub.REAL:
        write_whole(Path(order["answer"]), render_json(_listed_with_tensorflow(collected)))
        return 0
    policy = collected.policy  # another one than the run's, if only the other tree's configuration names one
    usual = () if policy.name == order["policy"] else tuple((name, getattr(policy, name)) for name in THRESHOLDS)
    cases = {
        name: Benchmark(
            case.source,
            name in collected.skipped,
            name in collected.cases,
            case.thresholds or usual,
            case.statistic or policy.statistic,
            case.cpus,
            tuple(f"{name}={value}" for name, value in case.env),
        )
        for name, case in {**collected.deselected, **collected.cases}.items()
    }
    listing = Listing(cases, tuple(sorted(collected.broken)), collected.seen, tuple(collected.gate))
    write_whole(Path(order["answer"]), line(listing))
    return 0


if __name__ == "__main__":
    sys.exit(_collect_elsewhere(sys.argv[1]))
