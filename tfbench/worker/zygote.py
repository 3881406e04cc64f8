"""The zygote: imports TensorFlow, collects the benchmarks, runs no op, forks a child for each launch."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from tfbench.errors import TfbenchError
from tfbench.model import JSON
from tfbench.protocol import Channel, ChannelClosed
from tfbench.suite.axes import Variant
from tfbench.suite.claims import MARKER
from tfbench.suite.fingerprint import digest
from tfbench.worker import tf_internals, tf_runtime
from tfbench.worker.bench import Bench, Launch, LaunchHandler
from tfbench.worker.energy_launch import Looping
from tfbench.worker.environment import describe
from tfbench.worker.import_redirect import leaked_packages, redirect_imports
from tfbench.worker.import_timer import ImportTimer
from tfbench.worker.probe_launch import Probing
from tfbench.worker.profile_launch import Profiling
from tfbench.worker.shared import Shared

_REAP_SECONDS = 5.0
"""A process told to end gets this long before it is killed."""
_STRICTNESS = ("strict", "strict_config", "strict_markers", "strict_parametrization_ids", "strict_xfail")
_TAIL = 6000
"""Characters of a traceback that are worth sending."""


def main(argv: list[str]) -> int:
    """Run as a zygote; ``argv`` is one JSON object, see `race.zygote`."""
    order = json.loads(argv[0])
    order["home"] = os.getcwd()
    os.chdir(order["root"])
    sys.path.append(order["root"])
    if order["tree_redirect"]:
        redirect_imports(*order["tree_redirect"])
    channel = Channel.from_descriptor(order["channel"])
    tf_runtime.pin(order["cpus"])
    timer = ImportTimer()
    sys.meta_path.insert(0, timer)
    zygote = Zygote(channel, order, argv, timer)
    code = pytest.main(_pytest_arguments(order), plugins=[zygote])
    if not zygote.served:
        channel.send("failed", message=zygote.explain(code))
    return 0


def _pytest_arguments(order: JSON) -> list[str]:
    places = {file: os.path.join(order["root"], file) for file in order["files"]}
    # A file that is new on the other side is none here: its cases are told as not collected.
    files = [file for file, place in places.items() if place not in order["offenders"] and os.path.exists(place)]
    arguments = [*(files or [order["root"]]), f"--rootdir={order['root']}", "--capture=no", "-q"]
    arguments += ["--continue-on-collection-errors", "--override-ini=addopts=", f"--import-mode={order['import_mode']}"]
    arguments += ["-p", "no:cacheprovider", "-p", "no:tfbench.plugin"]
    # What the user's settings make of warnings and unknown names is for the user's own pytest run.
    arguments += ["-p", "no:warnings", *(f"--override-ini={key}=false" for key in _STRICTNESS)]
    if order["inifile"]:
        arguments += ["-c", order["inifile"]]
    if not files:
        arguments += ["--ignore-glob=*"]  # nothing is left to collect, yet the reasons must be told
    return arguments


class Zygote:
    """A pytest plugin that takes over after collection and answers the controller."""

    def __init__(self, channel: Channel, order: JSON, argv: list[str], timer: ImportTimer) -> None:
        self._timer = timer
        self._channel = channel
        self._order = order
        self._argv = argv
        self._items: dict[str, pytest.Item] = {}
        self._broken: dict[str, str] = {}
        self._launch: LaunchHandler | None = None
        self.served = False

    # Collection

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        parser.addini("tfbench_paths", "known to the controller", type="args", default=[])

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "tfbench(cpus): cpus='all' lets a benchmark use every processor")
        config.addinivalue_line("markers", MARKER)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        started = tf_runtime.has_run_an_op()
        report: Any = yield
        if isinstance(collector, pytest.Module):
            if tf_runtime.has_run_an_op():
                self._start_again_without(str(collector.path), started)
            if report.failed:
                self._broken[str(collector.path)] = str(report.longrepr)[-_TAIL:]
        return report  # type: ignore[no-any-return]

    def _start_again_without(self, file: str, started: bool) -> NoReturn:
        """A process in which an op has run cannot be forked: become a new one that leaves the module out."""
        if started or file in self._order["offenders"]:
            raise pytest.UsageError("conftest.py runs a TensorFlow op while it is imported; move it into a fixture")
        self._order["offenders"].append(file)
        os.set_inheritable(self._channel.fileno(), True)
        os.chdir(self._order["home"])
        os.execv(sys.executable, [sys.executable, "-m", "tfbench.worker", json.dumps(self._order)])

    def explain(self, code: int) -> str:
        """Why no case could be served, from pytest's exit code."""
        return f"pytest ended with code {int(code)} while it collected the benchmarks"

    # Serving

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        try:
            self._serve(session)
        except ChannelClosed:
            os._exit(0)  # the controller is gone, and so is the reason to be here; TensorFlow's own end takes a second

    def _serve(self, session: pytest.Session) -> NoReturn:
        self._items = {item.nodeid: item for item in session.items}
        tf_runtime.import_all()
        spawns = tf_runtime.has_opened_gpu()
        gc.collect()
        gc.freeze()
        self.served = True
        self._channel.send(
            "ready",
            cases=list(self._items),
            broken=self._broken,
            offenders=self._order["offenders"],
            environment={**describe(), "defaults": tf_internals.defaults()},
            import_seconds=self._timer.seconds,
            spawns=spawns,
            # Asked on every side, also where it can find nothing: what the search leaves free in Python's arenas is memory
            # that launches of this zygote need not ask for, 0.8 MiB of it.
            leaked_packages=leaked_packages(*(self._order["tree_redirect"] or (os.devnull, os.devnull))),
        )
        while True:
            request, descriptors = self._channel.receive_with_descriptors("launch", "reap")
            if request["kind"] == "reap":
                self._channel.send("reaped", status=_reap(request["pid"], request["kill"]))
            elif spawns:
                self._become(request, descriptors)
            else:
                self._fork(request, descriptors)

    def _become(self, request: JSON, descriptors: list[int]) -> NoReturn:
        """Be the launch: a child of a process that has initialised CUDA could not use it."""
        self._channel.send("launched", pid=os.getpid())
        self._run(request, descriptors)

    def _fork(self, request: JSON, descriptors: list[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self._channel.close()  # it is the zygote's
            self._run(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._channel.send("launched", pid=pid)

    # In the launched process

    def _run(self, request: JSON, descriptors: list[int]) -> NoReturn:
        """The whole life of a launch."""
        code = 1
        try:
            self._child(request, descriptors)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _child(self, request: JSON, descriptors: list[int]) -> None:
        socket, log, *pipes = descriptors
        os.dup2(log, 1)
        os.dup2(log, 2)
        tf_runtime.die_with_parent()
        tf_runtime.pin(request["cpus"])
        tf_runtime.set_threads(request["threads"])
        channel = Channel.from_descriptor(socket)
        if request["case"] is None:
            channel.send("done", devices=tf_runtime.devices())
            return
        if "loop" in request:
            self._launch = Looping(channel, **request["loop"])
        elif "profile" in request:
            self._launch = Profiling(channel, Path(request["profile"]), **request["how"])
        elif "probe" in request:
            source = digest(getattr(self._items[request["case"]], "function", None))
            self._launch = Probing(channel, Path(request["probe"]), request["calls"], facts={"source": source})
        else:
            self._launch = Launch(
                channel,
                own=request["own"],
                inbox=pipes[0],
                outboxes=pipes[1:],
                warmup=tuple(request["warmup"]),
            )
        reports = runtestprotocol(self._items[request["case"]], log=False, nextitem=None)
        if failed := [report for report in reports if report.failed]:
            message = _last_line(failed[0])
            channel.send("failed", message=message, trace=failed[0].longreprtext[-_TAIL:])
        elif skipped := [report for report in reports if report.skipped]:
            channel.send("skipped", message=_skip_reason(skipped[0]))
        elif not self._launch.called:
            channel.send("failed", message="it never called bench(step, ...), so there is nothing to time", trace="")
        else:
            channel.send("done")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The variant's levels act before any fixture can run an op."""
        callspec = getattr(item, "callspec", None)
        variant = callspec.params.get("variant") if callspec is not None else None
        if isinstance(variant, Variant) and (reason := variant.enter()) is not None:
            pytest.skip(reason)

    @pytest.fixture
    def bench(self) -> Bench:
        """``bench(step, *arguments, **keywords)`` measures a step, see `Bench`."""
        if self._launch is None:
            raise TfbenchError("bench outside a launch")
        return Bench(self._launch)

    @pytest.fixture
    def shared(self) -> Shared:
        """``shared(build, *arguments)`` is the folder that ``build`` has filled, once for all launches, see `Shared`."""
        return Shared(Path(self._order["made"]))

    @pytest.fixture
    def variant(self) -> Variant:
        """The empty variant, for a benchmark that is across no axis."""
        return Variant()

    @pytest.fixture
    def benchmark(self) -> None:
        """pytest-benchmark's own tests run in the controller, never here."""
        pytest.skip("a plain pytest-benchmark test runs in the controller")


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(crash, "message", None) or report.longreprtext.strip().rpartition("\n")[2]
    return str(text).strip().partition("\n")[0][:500]


def _skip_reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return str(reason).removeprefix("Skipped: ")


def _reap(pid: int, kill: bool) -> int:
    """End a child and return its exit code, negative for a signal as in `subprocess`."""
    deadline = time.monotonic() + (0 if kill else _REAP_SECONDS)
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.001)
