"""Format numbers with units, to three significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfbench.model import Ratio

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_PARTS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def duration(seconds: float) -> str:
    """Format seconds: ``12.3 µs``."""
    return _scaled(seconds, _TIMES)


def joules(amount: float) -> str:
    """Format joules: ``41.2 mJ``."""
    return f"{_scaled(amount, _PARTS)}J"


def rate(amount: float, unit: str) -> str:
    """Format a rate with a decimal prefix: ``41.2 GFLOP/s``."""
    return f"{_scaled(amount, _RATES)}{unit}"


def _scaled(amount: float, scales: Sequence[tuple[float, str]]) -> str:
    scale, unit = next((step for step in scales if amount >= step[0]), scales[-1])
    return f"{_significant(amount / scale)} {unit}"


def percent(fraction: float) -> str:
    """Format a fraction: ``62%``. Below 10%, add a decimal: ``6.2%``."""
    return f"{fraction:.0%}" if fraction >= 0.1 else f"{fraction:.1%}"


def size(amount: float) -> str:
    """Format bytes with a binary prefix: ``9.42 MiB``."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(amount) >= 1 << power:
            return f"{_significant(amount / (1 << power))} {unit}"
    return f"{amount:.0f} B"


def _significant(value: float) -> str:
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{min(2, max(0, digits))}f}"


def times(ratio: Ratio) -> str:
    """Format a ratio with its interval: ``1.052 (1.031 to 1.074)``."""
    return f"{_ratio(ratio.center)} ({_ratio(ratio.low)} to {_ratio(ratio.high)})"


def _ratio(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
