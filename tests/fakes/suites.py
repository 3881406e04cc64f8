"""The suite of tests that write their benchmarks into one file, and what a run of it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfbench.model import Case
from tfbench.policy import preset
from tfbench.race.lanes import Processors
from tfbench.race.workers import Suite
from tfbench.session.request import RunRequest


def one_file(folder: Path) -> Suite:
    """Return a suite of the file ``t.py``, which does not import TensorFlow."""
    return Suite(("t.py",), "", "importlib", str(folder / "made"), (), imports_tensorflow=False)


def request_of(root: Path, cases: Sequence[Case] = (), **changes: Any) -> RunRequest:
    """Return the request of a quick run of these cases on a CPU, with changes."""
    names = frozenset(case.name for case in cases)
    asked: dict[str, Any] = {
        "policy": preset("quick"),
        "device": "cpu",
        "processors": Processors((0,), (0,)),
        "executable": "python",
    }
    asked |= {"suite": one_file(root), "suite_cases": tuple(cases), "collected": names, "folder": root / "data"}
    return RunRequest(root=root, **{**asked, **changes})
