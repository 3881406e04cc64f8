"""The doctor's workloads: three fixed steps of TensorFlow.

Only workers import this file.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfbench.worker.workloads.test_raced import STEPS as FIXED

STEPS = {name: FIXED[name] for name in ("eager_add", "matmul", "elementwise")}
"""Steps that host overhead, arithmetic or memory bound. Together they show most kinds of noise."""


@pytest.mark.parametrize("name", STEPS)
def test_step(bench: Any, name: str) -> None:
    """Run one step."""
    step, arguments = STEPS[name]()
    bench(step, *arguments)
