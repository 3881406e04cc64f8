"""Connect pytest's hooks to the runner. Every pytest run imports this module, so it imports little."""

from __future__ import annotations

import argparse
import copy
import os
import re
import shlex
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.fs import shortage
from tfbench.session.options import ASKS, OPTIONS, PREFIX
from tfbench.suite.axes import SMALL, VARIABLE, Variant, set_scale
from tfbench.suite.claims import MARKERS

STARTED_WITH = dict(os.environ)
"""The environment before a conftest.py or a benchmark changed it."""
RUNNER = "tfbench-runner"
"""Name of the plugin that has the hooks of a run; registered only under ``--benchmark``."""

TAKEN: pytest.StashKey[list[str]] = pytest.StashKey()
"""Key of the short names of options that belong to another plugin or a conftest.py."""
DEFAULTS: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""Key of the options of plugins: their names in Python and defaults."""
OWN: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""Key of the options that conftest.py files define: their names in Python and defaults."""

_NAMES = {name: option for option in OPTIONS for name in (f"--{option.name}", PREFIX + option.name)}
_WITH_VALUE = {name for name, option in _NAMES.items() if option.metavar}
_LISTING = (
    "collectonly", "setuponly", "setupplan", "showfixtures", "show_fixtures_per_test", "cacheshow", "markers", "help",
)  # fmt: skip
"""Options of pytest, by their names in Python, with which it runs no test."""


def in_use(config: pytest.Config, text: str) -> str:
    """Return a text of tfbench with the long names of those options whose short names belong to others."""
    if not (taken := config.stash.get(TAKEN, [])):
        return text
    return re.sub(rf"(?<![\w-])--({'|'.join(name[2:] for name in taken)})(?![\w-])", rf"{PREFIX}\1", text)


@contextmanager
def refused(config: pytest.Config) -> Iterator[None]:
    """Raise the user's errors as `pytest.UsageError`, which pytest prints in one line without a traceback."""
    try:
        yield
    except TfbenchError as error:
        raise pytest.UsageError(in_use(config, str(error))) from None
    except (OSError, MemoryError, RuntimeError) as error:
        if not (why := shortage(error)):
            raise
        raise pytest.UsageError(why) from None


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    group = parser.getgroup("tfbench", "performance regression suite for TensorFlow")
    group.addoption("--benchmark", action="store_true", help="run the benchmarks instead of the tests")
    parser.addini("tfbench_paths", "files and folders of the benchmarks", type="args", default=["benchmarks"])
    text = "files with tf.test.Benchmark classes, whose methods are benchmarks; patterns such as tests/*_benchmark.py"
    parser.addini("tfbench_tf_test_benchmarks", text, type="linelist", default=[])
    if getattr(pluginmanager, "_conftest_plugins", None):
        # A conftest.py names this plugin, so pytest_load_initial_conftests has begun without it.
        add_options(parser)


def add_options(parser: pytest.Parser) -> list[str]:
    """Add each option under both names; return the short names that belong to others, who keep them."""
    group, taken = parser.getgroup("tfbench"), list[str]()
    for option in OPTIONS:
        group.addoption(PREFIX + option.name, help=option.help, **option.attributes())
        if _is_free(parser, short := f"--{option.name}"):
            group.addoption(short, help=f"the same as {PREFIX}{option.name}", **option.attributes())
        else:
            taken.append(short)
    return taken


def _is_free(parser: pytest.Parser, name: str) -> bool:
    """Tell whether pytest does not know an option."""
    try:
        return name in parser.parse_known_and_unknown_args([name])[1]
    except pytest.UsageError:  # it belongs to another plugin, and wants a value
        return False


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Add the options after all plugins and the first conftest.py files had their turn, and under ``--benchmark`` only."""
    benchmark = early_config.known_args_namespace.benchmark
    if benchmark:
        _start_anew(early_config)
    early_config.known_args_namespace.file_or_dir = _paths(early_config, parser, args)
    others = _defaults(parser) if benchmark else {}
    yield
    if benchmark:
        early_config.stash[DEFAULTS] = others
        early_config.stash[OWN] = {name: value for name, value in _defaults(parser).items() if name not in others}
        early_config.stash[TAKEN] = add_options(parser)
        return
    _, unknown = parser.parse_known_and_unknown_args(list(args), copy.copy(early_config.option))
    given = [name for word in unknown if (name := word.partition("=")[0]) in _NAMES]
    if asks := next((name for name in given if ASKS in _NAMES[name].roles), ""):
        raise pytest.UsageError(f"{asks} needs --benchmark; add it")
    if given:
        add_options(parser)  # settings of benchmark runs, as addopts of an ini file may have them


@pytest.hookimpl(specname="pytest_load_initial_conftests")
def pytest_note_environment() -> None:
    """Note the environment after plugins such as pytest-env have set theirs, and before a conftest.py is imported."""
    STARTED_WITH.clear()
    STARTED_WITH.update(os.environ)


def _defaults(parser: pytest.Parser) -> dict[str, Any]:
    """Return all options that pytest knows so far by their names in Python, with their defaults."""
    try:
        return vars(parser.parse_known_args([], argparse.Namespace()))
    except pytest.UsageError:  # an option is required
        return {}


def _start_anew(config: pytest.Config) -> None:
    """Start pytest again, with an equals sign, if a file or folder elsewhere is the value of an option.

    pytest parses its arguments before it knows the options of plugins, takes such a path for a test, and looks for its root
    and its ini file there. Raises `SystemExit` with the exit code of the other run.
    """
    given, words = config.invocation_params, list[str]()
    typed = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, given.args)]
    for word in typed:
        elsewhere = os.path.exists(word) and not Path(word).resolve().is_relative_to(given.dir.resolve())
        is_value = elsewhere and words and words[-1] in _WITH_VALUE
        words[-1:] = [f"{words[-1]}={word}"] if is_value else [*words[-1:], word]
    if words != typed:
        os.environ.pop("PYTEST_ADDOPTS", None)
        raise SystemExit(pytest.main(words, given.plugins))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Start anew here if a conftest.py names this plugin, which was not asked earlier."""
    if config.getoption("benchmark"):
        _start_anew(config)


def _paths(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> list[str]:
    """Return the paths among the arguments. pytest does not know the options yet, so it takes their values for paths.

    An option that another plugin has is left to it. A conftest.py that is not imported yet may have one of another form.
    """
    values = Counter(
        word
        for name, word in pairwise(args)
        if name in _WITH_VALUE and (name.startswith(PREFIX) or _is_free(parser, name))
    )
    return list((Counter(early_config.known_args_namespace.file_or_dir) - values).elements())


def present_folders(config: pytest.Config) -> list[str]:
    """Return the benchmark folders of the ini file that the project has."""
    return [path for path in config.getini("tfbench_paths") if Path(config.rootpath, path).exists()]


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not config.getoption("benchmark"):
        return
    with refused(config):
        from tfbench.plugin.runner import Runner
        from tfbench.suite.functions import listed

        set_scale(config.getoption("tfbench_scale") or os.environ.get(VARIABLE, SMALL))
        if whole_suite(config) and (paths := present_folders(config)):
            config.args = [str(Path(config.rootpath, path)) for path in paths]
            config.args += [str(path) for path in listed(config) if str(path) not in config.args]
        runner = Runner(config)
    # In addopts it keeps benchmarks out of runs of the tests, and --benchmark asks for them.
    config.option.benchmark_skip = False
    if config.getoption("setuponly"):  # fixtures of benchmarks run in the measuring processes only
        config.option.setupplan = True
    config.pluginmanager.register(runner, RUNNER)


def only_lists(config: pytest.Config) -> bool:
    """Tell whether pytest lists what there is, and runs no test."""
    return any(config.getoption(name, False) for name in _LISTING)


def whole_suite(config: pytest.Config) -> bool:
    """Tell whether the run is about all benchmarks: pytest got no paths, and was not started in a folder with tests."""
    here = config.invocation_params.dir
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return False
    names = config.getini("python_files")
    return here.resolve() == config.rootpath.resolve() or not any(any(here.rglob(name)) for name in names)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items if not config.getoption("benchmark") else ():
        if takes_bench(item):
            item.add_marker(pytest.mark.skip(reason="a benchmark; run it with pytest --benchmark"))


def takes_bench(item: pytest.Item) -> bool:
    """Tell whether a test takes the fixture `bench`, and not a fixture or parameter of the project with that name.

    A fixture of the project that replaces it may take it itself.
    """
    if not isinstance(item, pytest.Function) or "bench" not in item.fixturenames:
        return False
    for fixture in reversed(item._fixtureinfo.name2fixturedefs.get("bench", ())):
        if fixture.func.__module__.partition(".")[0] == "tfbench":
            return True
        if "bench" not in fixture.argnames:
            break
    return False


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Any:
    """``bench(step, *arguments, **keywords)`` measures a step under ``pytest --benchmark``."""
    if getattr(request.function, "is_hypothesis_test", False):
        raise UsageError("bench measures one step, and hypothesis calls it with many: replace @given by @parametrize")
    raise UsageError("only a benchmark itself can take bench: def test_mine(bench): bench(step, x)")


@pytest.fixture
def variant() -> Variant:
    """The variant of a benchmark that is ``across`` axes; empty for a benchmark without axes."""
    return Variant()
