"""Collect ``tf.test.Benchmark`` classes in the controller, by their names only: another process imports their files."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tfbench.errors import SideError
from tfbench.model import JSON
from tfbench.sides.collector import collect
from tfbench.untrusted import an_object
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
    request = {
        "root": str(root),
        "files": [str(path) for path in listed(config)],
        "import_mode": config.getoption("importmode"),
        "inifile": str(config.inipath or ""),
    }
    command = [sys.executable, "-m", "tfbench.worker.tf_test_collection"]
    try:
        return collect(command, request, root, _SECONDS, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    except SideError as error:
        first, _, rest = str(error).partition("\n")
        raise pytest.UsageError(f"tf.test.Benchmark: {': '.join([first, *rest.splitlines()[-1:]])}") from None
