"""The workloads, measured by tfbench."""

from typing import Any

import pytest

from tfbench.worker.workloads.steps import STEPS


@pytest.mark.parametrize("name", STEPS)
def test_step(bench: Any, name: str) -> None:
    """One of the fixed workloads."""
    step, arguments = STEPS[name]()
    bench(step, *arguments)
