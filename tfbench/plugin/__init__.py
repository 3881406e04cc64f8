"""The pytest plugin: pytest's hooks asking `session`. Wiring only; light to import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfbench.errors import TfbenchError, UsageError
from tfbench.policy import PRESETS
from tfbench.storage.layout import PROFILES
from tfbench.suite.axes import Variant
from tfbench.suite.claims import MARKER

if TYPE_CHECKING:
    from tfbench.plugin.runner import Runner

SHARED = "--profile"
"""pytest-profiling has an option of this name, which must not keep anybody's tests from running."""
RUNNER: pytest.StashKey[Runner] = pytest.StashKey()
"""What runs the benchmarks; there under ``--benchmark`` only."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tfbench", "performance regression suite for TensorFlow")

    def add(name: str, **how: Any) -> None:
        try:
            group.addoption(name, **how)
        except ValueError as error:
            if name == SHARED:
                return  # that plugin's switch is ours, too: it has no folder to name
            text = f"tfbench: another plugin has an option {name} as well; leave it out with -p no:NAME ({error})"
            raise pytest.UsageError(text) from error

    add("--benchmark", action="store_true", help="run the benchmarks instead of the tests")
    add("--policy", default="standard", metavar="|".join(PRESETS), help="how sure, at what cost")
    add(
        "--against",
        default="",
        metavar="SPEC",
        help="race a live side: self, env:NAME=VALUE, python:PATH, git:REV, joined by +",
    )
    add(
        "--save-baseline",
        default="",
        metavar="NAME",
        help="save what is measured under this name, unless the run fails",
    )
    add("--baseline", default="", metavar="NAME", help="gate against a saved baseline")
    add(
        "--replay",
        default="all",
        metavar="all|suspects|never",
        help="which cases of a saved baseline are raced again live",
    )
    add(
        "--inject-slowdown",
        default="0",
        metavar="F",
        help="the contender really does the fraction F of extra iterations",
    )
    add(
        "--device",
        default="all",
        metavar="cpu|gpu|all|gpu:0,1",
        help="which devices to measure on; GPUs by index or UUID",
    )
    add("--require-gpu", action="store_true", help="no GPU is an error and not a skip")
    add("--cpus", default="", metavar="LIST", help="processors for the workers, as 0,2-3 (default: one, the last)")
    add("--strict-gate", action="store_true", help="inconclusive, incomparable and missing fail too")
    add("--shard", default="", metavar="N/OF", help="run one part of the cases, as 2/4; see tfbench merge")
    add("--report-json", default="", metavar="PATH", help="write the report as JSON")
    add(
        SHARED,
        nargs="?",
        const=PROFILES,
        default="",
        metavar="DIR",
        help=f"profile each case in a launch of its own, into DIR (default: {PROFILES})",
    )
    add("--profile-on-regression", action="store_true", help="profile both sides of what regressed, and say why")
    add("--profile-levels", default="", metavar="LEVELS", help="of the profiler's tracers: host=2,device=1,python=0")
    add("--profile-method", default="session", metavar="session|context|sampling", help="how profiles are collected")
    parser.addini("tfbench_paths", "where the benchmarks are", type="args", default=["benchmarks"])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tfbench(cpus): cpus='all' lets a benchmark use every processor")
    config.addinivalue_line("markers", MARKER)
    if not config.getoption("benchmark"):
        return
    from tfbench.plugin.runner import Runner

    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        paths = [path for path in config.getini("tfbench_paths") if Path(config.rootpath, path).exists()]
        if paths:
            config.args = [str(Path(config.rootpath, path)) for path in paths]
    try:
        config.stash[RUNNER] = Runner(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_unconfigure(config: pytest.Config) -> None:
    if runner := config.stash.get(RUNNER, None):
        runner.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    if RUNNER not in session.config.stash:
        return (yield)
    from tfbench.suite.tensorflow_stub import stub_tensorflow

    with stub_tensorflow():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    runner = config.stash.get(RUNNER, None)
    if runner is None:
        for item in items:
            if isinstance(item, pytest.Function) and "bench" in item.fixturenames:
                item.add_marker(pytest.mark.skip(reason="a benchmark: run it with pytest --benchmark"))
        return (yield)
    runner.seen(items)
    result = yield
    try:
        runner.selected(items)
    except TfbenchError as error:
        raise pytest.UsageError(str(error)) from None
    return result


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
        session.exitstatus = runner.finish(session, exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if runner := config.stash.get(RUNNER, None):
        runner.summarise(terminalreporter)


@pytest.fixture
def bench() -> Any:
    """``bench(step, *arguments, **keywords)`` measures a step; runs under ``pytest --benchmark``."""
    raise UsageError("bench works in the signature of a benchmark only: def test_mine(bench): bench(step, x)")


@pytest.fixture
def variant() -> Variant:
    """The variant of a benchmark that is ``across`` some axes; empty without any."""
    return Variant()
