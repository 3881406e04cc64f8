"""The doctor's workloads: three fixed steps of TensorFlow, or three of NumPy where TensorFlow is missing.

Only workers import this file. The controller recognizes NumPy steps by the names of their cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def _steps() -> dict[str, Callable[[], Any]]:
    """Return makers of steps that host overhead, arithmetic or memory bound. Together they show most kinds of noise."""
    try:
        from tfbench.worker.workloads.test_raced import STEPS
    except ImportError:
        return {
            "numpy_small_add": lambda: (np.add, (np.ones(8, np.float32),) * 2),
            "numpy_matmul": lambda: (np.matmul, (np.random.default_rng(0).random((192, 192), np.float32),) * 2),
            "numpy_elementwise": lambda: (np.add, (np.ones(1 << 20, np.float32),) * 2),
        }
    return {name: STEPS[name] for name in ("eager_add", "matmul", "elementwise")}


STEPS = _steps()


@pytest.mark.parametrize("name", STEPS)
def test_step(bench: Any, name: str) -> None:
    """Run one step."""
    step, arguments = STEPS[name]()
    bench(step, *arguments)
