"""Benchmarks that were written for other tools: pytest-benchmark's fixture ``benchmark``, and classes of ``tf.test``.

The fixture has the interface of pytest-benchmark 5 (docs/decisions/15-adopted-benchmarks.md) and needs nothing of it.
Options about its own way to measure (``rounds``, ``min_time``, ``timer`` …) are accepted and have no effect.

As a program, this module lists the benchmarks of ``tf.test`` for the controller, which does not import TensorFlow:
``python -m tfbench.worker.adopted REQUEST`` writes file -> name -> digest of the code.

``run_op_benchmark`` runs an op of a session many times. Here it also notes the session, the op and its feeds. When the
method has returned, one iteration of the step runs each noted op once. Sessions therefore stay open.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean, median, quantiles, stdev
from typing import Any

import pytest

from tfbench.errors import BenchmarkError
from tfbench.fs import write_whole
from tfbench.imports import enter
from tfbench.model import JSON, PLAIN
from tfbench.suite.functions import TF_TEST_ERROR, digest, function_of, is_listed
from tfbench.untrusted import brief, render_json
from tfbench.worker import isolation, tf_runtime
from tfbench.worker.bench import Bench, Step
from tfbench.worker.block import PreparedStep
from tfbench.worker.shared import collecting, declare_ini

_LONGEST = 200
"""Characters of a value in ``extra_info`` that JSON cannot carry."""


class StatsUnavailable(BaseException):
    """The test reads ``benchmark.stats`` in a launch that takes no times. Its rest is left out there.

    No ``except Exception`` of the test catches it.
    """


class Times:
    """``benchmark.stats``: the times of one iteration in the rounds of this launch, in seconds.

    Fields have pytest-benchmark's names, as attributes and as items, here and in ``stats``.
    """

    def __init__(self, seconds: list[float], iterations: int) -> None:
        self.data, self.sorted_data = seconds, sorted(seconds)
        self.rounds, self.iterations = len(seconds), iterations
        self.min, self.max, self.total = min(seconds), max(seconds), sum(seconds)
        self.mean, self.median = fmean(seconds), median(seconds)
        self.stddev = stdev(seconds) if len(seconds) > 1 else 0.0
        self.q1, _, self.q3 = quantiles(seconds, n=4) if len(seconds) > 1 else (self.median,) * 3
        self.iqr, self.ops = self.q3 - self.q1, 1 / self.mean
        self._own = dict(vars(self))

    stats = property(lambda self: self)

    @property
    def added(self) -> dict[str, Any]:
        """What the test has set, which is kept as a note: a race compares the times alone."""
        return {name: value for name, value in vars(self).items() if self._own.get(name, self._own) is not value}

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(f"benchmark.stats has no {name!r} in a race") from None

    get = __getitem__


class PlainBenchmark:
    """The fixture ``benchmark`` of a plain pytest-benchmark test, see the module."""

    disabled, enabled, skipped, has_error, cprofile = False, True, False, False, False

    def __init__(self, launch: Bench[Any], node: pytest.Item) -> None:
        callspec, mark = getattr(node, "callspec", None), node.get_closest_marker("benchmark")
        self.name, self.fullname = node.name, node.nodeid
        self.param: str | None = callspec.id if callspec else None
        self.params: dict[str, Any] | None = callspec.params if callspec else None
        self.group: str | None = mark.kwargs.get("group") if mark else None
        self.extra_info: dict[str, Any] = {}
        self._launch = launch
        self._times: Times | None = None

    def __repr__(self) -> str:
        return "<the fixture benchmark>"

    def __call__(self, function_to_benchmark: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Race ``function_to_benchmark(*args, **kwargs)``, and return what it returns.

        Raises `BenchmarkError` if the fixture is used twice, from another thread, or without a function.
        """
        self._launch.take("benchmark", function_to_benchmark)
        return self._race(partial(function_to_benchmark, *args, **kwargs))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Race ``target(*args, **kwargs)``, and return what it returns.

        With ``setup`` or ``teardown``, every iteration is timed alone, between the two. ``setup`` may return the arguments.
        Raises `BenchmarkError` as a call of the fixture does.
        """
        self._launch.take("benchmark.pedantic", target)
        if setup is None and teardown is None:
            return self._race(partial(target, *args, **(kwargs or {})))
        given = args, kwargs or {}
        now: list[Any] = [*given]

        def bind() -> Callable[[], object]:
            if setup is not None and (arguments := setup()):
                now[:] = arguments
            return partial(target, *now[0], **now[1])

        def clear() -> None:
            if teardown is not None:
                teardown(*now[0], **now[1])
            now[:] = given  # what setup made must not live until the next iteration

        return self._race(PreparedStep(bind, clear))

    @property
    def stats(self) -> Times | None:
        """The times of this launch; ``None`` before the function was handed over.

        Raises `StatsUnavailable` if the launch takes no times.
        """
        if not self._launch.called:
            return None
        if not self._launch.seconds:
            self._launch.ends_early = True
            raise StatsUnavailable
        self._times = self._times or Times(self._launch.seconds, self._launch.iterations)
        return self._times

    def close(self) -> None:
        """Keep what the test has noted for the report."""
        if self._times and (added := self._times.added):
            self.extra_info["stats"] = _plain(added)
        kept: JSON = {"group": self.group, "extra_info": _plain(self.extra_info)}
        self._launch.late_facts[PLAIN] = {**kept, "reads_stats": self._times is not None}

    def _race(self, step: Step) -> Any:
        self._launch.needs_result = False
        self._launch.serve(step)
        return step()


def _plain(values: Mapping[Any, Any]) -> JSON:
    """Return values as a report can carry them: what is no JSON, as text."""
    plain = {}
    for name, value in values.items():
        try:
            plain[str(name)] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            plain[str(name)] = str(value)[:_LONGEST]
    return plain


# Collect the methods of ``tf.test.Benchmark`` classes as benchmarks, in the files that the ini option names


class BenchmarkFile(pytest.Module):
    """A file with ``tf.test.Benchmark`` classes."""

    def collect(self) -> Iterator[pytest.Function]:
        kinds = list(vars(self.obj).values())  # imports the file
        base = getattr(getattr(tf_runtime.tensorflow(), "test", None), "Benchmark", None)
        for kind in kinds:
            if base is None or not (isinstance(kind, type) and issubclass(kind, base)) or kind is base:
                continue
            if kind.__module__ == self.obj.__name__:
                for name in dir(kind):
                    if name.startswith("benchmark") and callable(getattr(kind, name)):
                        yield self._function(kind, name)

    def _function(self, kind: type[Any], name: str) -> pytest.Function:
        code = digest(inspect.unwrap(getattr(kind, name))) or name
        function = function_of(lambda bench: run_method(bench, kind, name), code)
        item: pytest.Function = pytest.Function.from_parent(self, name=f"{kind.__name__}.{name}", callobj=function)
        return item


class Collection:
    """The hooks of pytest by which a process with TensorFlow collects such files."""

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        declare_ini(parser)

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if not is_listed(parent.config, module_path):
            return None
        module: pytest.Module = BenchmarkFile.from_parent(parent, path=module_path)
        return module


class _Lister(Collection):
    def __init__(self) -> None:
        self.found: JSON = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.found.setdefault(report.nodeid.partition("::")[0], {})[TF_TEST_ERROR] = report.longreprtext

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if isinstance(item.parent, BenchmarkFile) and isinstance(item, pytest.Function):
                file, _, name = item.nodeid.partition("::")
                self.found.setdefault(file, {})[name] = digest(item.function)


def main(text: str) -> None:
    """List the benchmarks of files, on request of the controller."""
    request = json.loads(text)
    lister = _Lister()
    enter(request["root"])
    cache = str(Path(request["answer"]).with_name("cache"))
    options = ["--collect-only", *collecting(request["root"], request["import_mode"], cache)]
    options += ["-c", request["inifile"]] if request["inifile"] else []
    pytest.main([*request["files"], *options], plugins=[lister])
    write_whole(Path(request["answer"]), render_json(lister.found))


# Run a method of a ``tf.test.Benchmark`` class: its ops become a step, or the times that it reports are taken


_NOTHING = "it ran no op by run_op_benchmark and reported no wall_time here"


def run_method(launch: Bench[Any], kind: type[Any], name: str) -> None:
    """Run a method of a class and hand its ops, or the times that it reports, to the launch.

    The time of a method that reports several is their geometric mean.
    Raises `BenchmarkError` if the constructor fails, or a reported time is invalid.
    """
    try:
        instance = kind()
    except Exception as error:
        launch.refuse(f"the constructor of {kind.__name__} failed: {type(error).__name__}: {error}")
    tf = tf_runtime.tensorflow()
    base, calls, times, notes = tf.test.Benchmark, list[Callable[[], Any]](), dict[str, float](), dict[str, JSON]()
    run_op = base.run_op_benchmark

    def run_op_benchmark(
        self: Any, sess: Any, op_or_tensor: Any, feed_dict: Any = None, burn_iters: int = 2, min_iters: int = 10,
        *_: Any, **options: Any,
    ) -> Any:  # fmt: skip
        calls.append(partial(sess.run, op_or_tensor, feed_dict=feed_dict))
        options |= {"store_trace": False, "store_memory_usage": False}  # it would start TensorFlow's profiler
        return run_op(self, sess, op_or_tensor, feed_dict, burn_iters, min_iters, **options)

    def report_benchmark(
        self: Any, iters: Any = None, cpu_time: Any = None, wall_time: Any = None, *_: Any, **options: Any
    ) -> None:
        entry = str(options.get("name") or len(times))
        if noted := {kind: options[kind] for kind in ("extras", "metrics") if options.get(kind)}:
            notes[entry] = noted
        if wall_time is None:
            return
        if not 0 < (seconds := float(wall_time)) < math.inf:
            raise BenchmarkError(f"report_benchmark: wall_time={brief(repr(wall_time))} of {entry} is no time")
        times[entry] = seconds

    # Of the classes of TensorFlow, since some benchmarks make other instances of them. This process ends soon.
    base.run_op_benchmark, base.report_benchmark = run_op_benchmark, report_benchmark
    tf.compat.v1.Session.close = lambda session: None
    isolation.keep_freed_memory()  # the method may loop by itself
    getattr(instance, name)()
    if not calls and not times:
        pytest.skip(_NOTHING)
    launch.called, launch.needs_result = True, False
    if notes:
        launch.late_facts[PLAIN] = {"extra_info": _plain(notes), "reads_stats": False}
    if calls:
        launch.serve(calls[0] if len(calls) == 1 else lambda: [call() for call in calls])
    else:
        launch.serve_reported(math.exp(fmean(map(math.log, times.values()))))


def parse_flags() -> None:
    """Give absl's flags their defaults. `tf.test.main` parses the command line for them, which is pytest's here."""
    if (absl_flags := sys.modules.get("absl.flags")) and not absl_flags.FLAGS.is_parsed():
        absl_flags.FLAGS.mark_as_parsed()


if __name__ == "__main__":
    main(sys.argv[1])
