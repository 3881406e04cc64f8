"""The processes that fork: an ancestor, which imports TensorFlow once, and the zygotes of the sides.

Only what the benchmarks import themselves is each side's own, see docs/decisions/04-zygotes.md.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from tfbench import errors, imports, protocol
from tfbench.facts import describe, library_variables
from tfbench.model import MODULES, NATIVE, PLAIN
from tfbench.protocol import Channel, ChannelClosed, LaunchRequest, Reap, StartAncestor, StartZygote, encode
from tfbench.suite.axes import Variant, add_scale
from tfbench.suite.claims import CALLS, MARKERS, PLUGINS, STATS
from tfbench.worker import gc, isolation, tf_runtime, time
from tfbench.worker.adopted import Collection, PlainBenchmark, parse_flags
from tfbench.worker.bench import Bench, TimingLaunch
from tfbench.worker.launches import ProbingLaunch, ProfilingLaunch, SamplingLaunch
from tfbench.worker.own_files import OwnFiles
from tfbench.worker.probes import resident
from tfbench.worker.quiet import own_time
from tfbench.worker.shared import Shared, collecting

# What a zygote inherits from its ancestor, and whether its benchmarks would have imported the same


_TENSORFLOW = "tensorflow"
_AT_START = frozenset({"sitecustomize", "usercustomize"})
"""Modules that Python imports when it starts, if a folder of ``PYTHONPATH`` has them."""


@dataclass(frozen=True)
class Inheritance:
    """The state of a process that has imported TensorFlow for others."""

    variables: Mapping[str, str]
    path: tuple[str, ...]
    finders: tuple[object, ...]
    """Those of ``sys.meta_path``."""
    modules: frozenset[str]
    """Names of the imported top-level modules."""
    folder: str
    """The working directory, from which libraries have read files with a relative path."""
    seconds: float
    """How long the import of TensorFlow took."""

    @classmethod
    def of_this_process(cls, seconds: float) -> Inheritance:
        modules = frozenset(name for name in sys.modules if "." not in name)
        state = tf_runtime.variables_in_effect(), tuple(sys.path), tuple(sys.meta_path), modules, os.getcwd()
        return cls(*state, seconds)

    def conflict(self) -> str:
        """Return why this process, which was forked in that state, would have imported something else by itself.

        ``""`` if it would not: no variable that libraries read has changed since, and no new entry in the path and no new
        finder would provide a module that was imported already.
        """
        now = tf_runtime.variables_in_effect()
        if changed := sorted(name for name in {*self.variables, *now} if self.variables.get(name) != now.get(name)):
            return f"{', '.join(changed)} is set while the benchmarks are imported; set it before pytest starts"
        for name, value in sorted(library_variables(os.environ).items()):
            if os.path.exists(value) and os.path.realpath(value) != os.path.realpath(os.path.join(self.folder, value)):
                return f"{name}={value} is a relative path, which each side has in its own tree"
        for finder in sys.meta_path:
            if finder not in self.finders and _finds(finder, _TENSORFLOW):
                return f"the benchmarks add {type(finder).__name__} to sys.meta_path, which decides about {_TENSORFLOW}"
        at_start = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        for entry in (entry for entry in sys.path if entry not in self.path):
            names = self.modules.union(_AT_START if entry in at_start else ())
            for name in sorted(names & imports.modules_in(entry) - {imports.OWN}):
                if (where := _origin(name)) != getattr(sys.modules.get(name), "__file__", None):
                    return f"the benchmarks change the path, and {name} would come from {where}"
        return ""


def _finds(finder: Any, name: str) -> bool:
    """Whether a finder provides this module, or refuses to."""
    with suppress(Exception):
        return finder.find_spec(name, None) is not None
    return True


def _origin(name: str) -> str | None:
    """Return the file that an import of this top-level module would run now."""
    try:
        spec = PathFinder.find_spec(name, sys.path)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None and spec.has_location else getattr(sys.modules[name], "__file__", None)


# The ancestor: imports what is installed, then forks a zygote for each side


def main(start: protocol.Message) -> None:
    """Run as an ancestor, or as a zygote in the place of one that has run an op."""
    if isinstance(start, StartZygote):
        run(start, os.getcwd(), None)
    elif isinstance(start, StartAncestor):
        run_ancestor(start)


def run_ancestor(start: StartAncestor) -> None:
    """Import what is installed, then fork zygotes until the controller is gone."""
    isolation.die_with_parent(start.controller)
    isolation.adopt_orphans()
    isolation.limit_files(start.file_bytes)
    channel = _own_channel(start.channel)
    tf_runtime.pin(start.cpus)
    seconds = 0.0
    if start.imports_tensorflow:
        gc.disable()  # collections take a fifth of the import, which leaves little garbage
        seconds = _import_tensorflow(start)
        gc.enable()
    gc.collect()
    gc.freeze()
    inheritance = Inheritance.of_this_process(seconds) if start.imports_tensorflow else None
    with suppress(ChannelClosed):
        _serve_forks(channel, StartZygote, partial(_become_zygote, os.getcwd(), inheritance), set())
    os._exit(0)


def _import_tensorflow(start: StartAncestor) -> float:
    """Return how many seconds the import took."""
    began = time.perf_counter()
    try:
        importlib.import_module(_TENSORFLOW)
        seconds = time.perf_counter() - began
        tf_runtime.keras()
    except Exception:
        # A broken import may leave modules behind. Zygotes of a new process report the error with the benchmark's name.
        tf_runtime.replace_process(encode(replace(start, imports_tensorflow=False)).decode(), start.channel)
    return seconds


def _become_zygote(home: str, inheritance: Inheritance | None, request: StartZygote, files: list[int]) -> None:
    talk, log = files
    _take_over(log)
    run(replace(request, channel=talk), home, inheritance)


def _serve_forks(
    channel: Channel, kind: type[protocol.ForkRequest], task: Callable[[Any, list[int]], object], spared: set[int]
) -> NoReturn:
    """Fork a process that does the task for each request of this kind, with its open files, and reap those processes.

    What an ended process has left behind ends with it, unless it is ``spared``. Raises `ChannelClosed` once the controller is gone.
    """
    forked: set[int] = set()
    while True:
        request = channel.receive(kind, Reap)
        if isinstance(request, Reap):
            status = isolation.reap(request.pid, request.patience) if request.pid in forked else 0
            forked.discard(request.pid)
            isolation.end_orphans(forked | spared)
            channel.send(protocol.Reaped(status))
            continue
        files, parent = channel.descriptors, os.getpid()
        if (pid := os.fork()) == 0:
            tf_runtime.run_and_exit(parent, partial(task, request, files))
        with suppress(OSError):  # the child does the same: whichever comes first
            os.setpgid(pid, pid)
        forked.add(pid)
        for file in files:
            os.close(file)
        channel.send(protocol.Launched(pid))


def _own_channel(descriptor: int) -> Channel:
    """Return the channel of this process alone.

    A process forked from it, such as one of multiprocessing, closes it: the controller sees the end of the last one that has it.
    """
    channel = Channel(socket.socket(fileno=descriptor))
    os.register_at_fork(after_in_child=channel.close)
    return channel


def _take_over(log: int) -> None:
    """Write into the log of a forked process, and lead the group of what it starts."""
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    with suppress(OSError):  # it leads a session
        os.setpgid(0, 0)


# The zygote: collects the benchmarks of a side, runs no op, and forks a process for each launch


HANDLERS: Mapping[type[protocol.CaseRequest], type[Bench[Any]]] = {
    protocol.TimeCase: TimingLaunch,
    protocol.ProbeCase: ProbingLaunch,
    protocol.ProfileCase: ProfilingLaunch,
    protocol.SampleCase: SamplingLaunch,
}
"""Request -> the task of the process that is forked for it."""
_OWN = Path(__file__).parent
"""Folder of the modules between a benchmark and its step."""
_NOWHERE = os.devnull, os.devnull
"""The source trees of a side that reads the working tree."""
_TAIL = 6000
"""Characters of a traceback that are sent."""
_NEEDS_PLUGIN = re.compile(
    r"fixture '.*' not found$|Failed: (async def functions are not|.* requested an async fixture)"
)
"""Errors of pytest in a process that lacks a plugin."""


def run(start: StartZygote, home: str, inheritance: Inheritance | None) -> None:
    """Run as a zygote.

    Args:
        home: Working directory of a process that replaces this one.
        inheritance: What was imported before; ``None`` if nothing was.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a process that is killed then leaves its last lines behind
    isolation.adopt_orphans()
    _set_path(start.python_path)
    imports.enter(start.root)
    # On every side: what it leaves in memory makes steps up to 1% faster or slower.
    folders = imports.redirect_imports(*(start.tree_redirect or _NOWHERE))
    sys.path.append(start.root)
    # A Python process that a step starts imports the working tree otherwise, from an absolute entry or a .pth file.
    own, *given = start.python_path.split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([own, *folders, *given]))
    isolation.compile_own_files()
    replaced = start.tree_redirect[0] if start.tree_redirect else ""
    if inheritance is None:
        _customize()
    own_files = OwnFiles(start.tree or start.root, replaced, start.ignored)
    if start.watches:
        own_files.watch()
    channel = _own_channel(start.channel)
    zygote = Zygote(channel, start, home, inheritance, own_files, tf_runtime.Seeds())
    code = pytest.main(_pytest_arguments(start), plugins=[zygote, imports.FolderByFolder()])
    if not zygote.served:
        channel.send(protocol.Failed(f"pytest ended with code {int(code)} while it collected the benchmarks"))


def _set_path(python_path: str) -> None:
    """Replace ``PYTHONPATH`` in the environment, and its entries in the path."""
    before, now = (text.split(os.pathsep) for text in (os.environ.get("PYTHONPATH", ""), python_path))
    place = min((sys.path.index(entry) for entry in before if entry in sys.path), default=0)
    sys.path[:] = [entry for entry in sys.path if entry not in before]
    sys.path[place:place] = now
    os.environ["PYTHONPATH"] = python_path


def _customize() -> None:
    """Import what Python would have imported when it started with this ``PYTHONPATH``, which the ancestor did not have."""
    for name in sorted(_AT_START):
        spec = PathFinder.find_spec(name, os.environ["PYTHONPATH"].split(os.pathsep))
        if spec is not None and spec.origin != getattr(sys.modules.get(name), "__file__", None):
            sys.modules.pop(name, None)
            importlib.import_module(name)


def _pytest_arguments(start: StartZygote) -> list[str]:
    paths = (os.path.join(start.root, file) for file in start.files)
    # A file that only the other side has is left out. Its cases are then reported as not collected.
    files = [path for path in paths if path not in start.offenders and os.path.exists(path)]
    cache = os.path.join(tempfile.gettempdir(), "pytest-cache")  # in the run's own folder of temporary files
    arguments = [*(files or [start.root]), "--capture=no", *collecting(start.root, start.import_mode, cache)]
    if start.inifile:
        arguments += ["-c", start.inifile]
    if start.inifile == os.devnull:  # otherwise pytest would look for conftest.py files above the root
        arguments += ["--confcutdir", start.root]
    if start.pythonpath:
        arguments += ["-o", f"pythonpath={shlex.join(start.pythonpath)}"]
    if not files:
        arguments += ["--ignore-glob=*"]  # pytest must still start, so that the reasons are reported
    return arguments


@dataclass(eq=False)
class Zygote(Collection):
    """A pytest plugin that takes over after collection and answers the controller."""

    channel: Channel
    start: StartZygote
    home: str
    """The working directory that the process was started in."""
    inheritance: Inheritance | None
    """What its ancestor has imported; ``None`` if it imports everything itself."""
    own_files: OwnFiles
    seeds: tf_runtime.Seeds
    served: bool = field(default=False, init=False)
    _modules: set[str] = field(default_factory=set, init=False)
    """Installed top-level modules that are loaded before the first launch."""
    _items: dict[str, pytest.Item] = field(default_factory=dict, init=False)
    _broken: dict[str, str] = field(default_factory=dict, init=False)
    _launch: Bench[Any] | None = field(default=None, init=False)
    _imports: dict[str, tuple[float, int]] = field(default_factory=dict, init=False)
    """Benchmark file -> seconds and resident bytes of what it was the first to import."""
    _mark: tuple[int, int] = field(default_factory=lambda: (own_time(), resident().get("RssAnon", 0)), init=False)
    """The time and the resident bytes before what is imported next. The first file has the conftest.py files as well."""

    def pytest_plugin_registered(self, plugin: object, manager: pytest.PytestPluginManager) -> None:
        """Let a conftest.py have hooks of plugins that are not loaded here."""
        for caller in manager.get_hookcallers(plugin) or ():
            if not caller.has_spec():
                for hook in caller.get_hookimpls():
                    hook.optionalhook = True  # type: ignore[misc]

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        vars(config.option).update(self.start.options)
        for marker in MARKERS:
            config.addinivalue_line("markers", marker)

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        add_scale(metafunc)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        started = tf_runtime.has_run_an_op()
        report: Any = yield
        if isinstance(collector, pytest.Module):
            if tf_runtime.has_run_an_op():
                self._restart_without(str(collector.path), started)
            (began, held), self._mark = self._mark, (own_time(), resident().get("RssAnon", 0))
            self._imports[collector.nodeid] = (self._mark[0] - began) * 1e-9, self._mark[1] - held
        if report.failed and isinstance(collector, (pytest.Module, pytest.Directory, pytest.Session)):
            self._broken[str(collector.path)] = str(report.longrepr)[-_TAIL:]
        return report  # type: ignore[no-any-return]

    def _restart_without(self, file: str, started: bool) -> NoReturn:
        """Replace this process, which has run an op and cannot be forked, by one that leaves the module out."""
        if started or file in self.start.offenders:
            raise pytest.UsageError("conftest.py runs a TensorFlow op while it is imported; move it into a fixture")
        start = replace(self.start, offenders=(*self.start.offenders, file))
        os.chdir(self.home)
        tf_runtime.replace_process(encode(start).decode(), self.channel.fileno())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        self._items = {item.nodeid: item for item in items}  # before pytest orders them by their fixtures
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        try:
            self._serve()
        except ChannelClosed:
            os._exit(0)  # the controller is gone; an orderly exit of TensorFlow takes a second

    def _serve(self) -> NoReturn:
        tf_runtime.keras()
        spawns = tf_runtime.has_opened_gpu()
        helpers = isolation.children()  # what the benchmarks' modules have started lives as long as the zygote
        self.own_files.rest()
        self._modules = imports.installed_modules({})
        self.own_files.remember()
        self.seeds.imported()
        gc.collect()
        gc.freeze()
        self.served = True
        redirect = self.start.tree_redirect or _NOWHERE
        self.channel.send(
            protocol.Ready(
                cases=tuple(self._items),
                broken=self._broken,
                offenders=self.start.offenders,
                environment={
                    **describe(self.start.options),
                    MODULES: sorted(self._modules),
                    "defaults": tf_runtime.defaults(),
                },
                import_seconds=self.inheritance.seconds if self.inheritance else None,
                spawns=spawns,
                # The search runs on every side, also where it can find none. It leaves 0.8 MiB free in Python's
                # arenas, which launches of this zygote then need not allocate.
                leaked_packages=tuple(imports.leaked_packages(*redirect, self.start.root)),
                hidden=imports.hidden_modules(),
                needs_own_import=self.inheritance.conflict() if self.inheritance else "",
                imports=self._imports,
            )
        )
        if spawns:
            # It has initialised CUDA, which no child could use. So it becomes the process of its only launch.
            request = self.channel.receive(LaunchRequest)
            self.channel.send(protocol.Launched(os.getpid()))
            tf_runtime.run_and_exit(os.getppid(), partial(self._answer, request, self.channel.descriptors))
        _serve_forks(self.channel, LaunchRequest, self._answer, helpers)

    def _answer(self, request: LaunchRequest, descriptors: list[int]) -> None:
        talk, log, *pipes = descriptors
        _take_over(log)
        isolation.adopt_orphans()
        channel = _own_channel(talk)
        tf_runtime.pin(request.cpus)
        tf_runtime.set_threads(len(request.cpus))
        isolation.limit_arenas(len(request.cpus))
        isolation.keep_freed_memory()
        self.seeds.fork()
        if not isinstance(request, protocol.CaseRequest):
            channel.send(protocol.DevicesListed(tf_runtime.devices()))
            return
        item = self._items[request.case]
        if "caplog" not in getattr(item, "fixturenames", ()):  # pytest would keep each record that a step logs
            item.config.pluginmanager.unregister(item.config.pluginmanager.get_plugin("logging-plugin"))
        if self.start.watches:
            self.own_files.watch()
        self._launch = HANDLERS[type(request)](channel, request, pipes, getattr(item, "function", None), self.own_files)
        try:
            reports = runtestprotocol(item, log=False, nextitem=None)
        except (KeyboardInterrupt, pytest.exit.Exception) as error:  # they would end a run of pytest
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            channel.send(protocol.Failed(text, str(item.repr_failure(pytest.ExceptionInfo.from_current()))[-_TAIL:]))
            return
        if self._launch.refusal:
            trace = next((report.longreprtext[-_TAIL:] for report in reports if report.failed), "")
            channel.send(protocol.Failed(self._launch.refusal, trace))
        elif failed := [report for report in reports if report.failed and not self._launch.ends_early]:
            plain, text = self._launch.late_facts.get(PLAIN), _last_line(failed[0])
            hint = PLUGINS if _NEEDS_PLUGIN.match(text) else ""
            if plain is not None and plain["reads_stats"]:
                hint = STATS
            elif plain is not None and self._launch.called and text.startswith(("assert ", "AssertionError")):
                hint = CALLS
            hinted = text.removesuffix(".") if hint else text
            words = "; ".join(filter(None, (hinted, hint, self._launch.fix_of(text))))
            channel.send(protocol.Failed(words, failed[0].longreprtext[-_TAIL:]))
        elif skipped := [report for report in reports if report.skipped]:
            channel.send(protocol.Skipped(_skip_reason(skipped[0])))
        elif not self._launch.called:
            call = "bench(step, ...)" if "bench" in getattr(item, "fixturenames", ()) else "benchmark(function, ...)"
            channel.send(protocol.Failed(f"the benchmark never called {call}, so it has no step to measure"))
        else:
            if isinstance(request, protocol.TimeCase):
                later = imports.installed_modules(self.own_files.known) - self._modules
                facts = {NATIVE: self.own_files.native(), MODULES: sorted(later)}
                self._launch.late_facts |= {name: fact for name, fact in facts.items() if fact}
            channel.send(protocol.Done(self._launch.late_facts))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """Hide tfbench's own frames from the traceback of an error in a benchmark."""
        if call.excinfo is None:
            return
        frames = call.excinfo.traceback
        own = [entry.frame for entry in frames if Path(entry.path).parent == _OWN]
        if frames[-1].frame not in own or isinstance(call.excinfo.value, errors.BenchmarkError):
            for frame in own:
                frame.f_globals["__tracebackhide__"] = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Apply the levels of the variant before any fixture can run an op."""
        parse_flags()
        callspec = getattr(item, "callspec", None)
        variant = callspec.params.get("variant") if callspec is not None else None
        if isinstance(variant, Variant) and (reason := variant.enter()) is not None:
            pytest.skip(reason)

    @pytest.fixture
    def bench(self) -> Bench[Any]:
        """``bench(step, *arguments, **keywords)`` measures a step, see `Bench`."""
        assert self._launch is not None  # fixtures run only in the process of a launch
        return self._launch

    @pytest.fixture
    def shared(self) -> Shared:
        """``shared(build, *arguments)`` returns the folder that ``build`` filled once for all launches, see `Shared`."""
        return Shared(Path(self.start.made), self.own_files)

    @pytest.fixture
    def variant(self) -> Variant:
        """The empty variant, for a benchmark without axes."""
        return Variant()

    @pytest.fixture
    def benchmark(self, request: pytest.FixtureRequest) -> Iterator[PlainBenchmark]:
        """``benchmark(function, *arguments)`` races a function, see `PlainBenchmark`."""
        assert self._launch is not None
        fixture = PlainBenchmark(self._launch, request.node)
        yield fixture
        fixture.close()


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    unknown = getattr(report.longrepr, "errorstring", None)  # of a fixture
    text = unknown or getattr(crash, "message", None) or report.longreprtext.strip().rpartition("\n")[2]
    return errors.error_line(str(text)).removeprefix(f"{errors.__name__}.{errors.BenchmarkError.__name__}: ")[:500]


def _skip_reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        expected = f" ({report.wasxfail})" if report.wasxfail else ""
        text = _last_line(report)
        return f"pytest.xfail was called{expected}" if "XFailed" in text else f"marked xfail{expected}: {text}"
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return str(reason).removeprefix("Skipped: ")
