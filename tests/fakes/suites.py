"""The suite of tests that write their benchmarks into one file."""

from __future__ import annotations

from pathlib import Path

from tfbench.race.workers import Suite


def one_file(folder: Path) -> Suite:
    """Return a suite of the file ``t.py``, which does not import TensorFlow."""
    return Suite(("t.py",), "", "importlib", str(folder / "made"), (), imports_tensorflow=False)
