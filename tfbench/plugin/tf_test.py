"""Collect ``tf.test.Benchmark`` classes in the controller, by their names only: another process imports their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfbench.fs import python_path, read_text
from tfbench.model import JSON
from tfbench.untrusted import an_object, parse_json
from tfbench.worker.tf_test_collection import ERROR, function_of, listed

_SECONDS = 300.0
"""Time limit for the import of all these files."""
_LISTING: pytest.StashKey[JSON] = pytest.StashKey()


class ListedFile(pytest.File):
    """A file with ``tf.test.Benchmark`` classes, of which the controller knows the names."""

    def collect(self) -> Iterator[pytest.Function]:
        config = self.config
        if _LISTING not in config.stash:
            config.stash[_LISTING] = _listing(config)
        names = dict(an_object(config.stash[_LISTING].get(self.nodeid, {}), self.nodeid))
        if error := names.pop(ERROR, ""):
            raise self.CollectError(error)
        for name, code in names.items():
            found: pytest.Function = pytest.Function.from_parent(self, name=name, callobj=function_of(_never, code))
            yield found


def _never(bench: object) -> None:
    raise AssertionError("the measuring processes run it")


def _listing(config: pytest.Config) -> JSON:
    """Return file -> name of a benchmark -> digest of its code, or `ERROR` -> text."""
    root = config.rootpath
    with tempfile.TemporaryDirectory(prefix="tfbench-collect-") as folder:
        answer = Path(folder, "benchmarks.json")
        request = {
            "root": str(root),
            "files": [str(path) for path in listed(config)],
            "import_mode": config.getoption("importmode"),
            "inifile": str(config.inipath or ""),
            "answer": str(answer),
        }
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        env |= {"PYTHONPATH": python_path(root, env.get("PYTHONPATH", "")), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", "tfbench.worker.tf_test_collection", json.dumps(request)]
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
            )
            found = an_object(parse_json(read_text(answer)), "benchmarks")
        except subprocess.TimeoutExpired:
            raise pytest.UsageError(f"tf.test.Benchmark: the files were not imported in {_SECONDS:.0f} s") from None
        except (OSError, ValueError):
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no output"]
            raise pytest.UsageError(f"tf.test.Benchmark: the files could not be listed: {last[0]}") from None
    return found
