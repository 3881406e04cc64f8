"""Collect the methods of ``tf.test.Benchmark`` classes as benchmarks, in the files that the ini option names.

As a program it lists them for the controller, which does not import TensorFlow:
``python -m tfbench.worker.tf_test_collection REQUEST`` writes file -> name -> digest of the code.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tfbench.fs import write_whole
from tfbench.model import JSON
from tfbench.suite.fingerprint import DIGEST, digest
from tfbench.untrusted import render_json
from tfbench.worker import tf_runtime
from tfbench.worker.pytest_options import collecting, declare_ini

INI = "tfbench_tf_test_benchmarks"
"""The ini option: files and patterns of files with such classes, relative to the root."""
ERROR = "error"


def is_listed(config: pytest.Config, path: Path) -> bool:
    """Tell whether the ini option names this file."""
    root = config.rootpath
    return path.suffix == ".py" and path.is_relative_to(root) and path in listed(config)


def listed(config: pytest.Config) -> list[Path]:
    """Return the files that the ini option names, sorted."""
    found = {path for pattern in config.getini(INI) for path in config.rootpath.glob(pattern) if path.is_file()}
    return sorted(found)


def function_of(run: Callable[[Any], None], code: str) -> Callable[..., None]:
    """Return the function of a benchmark: it takes ``bench`` and passes it on.

    Args:
        code: Digest of its code.
    """

    def benchmark(bench: Any) -> None:
        run(bench)

    setattr(benchmark, DIGEST, code)
    return benchmark


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
        from tfbench.worker.tf_test import run_method

        code = digest(inspect.unwrap(getattr(kind, name))) or name
        function = function_of(lambda bench: run_method(bench, kind, name), code)
        found: pytest.Function = pytest.Function.from_parent(self, name=f"{kind.__name__}.{name}", callobj=function)
        return found


class Collection:
    """The hook of pytest by which a process with TensorFlow collects such files."""

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if not is_listed(parent.config, module_path):
            return None
        found: pytest.Module = BenchmarkFile.from_parent(parent, path=module_path)
        return found


class _Lister(Collection):
    def __init__(self) -> None:
        self.found: JSON = {}

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        declare_ini(parser)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.found.setdefault(report.nodeid.partition("::")[0], {})[ERROR] = report.longreprtext

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


if __name__ == "__main__":
    main(sys.argv[1])
