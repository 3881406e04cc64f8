"""Steps whose time is scripted, for benchmarks in real measuring processes: no clock runs and no noise exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def taking(bench: Any, seconds: float) -> Callable[[], int]:
    """Return a step that takes ``seconds`` by its launch's clock, which only this step moves.

    Args:
        bench: The ``bench`` fixture; call it with the step that is returned.
        seconds: Use 1e-5, or a multiple of it where ``--inject-slowdown`` must find whole iterations.
    """
    now = 0

    def step() -> int:
        nonlocal now
        now += round(seconds * 1e9)
        return now

    bench._launch.clock = lambda: now
    return step
