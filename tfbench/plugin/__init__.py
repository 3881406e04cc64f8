"""Connect pytest's hooks to the runner. Every pytest run imports this module, so it imports little."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.policy import PRESETS
from tfbench.storage.baselines import HISTORY, HISTORY_VARIABLE, PROFILES
from tfbench.suite.axes import SCALES, SMALL, VARIABLE, Variant, add_scale, set_scale
from tfbench.suite.claims import MARKERS

if TYPE_CHECKING:
    from tfbench.plugin.runner import Runner

SHARED = "--profile"
"""pytest-profiling has an option of the same name, and tests must run with both plugins installed."""
REPORTS = ("--report-json", "--report-html", "--report-markdown")
_RUN_ONLY = (
    "--against", "--baseline", "--save-baseline", *REPORTS, "--shard", "--job", "--resume", "--gate-suite", "--changed-only",
    "--history",
)  # fmt: skip
"""Options that need ``--benchmark``. Without it pytest would ignore them, and the run would pass."""
STARTED_WITH = {name: value for name, value in os.environ.items() if name != HISTORY_VARIABLE}
"""The environment before a conftest.py or a benchmark changed it."""
HISTORY_PLACES: WeakKeyDictionary[pytest.PytestPluginManager, str] = WeakKeyDictionary()
"""Place of the history that a run of pytest took out of the environment."""
RUNNER: pytest.StashKey[Runner] = pytest.StashKey()
"""Key of the runner in pytest's configuration; present only under ``--benchmark``."""

TERMINATION: pytest.StashKey[Any] = pytest.StashKey()
"""Key of the handler of SIGTERM that the run replaces."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # This is before any conftest.py is imported. Neither tests nor benchmarks see the variable.
    HISTORY_PLACES[pluginmanager] = os.environ.pop(HISTORY_VARIABLE, "")
    group = parser.getgroup("tfbench", "performance regression suite for TensorFlow")

    def add(name: str, help: str, metavar: str = "", default: str | None = "", **how: Any) -> None:
        """Add an option with a value, or a flag if there is no metavar."""
        how |= {"metavar": metavar, "default": default} if metavar else {"action": "store_true"}
        try:
            group.addoption(name, help=help, **how)
        except ValueError as error:
            if name == SHARED:
                return  # the other plugin's switch then turns on profiling here too, in the default folder
            text = f"tfbench: another plugin also has the option {name}; disable that plugin with -p no:NAME ({error})"
            raise pytest.UsageError(text) from error

    add("--benchmark", "run the benchmarks instead of the tests")
    add("--policy", "preset of thresholds and budgets", "|".join(PRESETS), "standard")
    add("--statistic", "what a verdict on time is about: median and tail (the default), mean or p90", "NAME")
    add("--against", "race a live side: self, env:NAME=VALUE, python:PATH, git:REV, joined by +", "SPEC")
    add("--save-baseline", "save the measurements under this name, unless the run fails", "NAME")
    add("--baseline", "gate against a saved baseline", "NAME")
    add("--replay", "cases of a saved baseline to race again live", "all|suspects|never", "all")
    add("--inject-slowdown", "make the contender run the fraction F of extra iterations", "F", "0")
    add("--device", "devices to measure on; GPUs by index or UUID", "cpu|gpu|all|gpu:0,1", "all")
    add("--scale", f"shapes of the benchmarks (default: {os.environ.get(VARIABLE, SMALL)})", "|".join(SCALES))
    add("--require-gpu", "fail without a GPU, instead of skipping its cases")
    add("--cpus", "processors for the workers, such as 0,2-3 (default: the last one)", "LIST")
    add("--strict-gate", "also fail on inconclusive, incomparable and missing results")
    add("--shard", "run one part of the cases, such as 2/4; see tfbench merge", "N/OF")
    add("--job", "measure as the job of a fleet in this file; tfbench job run starts pytest so", "FILE")
    add("--resume", "go on after an interruption: use the finished cases of the same code and environment")
    text = "also judge the mean of all cases, and fail if it is slower by F, such as 0.5%%"
    add("--gate-suite", text, "F", None)
    add(
        "--changed-only",
        "do not race cases whose code, graphs and packages are the same on both sides, but for a sample",
    )
    add("--report-json", "write the report as JSON", "PATH")
    add("--report-html", "write the report as a page: one file with charts, for a browser", "PATH")
    add("--report-markdown", "write the report as Markdown, for a pull request", "PATH")
    text = (
        f"add this run to the history in DIR or a database (default: {HISTORY}), with its baseline side as the anchor"
    )
    add("--history", text, "DIR|URL", nargs="?", const=HISTORY)
    text = f"profile each case in a separate launch, into DIR (default: {PROFILES})"
    add(SHARED, text, "DIR", nargs="?", const=PROFILES)
    add("--profile-on-regression", "profile both sides of each regressed case, and explain the slowdown")
    add("--profile-levels", "levels of the profiler's tracers, such as host=2,device=1,python=0", "LEVELS")
    add("--profile-method", "how to collect profiles", "session|context|sampling", "session")
    parser.addini("tfbench_paths", "files and folders of the benchmarks", type="args", default=["benchmarks"])
    text = "thresholds of single cases, such as test_io*: minimum_effect=0.05, tolerance=0.1"
    parser.addini("tfbench_thresholds", text, type="linelist", default=[])
    text = "files with tf.test.Benchmark classes, whose methods are benchmarks; patterns such as tests/*_benchmark.py"
    parser.addini("tfbench_tf_test_benchmarks", text, type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not config.getoption("benchmark"):
        if given := next((name for name in _RUN_ONLY if config.getoption(name.strip("-").replace("-", "_"))), ""):
            raise pytest.UsageError(f"{given} measures nothing without --benchmark; add it")
        return
    from tfbench.plugin.runner import Runner
    from tfbench.suite.tf_test_files import listed

    try:
        set_scale(config.getoption("scale") or os.environ.get(VARIABLE, SMALL))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if whole_suite(config):
        paths = [path for path in config.getini("tfbench_paths") if Path(config.rootpath, path).exists()]
        if paths:
            config.args = [str(Path(config.rootpath, path)) for path in paths]
            config.args += [str(path) for path in listed(config) if str(path) not in config.args]
    try:
        config.stash[RUNNER] = Runner(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if threading.current_thread() is threading.main_thread():
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


def whole_suite(config: pytest.Config) -> bool:
    """Tell whether the run is about all benchmarks: pytest got no paths, and was not started in a folder with tests."""
    here = config.invocation_params.dir
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return False
    return here == config.rootpath or not any(any(here.rglob(name)) for name in config.getini("python_files"))


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
    from tfbench.suite.tf_test_files import is_listed

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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    runner = config.stash.get(RUNNER, None)
    if runner is None:
        for item in items:
            if isinstance(item, pytest.Function) and "bench" in item.fixturenames:
                item.add_marker(pytest.mark.skip(reason="a benchmark; run it with pytest --benchmark"))
        return (yield)
    runner.seen(items)
    result = yield
    try:
        runner.selected(items)
    except TfbenchError as error:
        raise pytest.UsageError(str(error)) from None
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
        else:
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


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    if runner := session.config.stash.get(RUNNER, None):
        if TERMINATION in session.config.stash:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the report short
        session.exitstatus = runner.finish(exitstatus)


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
def bench() -> Any:
    """``bench(step, *arguments, **keywords)`` measures a step under ``pytest --benchmark``."""
    raise UsageError("only a benchmark itself can take bench: def test_mine(bench): bench(step, x)")


@pytest.fixture
def variant() -> Variant:
    """The variant of a benchmark that is ``across`` axes; empty for a benchmark without axes."""
    return Variant()
