"""Steps with a scripted time, for benchmarks in real workers without a real clock and without noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def taking(bench: Any, seconds: float) -> Callable[[], int]:
    """Return a step that takes ``seconds`` by the clock of its launch, which only this step advances.

    Args:
        bench: The ``bench`` fixture, to be called with the returned step.
        seconds: 1e-5 or a multiple, so that ``--inject-slowdown`` can be made of whole iterations.
    """
    now = 0

    def step() -> int:
        nonlocal now
        now += round(seconds * 1e9)
        return now

    bench.clock = lambda: now
    return step
