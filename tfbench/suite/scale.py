"""The scale of a run: how large the shapes of its benchmarks are. Names of cases contain it."""

from __future__ import annotations

import os

import pytest

from tfbench.errors import UsageError

SMALL, MEDIUM, LARGE = SCALES = ("small", "medium", "large")
VARIABLE = "TFBENCH_SCALE"
"""Environment variable that tells the scale to benchmarks, in all processes of a run."""
_PARAMETER = "_tfbench_scale"


def set_scale(name: str) -> None:
    """Set the scale of this process and of those that it starts.

    Raises:
        UsageError: There is no such scale.
    """
    if name not in SCALES:
        raise UsageError(f"--scale {name!r}: choose from {', '.join(SCALES)}")
    if name == SMALL:
        os.environ.pop(VARIABLE, None)  # the default has no name, so that earlier baselines stay valid
    else:
        os.environ[VARIABLE] = name


def add_scale(metafunc: pytest.Metafunc) -> None:
    """Add the scale to the name of a benchmark, such as ``test_matmul[compiler=xla-scale=large]``."""
    if "bench" in metafunc.fixturenames and (scale := os.environ.get(VARIABLE)):
        metafunc.fixturenames.append(_PARAMETER)
        metafunc.parametrize(_PARAMETER, [scale], ids=[f"scale={scale}"])
