"""The benchmark of the canary: it needs no TensorFlow, so that its processes start within a second."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_canary(bench: Any) -> None:
    """Sort and sum in the cache of one processor."""
    numbers = np.random.default_rng(1).random(2_000)

    def step() -> float:
        return float(np.sort(numbers)[::7].sum())

    bench(step)
