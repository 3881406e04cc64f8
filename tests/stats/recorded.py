"""Recorded rounds: 16 workloads on an idle machine, and beside a process that keeps one of two cores busy in bursts."""

from pathlib import Path

import numpy as np

RECORDED = Path(__file__).parents[1] / "data" / "rounds.npz"


def recorded(kind):
    """Yield the log-ratios of launches of unchanged code, shape (launches, rounds), with the costs of both in seconds."""
    with np.load(RECORDED) as arrays:
        for name in arrays.files:
            if name.startswith(f"{kind}/") and not name.endswith("|costs"):
                yield arrays[name] / 1e4, *arrays[f"{name}|costs"]
