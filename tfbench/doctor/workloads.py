"""What the doctor races: three fixed steps that need nothing of the user's, or three of NumPy without TensorFlow.

Runs in the measuring processes. The names of the cases tell the controller which ones they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

NUMPY = "numpy_"
"""Begins the names of the steps that do without TensorFlow."""
CHOSEN = ("eager_add", "matmul", "elementwise")
"""Bound by the host's overhead, by arithmetic, by memory: between them they show most kinds of noise."""

Step = tuple[Callable[..., Any], tuple[Any, ...]]


def numpy_small_add() -> Step:
    return np.add, (np.ones(8, np.float32), np.ones(8, np.float32))


def numpy_matmul() -> Step:
    x = np.random.default_rng(0).random((192, 192), np.float32)
    return np.matmul, (x, x)


def numpy_elementwise() -> Step:
    x = np.ones(1 << 20, np.float32)
    return np.add, (x, x)


def _steps() -> dict[str, Callable[[], Step]]:
    try:
        from tfbench.worker.workloads.steps import STEPS
    except ImportError:
        return {step.__name__: step for step in (numpy_small_add, numpy_matmul, numpy_elementwise)}
    return {name: STEPS[name] for name in CHOSEN}


STEPS = _steps()


@pytest.mark.parametrize("name", STEPS)
def test_step(bench: Any, name: str) -> None:
    """One of the steps."""
    step, arguments = STEPS[name]()
    bench(step, *arguments)
