"""Turn pytest's items into cases: which items are benchmarks, their own thresholds, and the code that identifies them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import TypeGuard
from unittest import TestCase

import pytest
from _pytest.unittest import TestCaseFunction  # pytest offers it nowhere else

from tfbench.errors import DeclarationError, SideError, UsageError
from tfbench.fs import file_digest
from tfbench.imports import PACKAGE, is_below, is_installed
from tfbench.model import STATISTICS, THRESHOLDS, Case
from tfbench.model.formats import Name, convert
from tfbench.plugin import only_lists, setting, takes_bench
from tfbench.plugin.collect import ListedFile, collected_tree
from tfbench.plugin.options import read_number
from tfbench.policy import Policy
from tfbench.sides.source_tree import ignored_files, top_level
from tfbench.stats.alpha_spending import completed
from tfbench.suite.axes import Variant
from tfbench.suite.claims import claims_of
from tfbench.suite.functions import DIGEST, digest, dump
from tfbench.suite.shards import Shard
from tfbench.untrusted import brief

# Tell which items are cases, benchmarks of ours and plain tests of pytest-benchmark, and take these over


def adopts(config: pytest.Config) -> bool:
    """Tell whether plain pytest-benchmark tests are cases: if the run compares them, saves them or only collects."""
    return only_lists(config) or any(setting(config, name) for name in ("against", "baseline", "save_baseline"))


def is_benchmark(item: pytest.Item, adopting: bool) -> TypeGuard[pytest.Function]:
    """Tell whether the item is a test function that takes ``bench``, or ``benchmark`` if plain tests are cases too."""
    return takes_bench(item) or (adopting and is_plain(item))


def is_plain(item: pytest.Item) -> bool:
    """Tell whether the item is a plain pytest-benchmark test."""
    names = getattr(item, "fixturenames", ())
    return isinstance(item, pytest.Function) and "benchmark" in names and not takes_bench(item)


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
    groups: dict[tuple[tuple[str, str], ...], list[pytest.Item]] = {}
    for item in items:
        case = cases.get(item.nodeid)
        groups.setdefault(case.env if case else (), []).append(item)
    return [item for group in groups.values() for item in group]


# Make the case of an item


def case_of(
    item: pytest.Function,
    place: tuple[int, int] = (0, 0),
    thresholds: tuple[tuple[str, float], ...] = (),
    statistic: str = "",
) -> Case:
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
    variant, others = Variant(), ""
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        others = callspec.id
        if isinstance(given := callspec.params.get("variant"), Variant):
            variant, others = given, callspec.id.replace(given.id, "", 1).strip("-")
    workload = item.originalname
    base = item.nodeid.partition("[")[0]
    return Case(
        name=item.nodeid,
        workload=workload,
        group=f"{base}[{others}]" if others else base,
        variant=tuple(variant),
        reference=variant.reference,
        env=tuple(sorted(variant.env.items())),
        cpus=_marked_cpus(item),
        source=digest(item.function),
        scope=scope_of(item),
        claims=claims_of(item, variant),
        shared="shared" in item.fixturenames,
        place=place,
        thresholds=thresholds,
        statistic=statistic,
        alone=isinstance(item.parent, ListedFile),
    )


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


def _marked_cpus(item: pytest.Function) -> int:
    mark = item.get_closest_marker("tfbench")
    if mark is None:
        return 1
    if mark.args or set(mark.kwargs) - {"cpus", STATISTIC, *THRESHOLDS}:
        raise DeclarationError(
            f"{item.nodeid}: @pytest.mark.tfbench takes only cpus, statistic, {' and '.join(THRESHOLDS)}"
        )
    cpus = mark.kwargs.get("cpus", 1)
    if cpus == "all":
        return 0
    if type(cpus) is not int or cpus < 1:
        raise DeclarationError(
            f"{item.nodeid}: @pytest.mark.tfbench(cpus={cpus!r}): write a number of processors such as 2, or 'all'"
        )
    return cpus


def wanted_by_device(case: Case, device: str) -> bool:
    """Tell whether ``--device`` selects this case; it always selects a case without the axis ``device``."""
    return device == "all" or case.levels.get("device", device) == device


# Read the thresholds of single cases: from the mark ``tfbench``, and from patterns in the ini file


STATISTIC = "statistic"
"""The argument of the mark that says what a verdict on time is about."""
_STATISTICS = ", ".join(map(repr, STATISTICS))
INI = "tfbench_thresholds"
"""The ini option: lines such as ``test_io*: minimum_effect=0.05, tolerance=0.1``."""
_LINE = re.compile(r"(?P<pattern>\S.*?)\s*:\s+(?P<values>\w+\s*=.*)")


@dataclass(frozen=True)
class Pattern:
    """A line of the ini option."""

    text: str
    values: Mapping[str, float]

    def matches(self, name: str) -> bool:
        """Tell whether the line is for a case: for its name, its function, or either without the file.

        ``*`` stands for any text and ``?`` for a character. Brackets stand for themselves, as names have them.
        """
        wanted = re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in self.text), re.DOTALL)
        whole = name, name.partition("[")[0]
        return any(wanted.fullmatch(text) for name in whole for text in (name, name.partition("::")[2]))


def parse_patterns(lines: Sequence[str]) -> list[Pattern]:
    """Parse the lines of the ini option. Raises `UsageError` if a line is no pattern with values."""
    names = []
    for line in lines:
        if not (match := _LINE.fullmatch(line.strip())):
            raise UsageError(f"{INI}: {line!r}: write a pattern and its values: test_io*: minimum_effect=0.05")
        pairs = [part.partition("=") for part in match["values"].split(",")]
        values = {}
        for name, _, text in pairs:
            try:
                values[name.strip()] = _fraction(name.strip(), text)
            except ValueError as error:
                raise UsageError(f"{INI}: {match['pattern']!r}: {error}") from None
        names.append(Pattern(match["pattern"], values))
    return names


def check_used(patterns: Sequence[Pattern], names: Collection[str]) -> None:
    """Check that each pattern is for at least one of these cases. Raises `UsageError` if a pattern is for none."""
    for pattern in patterns:
        if not any(pattern.matches(name) for name in names):
            fix = "`pytest --benchmark --collect-only -q` lists the benchmarks"
            raise UsageError(f"{INI}: no benchmark matches {pattern.text!r}; {fix}")


def thresholds_of(item: pytest.Item, patterns: Sequence[Pattern], policy: Policy) -> tuple[tuple[str, float], ...]:
    """Return the own thresholds of an item's case, ``()`` without any.

    Raises `DeclarationError` if a value is invalid, or two places set the same threshold to different values.
    """
    given: dict[str, tuple[float, str]] = {}
    for mark in reversed(list(item.iter_markers("tfbench"))):  # the closest mark counts
        for name in set(THRESHOLDS) & set(mark.kwargs):
            try:
                given[name] = _fraction(name, mark.kwargs[name]), "its mark"
            except ValueError as error:
                raise DeclarationError(f"{item.nodeid}: @pytest.mark.tfbench: {error}") from None
    for pattern in patterns:
        if not pattern.matches(item.nodeid):
            continue
        where = f"{pattern.text!r} in {INI}"
        for name, value in pattern.values.items():
            known, place = given.get(name, (value, where))
            if known != value:
                text = f"{name}={known:g} of {place} contradicts {name}={value:g} of {where}; remove one of them"
                raise DeclarationError(f"{item.nodeid}: {text}")
            given[name] = known, place
    if not given:
        return ()
    try:
        return tuple(completed({name: value for name, (value, _) in given.items()}, policy).items())
    except ValueError as error:
        raise DeclarationError(f"{item.nodeid}: thresholds: {error}") from None


def statistic_of(item: pytest.Item) -> str:
    """Return what an item's mark says that a verdict on its time is about, ``""`` for the policy's statistic.

    Raises `DeclarationError` if there is no such statistic.
    """
    mark = next((mark for mark in item.iter_markers("tfbench") if STATISTIC in mark.kwargs), None)
    name = mark.kwargs[STATISTIC] if mark else ""
    if mark and name not in STATISTICS:
        raise DeclarationError(f"{item.nodeid}: @pytest.mark.tfbench: {STATISTIC}={name!r}: use one of {_STATISTICS}")
    return str(name)


def _fraction(name: str, value: object) -> float:
    if name not in THRESHOLDS:
        raise ValueError(f"there is no threshold {name!r}; there are {' and '.join(THRESHOLDS)}")
    if not 0 < (fraction := read_number(value)) < 1:
        shown = value.strip() if isinstance(value, str) else value
        raise ValueError(f"{name}={shown}: write a fraction between 0 and 1, such as 0.05 for 5%")
    return fraction


# Identify a benchmark by its code and all that the code uses in its modules, so that a renamed one is known again


_DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "__import__", "importlib", "import_module"}
"""Names by which code may use any definition of its module."""
_ALWAYS = {"pytestmark", "pytest_plugins"}
"""Names that pytest reads."""
_HOOKS = (
    "pytest_fixture_setup", "pytest_pyfunc_call",
    *(f"pytest_runtest_{step}" for step in ("protocol", "setup", "call")),
)  # fmt: skip
"""Hooks of pytest around a benchmark, which can do what its fixtures can. The others select, configure and report."""
_LONGEST = 1024
"""A longer text is no name of a file."""
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Import = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class _Suite:
    """The files of a suite, whose definitions are part of the benchmarks that use them."""

    root: str
    folders: tuple[str, ...]
    """Benchmark folders below the root."""
    patterns: tuple[str, ...]
    """Names of files with tests."""
    getini: Callable[[str], object]
    """Return the value of an option of the ini file. Raises `ValueError` if it is unknown or no such value."""

    def has(self, file: str) -> bool:
        """Tell whether a file belongs to the suite and not to the code that the suite measures."""
        file = _within(file, self.root)
        if is_installed(file, self.root) or not is_below(file, self.root):
            return False
        named = any(fnmatch(os.path.basename(file), pattern) for pattern in self.patterns)
        return named or any(is_below(file, folder) for folder in self.folders)


def scope_of(item: pytest.Function) -> str:
    """Return a digest of a benchmark's function, fixtures and hooks, with what they use in the suite; ``""`` if unknown.

    It follows names to definitions, assignments and imports in the files of the suite, and counts all other statements
    of these files, of the suite's files that they import and of each conftest.py. So do assignments to attributes and items
    of what a file imports, such as ``os.environ``. An import of another file counts by its text and the file's place. The
    content of a data file in the benchmark folders counts where these statements name it, and so does the value of an option
    of the ini file. The names of the function and its class do not count.
    """
    place = f"{item.cls.__qualname__}." if item.cls else ""
    fixtures = {
        definition.func for definitions in item._fixtureinfo.name2fixturedefs.values() for definition in definitions
    }
    config, root = item.config, str(item.config.rootpath)
    paths = (os.path.normpath(os.path.join(root, path)) for path in config.getini("tfbench_paths"))
    folders = tuple(path for path in paths if path != root and is_below(path, root))
    suite = _Suite(root, folders, ("conftest.py", *config.getini("python_files")), config.getini)
    try:
        plain = inspect.unwrap(item.function)
        own = os.path.samefile(inspect.getsourcefile(plain) or "", item.path)
        if getattr(item.function, DIGEST, "") or not own or plain.__qualname__ != f"{place}{item.originalname}":
            return ""  # it stands for code elsewhere
        parts = [
            _used(plain, suite, renamed=True),
            *sorted(_used(inspect.unwrap(function), suite) for function in {*fixtures, *_hooks(item)}),
            *sorted(filter(None, (_done_by(file, suite) for _, file in _conftests(item)))),
        ]
    except (OSError, TypeError, AttributeError, SyntaxError, RecursionError):
        return ""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def _hooks(item: pytest.Function) -> Iterator[Callable[..., object]]:
    """Yield the functions of the item's conftest.py files that pytest calls before or around its benchmark."""
    for plugin, _ in _conftests(item):
        found = (getattr(plugin, name, None) for name in _HOOKS)
        yield from (function for function in found if inspect.isfunction(function))


def _conftests(item: pytest.Function) -> Iterator[tuple[object, str]]:
    """Yield each conftest.py of the item as a plugin, and its file."""
    for plugin in item.config.pluginmanager.get_plugins():
        file = getattr(plugin, "__file__", None) or ""
        if os.path.basename(file) == "conftest.py" and is_below(str(item.path), os.path.dirname(file)):
            yield plugin, file


@cache
def _used(function: Callable[..., object], suite: _Suite, renamed: bool = False) -> str:
    """Return a digest of a function and of what it uses in the suite; its name if that is installed.

    Raises `OSError`, `TypeError`, `AttributeError` or `SyntaxError` if there is no source, or another function has made
    it.
    """
    file = inspect.getsourcefile(function) or ""
    names = function.__qualname__
    if not renamed and (is_installed(file, suite.root) or is_below(os.path.realpath(file), PACKAGE)):
        return f"{function.__module__}.{names}"
    if "<" in names:
        raise TypeError(f"{names} depends on the arguments of the function that has made it")
    return _used_from(file, names, suite, renamed)


@cache
def _done_by(file: str, suite: _Suite) -> str:
    """Return a digest of what the import of a conftest.py runs, ``""`` if nothing."""
    return _used_from(file, "", suite, False)


def _used_from(file: str, names: str, suite: _Suite, renamed: bool) -> str:
    """Do the same for a definition in a file; without ``names``, for what the import of the file runs."""
    chosen: dict[str, set[int]] = {}
    """File -> numbers of the statements that count."""
    modules: dict[str, _Module] = {}
    named: set[str] = set()
    todo, seen = [(file, name) for name in {*names.split(".")[:1], *_ALWAYS}], set[tuple[str, str]]()
    while todo:
        if (wanted := todo.pop()) in seen:
            continue
        seen.add(wanted)
        place, name = wanted
        fresh = place not in modules
        if fresh:
            modules[place], chosen[place] = _module(place, os.stat(place).st_mtime_ns, suite), set()
        module = modules[place]
        first = name.partition(".")[0]
        added = set(range(len(module.body))) if first in _DYNAMIC else set(module.bound.get(first, ()))
        if fresh:
            added |= module.always
            todo += ((other, "") for other in module.executed)
        named |= {place} if name else set()
        for number in added - chosen[place]:
            todo += ((place, used) for used in _names(module.body[number]))
        chosen[place] |= added
        todo += module.imported(name)
    if not names and not any(chosen.values()):
        return ""
    own = names if renamed else ""
    texts = []
    for place, numbers in sorted(chosen.items(), key=lambda pair: (pair[0] != file, pair[0])):
        if not numbers and place not in named:  # imported, but nothing in it counts
            continue
        body = modules[place].body
        texts += ["" if place == file else os.path.relpath(_within(place, suite.root), suite.root)]
        texts += [_text(body[number], own if place == file else "", place, suite.root) for number in sorted(numbers)]
    used = [modules[place].body[number] for place, numbers in chosen.items() for number in numbers]
    texts += [*_data_files(used, suite), *_ini_values(used, suite)]
    text = "\n".join(dict.fromkeys(texts))  # an import that is repeated counts once
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _ini_values(used: Sequence[ast.stmt], suite: _Suite) -> Iterator[str]:
    """Yield each option of the ini file that these statements read by ``getini("NAME")``, with its value."""
    for node in (node for statement in used for node in ast.walk(statement)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "getini":
            for name in (str(part.value) for part in node.args if isinstance(part, ast.Constant)):
                with suppress(ValueError, TypeError):
                    yield f"{name} = {suite.getini(name)}".replace(suite.root, "")


def _data_files(used: Sequence[ast.stmt], suite: _Suite) -> Iterator[str]:
    """Yield the name and a digest of each data file in the benchmark folders that these statements name.

    They name it by a text that ends in the file's name, or by a pattern such as ``*.csv``.
    """
    texts = {
        os.path.basename(node.value)
        for statement in used
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < _LONGEST
    }
    patterns = [text for text in texts if "*" in text and any(map(str.isalnum, text))]
    for path in _all_data_files(suite):
        name = os.path.basename(path)
        if name in texts or any(fnmatch(name, pattern) for pattern in patterns):
            yield f"{os.path.relpath(path, suite.root)} {_content(path)}"


@cache
def _all_data_files(suite: _Suite) -> tuple[str, ...]:
    """Return the files in the benchmark folders that are no code and that git keeps; none without git.

    A file that git ignores may be a result of a run, which only one side has.
    """
    if not _top(suite.root):
        return ()
    found = []
    for top in suite.folders:
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
            found += [os.path.join(folder, name) for name in names if not name.endswith((".py", ".pyc"))]
    ignored = set[str]()
    if not collected_tree():  # it has the files that git keeps
        try:
            ignored.update(*(ignored_files(Path(top)) for top in suite.folders if os.path.isdir(top)))
        except SideError:
            return ()
    return tuple(sorted(path for path in found if os.path.realpath(path) not in ignored))


_content = cache(file_digest)


@dataclass(frozen=True)
class _Module:
    """A file of the suite."""

    body: Sequence[ast.stmt]
    bound: Mapping[str, set[int]]
    """Name -> numbers of the statements that bind it."""
    always: set[int]
    """Numbers of the statements that count in any event."""
    imports: Mapping[str, tuple[str, str]]
    """Name as the module uses it -> file of the suite, and the name there; ``""`` for the file itself."""
    stars: Sequence[str]
    """Files of the suite of which it imports all names."""
    executed: Sequence[str]
    """Files of the suite that its import imports."""

    def imported(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the file and the name of each definition of other files that a name stands for, dots included."""
        for local, (file, there) in self.imports.items():
            if (wanted := there or name[len(local) + 1 :]) and f"{name}.".startswith(f"{local}."):
                yield file, wanted
        if name.partition(".")[0] not in self.bound:
            yield from ((file, name) for file in self.stars)


@cache
def _module(file: str, changed: int, suite: _Suite) -> _Module:
    with open(file, "rb") as source:
        tree = ast.parse(source.read())
    bound: dict[str, set[int]] = defaultdict(set)
    always = set()
    imported = {name for node in tree.body if isinstance(node, _Import) for name in _bound(node)}
    for number, node in enumerate(tree.body):
        names = set(_bound(node))
        for name in names:
            bound[name].add(number)
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if "*" in names or not (names or is_text) or imported.intersection(_changed(node)):
            always.add(number)
    imports: dict[str, tuple[str, str]] = {}
    stars, executed = [], []
    at_import = {id(part) for node in tree.body if not isinstance(node, _Definition) for part in ast.walk(node)}
    for part in ast.walk(tree):
        files = []
        if isinstance(part, ast.Import):
            for alias in part.names:
                if place := _file_of(alias.name, file, 0, suite):
                    imports[alias.asname or alias.name] = place, ""
                    files.append(place)
        elif isinstance(part, ast.ImportFrom):
            whole = _file_of(part.module or "", file, part.level, suite)
            files += [whole] if whole else []
            for alias in part.names:
                if alias.name == "*":
                    stars += [whole] if whole else []
                elif place := _file_of(f"{part.module or ''}.{alias.name}".strip("."), file, part.level, suite):
                    imports[alias.asname or alias.name] = place, ""
                    files.append(place)
                elif whole:
                    imports[alias.asname or alias.name] = whole, alias.name
        executed += files if id(part) in at_import else []
    return _Module(tree.body, bound, always, imports, stars, executed)


def _file_of(module: str, file: str, level: int, suite: _Suite) -> str:
    """Return the file of the suite that an import in ``file`` reads, ``""`` if another file or none.

    A relative import has ``level`` dots.
    """
    folder = os.path.dirname(file)
    for _ in range(level - 1):
        folder = os.path.dirname(folder)
    for entry in [folder] if level else map(os.path.abspath, sys.path):
        path = os.path.join(entry, *module.split("."))
        for candidate in (f"{path}.py", os.path.join(path, "__init__.py")):
            if os.path.isfile(candidate):
                return candidate if suite.has(candidate) else ""
    return ""


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a definition, an assignment or an import binds; none for other statements."""
    if isinstance(node, _Definition):
        yield node.name
    elif isinstance(node, _Import):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names of the objects of which an assignment sets an attribute or an item, such as ``os`` of ``os.environ``."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for inner in (inner for target in targets for inner in ast.walk(target)):
            if isinstance(inner, (ast.Attribute, ast.Subscript)):
                yield from (part.id for part in ast.walk(inner.value) if isinstance(part, ast.Name))


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement uses, the arguments of functions included: they may be fixtures."""
    for inner_node in ast.walk(node):
        if isinstance(inner_node, ast.Name):
            yield inner_node.id
        elif isinstance(inner_node, ast.Attribute):
            yield inner_node.attr if inner_node.attr in _DYNAMIC else _dotted(inner_node)
        elif isinstance(inner_node, ast.arg):
            yield inner_node.arg


def _dotted(node: ast.expr) -> str:
    """Return a name with the attributes that follow it, such as ``sizes.LARGE``."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.stmt, own: str, file: str, root: str) -> str:
    """Return a statement without layout, comments and docstrings, and where the own files that it imports lie.

    ``own`` is the qualified name of the function whose name does not count.
    """
    text = dump(_Unnamed(own.split(".")).visit(node) if own else node)
    if isinstance(node, ast.ImportFrom) and node.level:
        return f"{text} from {os.path.relpath(os.path.dirname(_within(file, root)), root)}"
    if isinstance(node, _Import):
        named = [alias.name for alias in node.names]
        base = getattr(node, "module", "") or ""
        names = {base, *(f"{base}.{name}" if base else name for name in named)}
        files = (vars(sys.modules[name]).get("__file__") for name in names if name in sys.modules)
        others = (file for file in files if isinstance(file, str) and not is_below(os.path.realpath(file), PACKAGE))
        imported = (file for file in others if not is_installed(file, root))
        places = sorted(_place(file, root) for file in imported)
        return f"{text} from {places}"
    return text


def _place(file: str, root: str) -> str:
    """Return the path of a file of the source tree from the root, and the content of a file from elsewhere.

    The root may be a folder of the tree. The content of a file beside it is measured code, which may change.
    """
    if is_below(file := _within(file, root), root):
        return os.path.relpath(file, root)
    if (top := _top(root)) and is_below(real := os.path.realpath(file), top):
        return os.path.relpath(real, os.path.realpath(root))
    return file_digest(file)


@cache
def _top(root: str) -> str:
    """Return the top folder of the source tree, ``""`` without git."""
    top = collected_tree() or top_level(Path(root))
    return os.path.realpath(top) if top else ""


def _within(file: str, root: str) -> str:
    """Return the path of a file through the root, also where one of both is written through a link and the other is not."""
    if is_below(file, root):
        return file
    real, folder = os.path.realpath(file), os.path.realpath(root)
    return os.path.join(root, os.path.relpath(real, folder)) if is_below(real, folder) else file


class _Unnamed(ast.NodeTransformer):
    """Copies a definition without the name of one function in it and those of its classes, which lead to it."""

    def __init__(self, path: list[str]) -> None:
        self._path = path

    def visit(self, node: ast.AST) -> ast.AST:
        if not (isinstance(node, _Definition) and self._path and node.name == self._path[0]):
            return node
        last = len(self._path) == 1
        inner = _Unnamed(self._path[1:])
        fields = {key: getattr(node, key) for key in node._fields if hasattr(node, key)}
        fields |= {"name": "", "body": node.body if last else [inner.visit(statement) for statement in node.body]}
        return type(node)(**fields)
