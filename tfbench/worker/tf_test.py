"""Benchmarks of `tf.test`.

As a program it lists them for the controller, which does not import TensorFlow:
``python -m tfbench.worker.tf_test REQUEST`` writes file -> name -> digest of the code.

``run_op_benchmark`` runs an op of a session many times. Here it only notes the session, the op and its feeds. When the
method has returned, one iteration of the step runs each noted op once. Sessions therefore stay open.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from tfbench.errors import BenchmarkError
from tfbench.fs import write_whole
from tfbench.model import JSON
from tfbench.suite.functions import TF_TEST_ERROR, digest, function_of, is_listed
from tfbench.untrusted import render_json
from tfbench.worker import isolation, tf_runtime
from tfbench.worker.bench import Bench
from tfbench.worker.shared import collecting, declare_ini

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
    """The hook of pytest by which a process with TensorFlow collects such files."""

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if not is_listed(parent.config, module_path):
            return None
        module: pytest.Module = BenchmarkFile.from_parent(parent, path=module_path)
        return module


class _Lister(Collection):
    def __init__(self) -> None:
        self.found: JSON = {}

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        declare_ini(parser)

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
    os.chdir(request["root"])
    options = ["--collect-only", *collecting(request["root"], request["import_mode"])]
    options += ["-c", request["inifile"]] if request["inifile"] else []
    pytest.main([*request["files"], *options], plugins=[lister])
    write_whole(Path(request["answer"]), render_json(lister.found))


# Run a method of a ``tf.test.Benchmark`` class: its ops become a step, or the times that it reports are taken


_NOTHING = "it ran no op by run_op_benchmark and reported no wall_time here"


class _Recorder:
    """Takes the place of the methods by which a benchmark measures and reports."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], Any]] = []
        self.times: dict[str, float] = {}
        """Name of an entry -> reported seconds."""

    def run_op_benchmark(
        self,
        sess: Any,
        op_or_tensor: Any,
        feed_dict: Any = None,
        burn_iters: int = 2,
        min_iters: int = 10,
        *_: Any,
        name: str | None = None,
        extras: dict[str, Any] | None = None,
        mbs: float = 0,
        **__: Any,
    ) -> dict[str, Any]:
        """Note an op, run it as often as TensorFlow's method does, and return what that returns."""
        call = partial(sess.run, op_or_tensor, feed_dict=feed_dict)
        self.calls.append(call)
        times = []
        for _run in range(burn_iters + min_iters):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        seconds = median(times)
        extras = {**(extras or {}), "wall_time_mean": seconds, "wall_time_stdev": 0.0}
        return {"iters": min_iters, "wall_time": seconds, "extras": extras, "name": name, "throughput": mbs / seconds}

    def report_benchmark(
        self, iters: Any = None, cpu_time: Any = None, wall_time: Any = None, *_: Any, **options: Any
    ) -> None:
        """Note a reported time."""
        if wall_time is None:
            return
        name = str(options.get("name") or len(self.times))
        if not 0 < (seconds := float(wall_time)) < math.inf:
            raise BenchmarkError(f"report_benchmark: wall_time={wall_time!r} of {name} is no time")
        self.times[name] = seconds


def run_method(launch: Bench[Any], kind: type[Any], name: str) -> None:
    """Run a method of a class and hand its ops, or the times that it reports, to the launch.

    The time of a method that reports several is their geometric mean.

    Raises:
        BenchmarkError: The constructor fails, or a reported time is invalid.
    """
    _parse_flags()
    try:
        instance = kind()
    except Exception as error:
        launch.refuse(f"the constructor of {kind.__name__} failed: {type(error).__name__}: {error}")
    tf, recorder = tf_runtime.tensorflow(), _Recorder()
    # Of the classes of TensorFlow, since some benchmarks make other instances of them. This process ends soon.
    base = tf.test.Benchmark
    base.run_op_benchmark = lambda self, *given, **options: recorder.run_op_benchmark(*given, **options)
    base.report_benchmark = lambda self, *given, **options: recorder.report_benchmark(*given, **options)
    tf.compat.v1.Session.close = lambda session: None
    isolation.keep_freed_memory()  # the method may loop by itself
    getattr(instance, name)()
    if not recorder.calls and not recorder.times:
        pytest.skip(_NOTHING)
    launch.called, launch.needs_result = True, False
    if recorder.calls:
        launch.serve(recorder.calls[0] if len(recorder.calls) == 1 else partial(_each, recorder.calls))
    else:
        launch.serve_reported(math.exp(fmean(map(math.log, recorder.times.values()))))


def _parse_flags() -> None:
    """Give absl's flags their defaults. `tf.test.main` parses the command line for them, which is pytest's here."""
    absl_flags = sys.modules.get("absl.flags")
    if absl_flags is not None and not absl_flags.FLAGS.is_parsed():
        absl_flags.FLAGS.mark_as_parsed()


def _each(calls: list[Callable[[], Any]]) -> None:
    for call in calls:
        call()


if __name__ == "__main__":
    main(sys.argv[1])
