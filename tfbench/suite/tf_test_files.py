"""The files with ``tf.test.Benchmark`` classes: which they are, and the functions of their benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfbench.suite.fingerprint import DIGEST

INI = "tfbench_tf_test_benchmarks"
"""The ini option: files and patterns of files with such classes, relative to the root."""
ERROR = "error"


def is_listed(config: pytest.Config, path: Path) -> bool:
    """Tell whether the ini option names this file."""
    root = config.rootpath
    return path.suffix == ".py" and path.is_relative_to(root) and path in listed(config)


def listed(config: pytest.Config) -> list[Path]:
    """Return the files that the ini option names, sorted."""
    files = {path for pattern in config.getini(INI) for path in config.rootpath.glob(pattern) if path.is_file()}
    return sorted(files)


def function_of(run: Callable[[Any], None], code: str, fixture: str = "bench") -> Callable[..., None]:
    """Return the function of a benchmark: it takes a fixture and passes it on.

    Args:
        code: Digest of its code.
        fixture: ``bench`` or ``benchmark``.
    """

    def ours(bench: Any) -> None:
        run(bench)

    def theirs(benchmark: Any) -> None:
        run(benchmark)

    function = theirs if fixture == "benchmark" else ours
    setattr(function, DIGEST, code)
    return function
