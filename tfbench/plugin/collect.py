"""Collect benchmarks: items to cases, selection of cases."""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import inspect
import io
import json
import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeGuard
from unittest import TestCase

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks  # pytest offers it nowhere else
from _pytest.unittest import TestCaseFunction  # pytest offers it nowhere else

from tfbench.errors import DeclarationError, SideError, UsageError
from tfbench.fs import write_whole
from tfbench.gpus.selection import parse_device
from tfbench.imports import PACKAGE, is_below, is_installed, redirect_imports
from tfbench.model import JSON, THRESHOLDS, Case
from tfbench.plugin import RUNNER, STARTED_WITH, setting, whole_suite
from tfbench.policy import Policy
from tfbench.race.workers import Suite
from tfbench.report.screen import say
from tfbench.sides.counterparts import Selection
from tfbench.sides.counterparts import collect as run_collection
from tfbench.storage.baselines import HISTORY_VARIABLE
from tfbench.suite.fingerprint import DIGEST
from tfbench.suite.first_files import ini_file
from tfbench.suite.shards import Shard
from tfbench.suite.tf_test_files import ERROR, function_of, listed
from tfbench.untrusted import an_object, render_json, some

if TYPE_CHECKING:
    from tfbench.plugin.runner import Runner


# Collect ``tf.test.Benchmark`` classes in the controller, by their names only: another process imports their files


_SECONDS = 300.0
"""Time limit for the import of all these files."""
_LISTING: pytest.StashKey[JSON] = pytest.StashKey()


class ListedFile(pytest.File):
    """A file with ``tf.test.Benchmark`` classes, of which the controller knows the names."""

    def collect(self) -> Iterator[pytest.Function]:
        config = self.config
        if _LISTING not in config.stash:
            config.stash[_LISTING] = _listing(config)
        names = dict(an_object(config.stash[_LISTING].get(self.nodeid, {}), self.nodeid))
        if error := names.pop(ERROR, ""):
            raise self.CollectError(error)
        for name, code in names.items():
            found: pytest.Function = pytest.Function.from_parent(self, name=name, callobj=function_of(_never, code))
            yield found


def _never(bench: object) -> None:
    raise AssertionError("the measuring processes run it")


def _listing(config: pytest.Config) -> JSON:
    """Return file -> name of a benchmark -> digest of its code, or `ERROR` -> text."""
    root = config.rootpath
    request = {
        "root": str(root),
        "files": [str(path) for path in listed(config)],
        "import_mode": config.getoption("importmode"),
        "inifile": str(config.inipath or ""),
    }
    command = [sys.executable, "-m", "tfbench.worker.tf_test"]
    try:
        return run_collection(command, request, root, _SECONDS, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    except SideError as error:
        first, _, rest = str(error).partition("\n")
        raise pytest.UsageError(f"tf.test.Benchmark: {': '.join([first, *rest.splitlines()[-1:]])}") from None


# Identify a benchmark by its code and all that the code uses in its modules, so that a renamed one is known again


_DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "__import__", "importlib", "import_module"}
"""Names by which code may use any definition of its module."""
_ALWAYS = {"pytestmark", "pytest_plugins"}
"""Names that pytest reads."""
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def scope_of(item: pytest.Function) -> str:
    """Return a digest of a benchmark's function and fixtures, with what they use in their modules; ``""`` if unknown.

    In a module it follows names to definitions, assignments and imports, and counts all other statements. An import
    counts by its text and the place of the imported file in the suite. The function's name does not count.
    """
    place = f"{item.cls.__qualname__}." if item.cls else ""
    fixtures = {one.func for found in item._fixtureinfo.name2fixturedefs.values() for one in found}
    root = str(item.config.rootpath)
    try:
        plain = inspect.unwrap(item.function)
        own = os.path.samefile(inspect.getsourcefile(plain) or "", item.path)
        if getattr(item.function, DIGEST, "") or not own or plain.__qualname__ != f"{place}{item.originalname}":
            return ""  # it stands for code elsewhere
        parts = [_used(plain, root, renamed=True), *sorted(_used(inspect.unwrap(one), root) for one in fixtures)]
    except (OSError, TypeError, AttributeError, SyntaxError, RecursionError):
        return ""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


@cache
def _used(function: Callable[..., object], root: str, renamed: bool = False) -> str:
    """Return a digest of a function and of what it uses in its module; its name if that is installed.

    Raises:
        OSError, TypeError, AttributeError, SyntaxError: There is no source, or another function has made it.
    """
    file = inspect.getsourcefile(function) or ""
    names = function.__qualname__
    if not renamed and (is_installed(file) or is_below(os.path.realpath(file), PACKAGE)):
        return f"{function.__module__}.{names}"
    if "<" in names:
        raise TypeError(f"{names} depends on the arguments of the function that has made it")
    module = _parsed(file, os.stat(file).st_mtime_ns)
    wanted = {*names.split(".")[:1], *_ALWAYS}
    bound: dict[str, set[int]] = defaultdict(set)
    chosen: set[int] = set()
    for number, node in enumerate(module.body):
        found = set(_bound(node))
        for name in found:
            bound[name].add(number)
        if "*" in found or not (found or _is_text(node)):
            chosen.add(number)
    todo, seen = [*wanted, *(name for number in chosen for name in _names(module.body[number]))], set[str]()
    while todo:
        if (name := todo.pop()) in seen:
            continue
        seen.add(name)
        added = set(range(len(module.body))) if name in _DYNAMIC else bound[name]
        for number in added - chosen:
            todo += _names(module.body[number])
        chosen |= added
    own = names if renamed else ""
    statements = dict.fromkeys(_text(module.body[number], own, file, root) for number in sorted(chosen))
    text = "\n".join(statements)  # an import that is repeated counts once
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _parsed(file: str, changed: int) -> ast.Module:
    with open(file, "rb") as source:
        return ast.parse(source.read())


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a definition, an assignment or an import binds; none for other statements."""
    if isinstance(node, _Definition):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement uses, the arguments of functions included: they may be fixtures."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr if one.attr in _DYNAMIC else ""
        elif isinstance(one, ast.arg):
            yield one.arg


def _text(node: ast.stmt, own: str, file: str, root: str) -> str:
    """Return a statement without layout and comments, and where the own files that it imports lie.

    Args:
        own: Qualified name of the function whose name does not count.
    """
    text = ast.dump(_Unnamed(own.split(".")).visit(node) if own else node)
    if isinstance(node, ast.ImportFrom) and node.level:
        return f"{text} from {os.path.relpath(os.path.dirname(file), root)}"
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        named = [alias.name for alias in node.names]
        base = getattr(node, "module", "") or ""
        found = {base, *(f"{base}.{name}" if base else name for name in named)}
        files = (vars(sys.modules[name]).get("__file__") for name in found if name in sys.modules)
        places = sorted(_place(one, root) for one in files if isinstance(one, str) and not is_installed(one))
        return f"{text} from {places}"
    return text


def _place(file: str, root: str) -> str:
    """Return the path of a file of the suite, and the content of another one, whose path may depend on the tree."""
    if is_below(file, root):
        return os.path.relpath(file, root)
    with suppress(OSError), open(file, "rb") as content:
        return hashlib.sha256(content.read()).hexdigest()
    return ""


class _Unnamed(ast.NodeTransformer):
    """Copies a definition without the name of one function in it, which is given by the names that lead to it."""

    def __init__(self, path: list[str]) -> None:
        self._path = path

    def visit(self, node: ast.AST) -> ast.AST:
        if not (isinstance(node, _Definition) and self._path and node.name == self._path[0]):
            return node
        last = len(self._path) == 1
        inner = _Unnamed(self._path[1:])
        fields = {key: getattr(node, key) for key in node._fields if hasattr(node, key)}
        fields |= {
            "name": "" if last else node.name,
            "body": node.body if last else [inner.visit(one) for one in node.body],
        }
        return type(node)(**fields)


# Tell which of pytest's items are cases, benchmarks of ours and plain tests of pytest-benchmark, and take these over


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
    return config.getoption("collectonly") or any(
        setting(config, name) for name in ("against", "baseline", "save_baseline")
    )


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


_ONCE = {"keyword": "-k", "markexpr": "-m", "tfbench_policy": "--tfbench-policy"}
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
    if options.tfbench_device:
        words += ["--tfbench-device", parse_device(options.tfbench_device)[0]]
    paths = [below_root(path) for path in options.file_or_dir]
    if not paths and not whole_suite(config) and config.args_source is not pytest.Config.ArgsSource.ARGS:
        paths = [below_root(".")]
    inifile = below_root(options.inifilename) if options.inifilename else ""
    return Selection(tuple(words), tuple(paths), tuple(ignored["ignore"]), policy, inifile)


# Collect the benchmarks with pytest, for commands and for other source trees; runs none of them


COMMAND = (sys.executable, "-m", "tfbench.plugin.collect")
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
    functions: Mapping[str, pytest.Function] = field(default_factory=dict)
    """The pytest item of each case, by name."""

    def named(self, name: str) -> Case:
        """Find a case by its name, or by any part of the name that is unique.

        Raises:
            UsageError: No case or several cases match.
        """
        exact = [case for case in self.cases.values() if case.name == name or case.name.endswith(f"::{name}")]
        found = exact or [case for case in self.cases.values() if name in case.name] or self._with_levels(name)
        if len(found) == 1:
            return found[0]
        if not found:
            raise UsageError(f"no benchmark matches {name!r}; `pytest --benchmark --collect-only -q` lists them")
        names = some([case.name for case in found], 3)
        raise UsageError(f"{name!r} matches {len(found)} benchmarks: {names}; give a full name")

    def _with_levels(self, name: str) -> list[Case]:
        """Return the cases ``workload[axis=level,…]`` that have these levels, and the reference level of other axes."""
        workload, _, text = name.removesuffix("]").partition("[")
        given = dict(part.partition("=")[::2] for part in text.split(","))
        alike = [
            case for case in self.cases.values() if case.workload == workload and given.items() <= case.levels.items()
        ]
        references = {case.group: case.levels for case in self.cases.values() if case.reference}
        return [case for case in alike if references.get(case.group, {}) | given == case.levels] or alike


def collect(arguments: Sequence[str] = ()) -> Collected:
    """Collect the benchmarks, as ``pytest --benchmark`` would.

    Args:
        arguments: Files, folders and selections for pytest; empty for its configured ones.

    Raises:
        UsageError: pytest fails; the message contains its last lines.
    """
    catcher = _Catcher()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        options = ["--benchmark", "--collect-only", "-q", "-p", "tfbench.plugin", "-p", "no:cacheprovider"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this process has imported the plugin
        history = os.environ.get(HISTORY_VARIABLE)
        try:
            code = pytest.main([*options, *arguments], plugins=[catcher])
        finally:
            if history is not None:  # the plugin took it out of the environment, and the jobs of a fleet need it
                os.environ[HISTORY_VARIABLE] = history
    if catcher.collected is None or code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        lines = printed.getvalue().strip().splitlines()
        wrong = [line for line in lines if line.startswith("ERROR: ")]  # a list of cases may come before it
        last = "\n".join(wrong if code == pytest.ExitCode.USAGE_ERROR and wrong else lines[-_TAIL:])
        raise UsageError(f"pytest could not collect the benchmarks:\n{last}")
    return catcher.collected


class _Catcher:
    def __init__(self) -> None:
        self.collected: Collected | None = None

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
            selection_of(session.config, runner.policy.name),
            functions,
        )


def _deselected(runner: Runner) -> dict[str, Case]:
    """Return the other cases in the collected files, without wrongly declared ones."""
    found = {}
    for name, item in runner.collected.items():
        if name not in runner.cases:
            with contextlib.suppress(DeclarationError):
                found[name] = runner.case(item)
    return found


def _skipped(item: pytest.Item) -> bool:
    """Tell whether pytest would skip an item by its marks. A mark that cannot be evaluated fails when it runs."""
    try:
        xfail = evaluate_xfail_marks(item)
        return evaluate_skip_marks(item) is not None or (xfail is not None and not xfail.run)
    except pytest.fail.Exception:
        return False


def _collect_elsewhere(text: str) -> int:
    """Write the cases of another source tree with digests of their code, on request of `sides.counterparts`."""
    order = json.loads(text)
    os.chdir(order["root"])
    arguments = ["--rootdir=.", *order["arguments"]]
    if order["tree_redirect"]:
        redirect_imports(*order["tree_redirect"])
        named = os.path.exists(order["inifile"])
        top = Path(order["tree_redirect"][1])
        arguments += ["-c", order["inifile"] if named else ini_file(Path(order["root"]), top)]
    try:
        collected = collect(arguments)
    except UsageError as error:
        say(str(error), error=True)
        return 1
    policy = collected.policy  # another one than the run's, if only the other tree's configuration names one
    usual = () if policy.name == order["policy"] else tuple((name, getattr(policy, name)) for name in THRESHOLDS)
    found = {
        name: {
            "source": case.source,
            "scope": case.scope,
            "skipped": name in collected.skipped,
            "selected": name in collected.cases,
            "thresholds": dict(case.thresholds or usual),
            "statistic": case.statistic,
        }
        for name, case in {**collected.deselected, **collected.cases}.items()
    }
    write_whole(Path(order["answer"]), render_json(found))
    return 0


if __name__ == "__main__":
    sys.exit(_collect_elsewhere(sys.argv[1]))
