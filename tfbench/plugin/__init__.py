"""Connect pytest's hooks to the runner. Every pytest run imports this module, so it imports little."""

from __future__ import annotations

import argparse
import copy
import os
import re
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from weakref import WeakKeyDictionary

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import foreign_distribution, hear_of_children
from tfbench.fs import shortage
from tfbench.policy import PRESETS
from tfbench.storage.baselines import HISTORY, HISTORY_VARIABLE, PROFILES
from tfbench.suite.axes import SCALES, SMALL, VARIABLE, Variant, add_scale, set_scale
from tfbench.suite.claims import MARKERS

if TYPE_CHECKING:
    from tfbench.plugin.runner import Runner

REPORTS = ("report_json", "report_html", "report_markdown")
"""Settings with the file of a report."""
PREFIX = "--tfbench-"
"""Every option has a name with this prefix, which no other plugin takes."""
STARTED_WITH = {name: value for name, value in os.environ.items() if name != HISTORY_VARIABLE}
"""The environment before a conftest.py or a benchmark changed it."""
HISTORY_PLACES: WeakKeyDictionary[pytest.PytestPluginManager, str] = WeakKeyDictionary()
"""Place of the history that a run of pytest took out of the environment."""
RUNNER: pytest.StashKey[Runner] = pytest.StashKey()
"""Key of the runner in pytest's configuration; present only under ``--benchmark``."""

TAKEN: pytest.StashKey[list[str]] = pytest.StashKey()
"""Key of the short names of options that belong to another plugin or a conftest.py."""
DEFAULTS: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""Key of the options of plugins: their names in Python and defaults."""
OWN: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""Key of the options that conftest.py files define: their names in Python and defaults."""
TERMINATION: pytest.StashKey[Any] = pytest.StashKey()
"""Key of the handler of SIGTERM that the run replaces."""


class Option(NamedTuple):
    """An option of pytest, whose name on the command line is ``--NAME`` or ``--tfbench-NAME``."""

    name: str
    help: str
    metavar: str = ""
    """Empty for a flag."""
    default: str | None = ""
    const: str | None = None
    """The value of the option without a value, if it may have none."""

    @property
    def setting(self) -> str:
        """Its name in Python, as `setting` takes it."""
        return self.name.replace("-", "_")

    def attributes(self) -> dict[str, Any]:
        """Return the keywords for argparse, but for ``help``."""
        # argparse would take a default of "" for a given value.
        default = self.default or None
        value: dict[str, Any] = {"metavar": self.metavar, "default": default, "type": _given} if self.metavar else {}
        if self.const is not None:
            value |= {"nargs": "?", "const": self.const}
        return {"dest": f"tfbench_{self.setting}", **(value or {"action": "store_true"})}


def _given(text: str) -> str:
    """Return the value of an option.

    Raises `ArgumentTypeError` if it is empty, such as an unset variable of a shell: the run would pass without what it
    was to do.
    """
    if not text:
        raise argparse.ArgumentTypeError("the value is empty; give one, or leave the option out")
    return text


OPTIONS = (
    Option("policy", "preset of thresholds and budgets (default: %(default)s)", "|".join(PRESETS), "standard"),
    Option("statistic", "what a verdict on time is about: median and tail (the default), mean or p90", "NAME"),
    Option("against", "race a live side: self, PACKAGE==VERSION, tf-nightly, env:NAME=VALUE, python:PATH, git:REV, joined by +", "SPEC"),
    Option("save-baseline", "save the measurements under this name, unless the run fails", "NAME"),
    Option("baseline", "gate against a saved baseline", "NAME"),
    Option("replay", "cases of a saved baseline to race again live (default: %(default)s)", "all|never", "all"),
    Option("inject-slowdown", "make the contender run the fraction F of extra iterations", "F", "0"),
    Option("device", "devices to measure on (default: %(default)s); GPUs by index or UUID", "cpu|gpu|all|gpu:0,1", "all"),
    Option("scale", f"shapes of the benchmarks (default: {VARIABLE} or {SMALL})", "|".join(SCALES)),
    Option("require-gpu", "fail without a GPU, instead of skipping its cases"),
    Option("cpus", "processors for the workers, such as 0,2-3 (default: the last one)", "LIST"),
    Option("lanes", "cases that race at the same time, each on two processors of its own (default: %(default)s)", "N", "1"),
    Option("strict-gate", "also fail on inconclusive, incomparable and missing results"),
    Option("shard", "run one part of the cases, such as 2/4; tfbench gate merges the reports", "N/OF"),
    Option("job", "measure as the job of a fleet in this file; tfbench fleet job starts pytest so", "FILE"),
    Option("resume", "go on after an interruption: use the finished cases of the same code and environment"),
    Option("gate-suite", "also judge the mean of all cases, and fail if it is slower by F, such as 0.5%%", "F", None),
    Option("gate-device", "fail on a GPU if device time or energy of a step grows by more than F, such as 5%%", "F", None),
    Option("changed-only", "do not race cases whose code, graphs and packages are the same on both sides, but for a sample"),
    Option("report-json", "write the report as JSON", "PATH"),
    Option("report-html", "write the report as a page: one file with charts, for a browser", "PATH"),
    Option("report-markdown", "write the report as Markdown, for a pull request", "PATH"),
    Option(
        "history", f"add this run to the history in DIR or a database (default: {HISTORY}), with its baseline side as the anchor",
        "DIR|URL", const=HISTORY,
    ),
    Option("profile", f"profile each case in a separate launch, into DIR (default: {PROFILES})", "DIR", const=PROFILES),
    Option("profile-on-regression", "profile both sides of each regressed case, and explain the slowdown"),
)  # fmt: skip
"""Present under ``--benchmark`` only."""
_EMPTY = frozenset(option.setting for option in OPTIONS if option.default == "" and option.metavar)
_ASK_FOR_RESULTS = frozenset(
    {"against", "baseline", "save-baseline", "report-json", "report-html", "report-markdown", "shard", "job", "resume",
     "gate-suite", "gate-device", "changed-only", "history"}
)  # fmt: skip
"""Options that need ``--benchmark``. Without it pytest would ignore them, and the run would pass."""


_LISTING = (
    "collectonly",
    "setuponly",
    "setupplan",
    "showfixtures",
    "show_fixtures_per_test",
    "cacheshow",
    "markers",
    "help",
)
"""Options of pytest, by their names in Python, with which it runs no test."""


def setting(config: pytest.Config, name: str) -> Any:
    """Return the value of an option of tfbench by its name in Python, such as ``save_baseline``."""
    value = config.getoption(f"tfbench_{name}")
    return "" if value is None and name in _EMPTY else value


def in_use(config: pytest.Config, text: str) -> str:
    """Return a text of tfbench with the long names of those options whose short names belong to others."""
    if not (taken := config.stash.get(TAKEN, [])):
        return text
    return re.sub(rf"(?<![\w-])--({'|'.join(name[2:] for name in taken)})(?![\w-])", rf"{PREFIX}\1", text)


@contextmanager
def _refused(config: pytest.Config) -> Iterator[None]:
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
    # This is before any conftest.py is imported. Neither tests nor benchmarks see the variable.
    HISTORY_PLACES[pluginmanager] = os.environ.pop(HISTORY_VARIABLE, "")
    group = parser.getgroup("tfbench", "performance regression suite for TensorFlow")
    group.addoption("--benchmark", action="store_true", help="run the benchmarks instead of the tests")
    parser.addini("tfbench_paths", "files and folders of the benchmarks", type="args", default=["benchmarks"])
    text = "thresholds of single cases, such as test_io*: minimum_effect=0.05, tolerance=0.1"
    parser.addini("tfbench_thresholds", text, type="linelist", default=[])
    text = "files with tf.test.Benchmark classes, whose methods are benchmarks; patterns such as tests/*_benchmark.py"
    parser.addini("tfbench_tf_test_benchmarks", text, type="linelist", default=[])
    if getattr(pluginmanager, "_conftest_plugins", None):
        # A conftest.py names this plugin, so pytest_load_initial_conftests has begun without it.
        add_options(parser)


def add_options(parser: pytest.Parser) -> list[str]:
    """Add each option under both names; return the short names that belong to others, who keep them."""
    group, free = parser.getgroup("tfbench"), _free(parser)
    for option in OPTIONS:
        group.addoption(PREFIX + option.name, help=option.help, **option.attributes())
        if option.name in free:
            group.addoption(f"--{option.name}", help=f"the same as {PREFIX}{option.name}", **option.attributes())
    return [f"--{option.name}" for option in OPTIONS if option.name not in free]


def _free(parser: pytest.Parser) -> set[str]:
    """Return the options whose short names are free, so that pytest does not know their arguments."""
    names = [f"--{option.name}" for option in OPTIONS]
    try:
        unknown = parser.parse_known_and_unknown_args(names)[1]
    except pytest.UsageError:  # an option of another plugin wants a value
        unknown = [name for name in names if _is_free(parser, name)]
    return {name.removeprefix("--") for name in names if name in unknown}


def _is_free(parser: pytest.Parser, name: str) -> bool:
    try:
        return name in parser.parse_known_and_unknown_args([name])[1]
    except pytest.UsageError:
        return False


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Add the options after all plugins and the first conftest.py files had their turn, and under ``--benchmark`` only."""
    early_config.known_args_namespace.file_or_dir = _paths(early_config, parser, args)
    benchmark = early_config.known_args_namespace.benchmark
    others = _defaults(parser) if benchmark else {}
    yield
    if benchmark:
        early_config.stash[DEFAULTS] = others
        early_config.stash[OWN] = {name: value for name, value in _defaults(parser).items() if name not in others}
        early_config.stash[TAKEN] = add_options(parser)
        return
    _, unknown = parser.parse_known_and_unknown_args(list(args), copy.copy(early_config.option))
    names = {name: option.name for option in OPTIONS for name in (f"--{option.name}", PREFIX + option.name)}
    given = [name for word in unknown if (name := word.partition("=")[0]) in names]
    if asks := next((name for name in given if names[name] in _ASK_FOR_RESULTS), ""):
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


class _Reader(argparse.ArgumentParser):
    """A parser that raises an error where `argparse` would end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _paths(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> list[str]:
    """Return the paths among the arguments. pytest does not know the options yet, so it takes their values for paths.

    An option that another plugin has is left to it. A conftest.py that is not imported yet may have one of another form.
    """
    given: list[str] = early_config.known_args_namespace.file_or_dir
    reader, free = _Reader(add_help=False, allow_abbrev=False), _free(parser)
    for option in OPTIONS:
        short = [f"--{option.name}"] if option.name in free else []
        reader.add_argument(PREFIX + option.name, *short, **option.attributes())
    try:
        _, rest = reader.parse_known_args([word for word in args if word != "--"])
    except UsageError:
        return given
    return [path for path in given if path in rest]


def pytest_report_header(config: pytest.Config) -> list[str]:
    if RUNNER not in config.stash:
        return []
    taken = config.stash.get(TAKEN, [])
    notes = [f"{name} belongs to another plugin here; use {PREFIX}{name[2:]}" for name in taken]
    from tfbench.plugin.options import without_effect

    notes += [f"without effect in a race: {names}; {why}" for why, names in without_effect(config).items()]
    return [f"tfbench: {note}" for note in (*notes, foreign_distribution()) if note]


def present_folders(config: pytest.Config) -> list[str]:
    """Return the benchmark folders of the ini file that the project has."""
    return [path for path in config.getini("tfbench_paths") if Path(config.rootpath, path).exists()]


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not config.getoption("benchmark"):
        return
    with _refused(config):
        from tfbench.plugin.runner import Runner
        from tfbench.suite.functions import listed

        set_scale(setting(config, "scale") or os.environ.get(VARIABLE, SMALL))
        if whole_suite(config) and (paths := present_folders(config)):
            config.args = [str(Path(config.rootpath, path)) for path in paths]
            config.args += [str(path) for path in listed(config) if str(path) not in config.args]
        config.stash[RUNNER] = Runner(config)
    # In addopts it keeps benchmarks out of runs of the tests, and --benchmark asks for them.
    config.option.benchmark_skip = False
    if config.getoption("setuponly"):  # fixtures of benchmarks run in the measuring processes only
        config.option.setupplan = True
    config.pluginmanager.register(_Selecting(config.stash[RUNNER]), "tfbench-selecting")
    if threading.current_thread() is threading.main_thread():
        hear_of_children()
        # A cancelled job gets SIGTERM: like Ctrl-C it ends the run, with a report of the cases measured so far.
        config.stash[TERMINATION] = signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    if runner := config.stash.get(RUNNER, None):
        try:
            runner.close()
        finally:
            if TERMINATION in config.stash:
                signal.signal(signal.SIGTERM, config.stash[TERMINATION] or signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if RUNNER in metafunc.config.stash:
        add_scale(metafunc)


def only_lists(config: pytest.Config) -> bool:
    """Tell whether pytest lists what there is, and runs no test."""
    return any(config.getoption(name, False) for name in _LISTING)


def whole_suite(config: pytest.Config) -> bool:
    """Tell whether the run is about all benchmarks: pytest got no paths, and was not started in a folder with tests."""
    here = config.invocation_params.dir
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return False
    return here.resolve() == config.rootpath.resolve() or not any(
        any(here.rglob(name)) for name in config.getini("python_files")
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    runner = session.config.stash.get(RUNNER, None)
    if runner is None:
        return (yield)
    from tfbench.suite.tensorflow_stub import stub_tensorflow

    with stub_tensorflow() as runner.imported:
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Any:
    if RUNNER not in parent.config.stash:
        return None
    from tfbench.plugin.collect import misnamed

    if (refused := misnamed(module_path, parent)) is not None:
        return refused
    if not parent.config.getini("tfbench_tf_test_benchmarks"):
        return None
    from tfbench.plugin.collect import ListedFile
    from tfbench.suite.functions import is_listed

    return ListedFile.from_parent(parent, path=module_path) if is_listed(parent.config, module_path) else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Any:
    """Collect a file that the ini option names and whose name is no name of a test."""
    config = parent.config
    if RUNNER not in config.stash or not config.getini("tfbench_tf_test_benchmarks"):
        return None
    usual = any(file_path.match(pattern) for pattern in config.getini("python_files"))
    if usual or parent.session.isinitpath(file_path):
        return None  # pytest does it
    return pytest_pycollect_makemodule(file_path, parent)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Leave out parts of the stub, such as the module ``test_util``, which pytest would take for a function."""
    if RUNNER not in collector.config.stash:
        return None
    from tfbench.suite.tensorflow_stub import is_lazy

    return [] if is_lazy(obj) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if RUNNER in config.stash:
        return
    for item in items:
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


class _Selecting:
    """Takes the cases from the items that all plugins leave, those of ``--lf`` included.

    pytest registers the plugin of ``--lf`` in its `pytest_configure`. This one comes later, and so has the last word.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
        self._runner.seen(items)
        result = yield
        with _refused(config):
            self._runner.selected(items)
        return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    runner = collector.config.stash.get(RUNNER, None)
    if runner is not None:
        if report.passed:
            runner.left_out(collector)
        elif not (report := runner.again(collector, report)).passed:
            runner.not_collected(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    runner = item.config.stash.get(RUNNER, None)
    if runner is not None and item.nodeid in runner.cases:
        runner.ended(runner.cases[item.nodeid], report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    runner = pyfuncitem.config.stash.get(RUNNER, None)
    if runner is None or pyfuncitem.nodeid not in runner.cases:
        return None
    runner.run(pyfuncitem)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> Generator[None, None, None]:
    config = session.config
    if (runner := config.stash.get(RUNNER, None)) is None:
        return (yield)
    if TERMINATION in config.stash:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the report short
    session.exitstatus = ours = runner.finish(exitstatus)
    yield
    if setting(config, "against") or setting(config, "baseline"):
        # A plugin that has left out all cases, such as pytest-testmon, calls that a success.
        session.exitstatus = session.exitstatus or ours
    return None


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_benchmark_group_stats(config: pytest.Config) -> Generator[None, Any, Any]:
    groups = yield
    if RUNNER not in config.stash:
        return groups
    from tfbench.plugin.runner import table_groups

    return table_groups(config, groups)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if runner := config.stash.get(RUNNER, None):
        runner.summarise(terminalreporter)


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
