"""Format numbers with units, to three significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfbench.model import Ratio

_PARTS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_MULTIPLES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def duration(seconds: float) -> str:
    """Format seconds: ``12.3 µs``."""
    return _scaled(seconds, _PARTS, "s")


def time(seconds: float) -> str:
    """Format seconds like `duration`, and none or less as ``0``."""
    return duration(seconds) if seconds > 0 else "0"


def joules(amount: float) -> str:
    """Format joules: ``41.2 mJ``."""
    return _scaled(amount, _PARTS, "J")


def rate(amount: float, unit: str) -> str:
    """Format a rate with a decimal prefix: ``41.2 GFLOP/s``."""
    return _scaled(amount, _MULTIPLES, unit)


def size(amount: float) -> str:
    """Format bytes with a binary prefix: ``9.42 MiB``."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(amount) >= 1 << power:
            return f"{_significant(amount / (1 << power))} {unit}"
    return f"{amount:.0f} B"


def _scaled(amount: float, scales: Sequence[tuple[float, str]], unit: str) -> str:
    scale, prefix = next((step for step in scales if amount >= step[0]), scales[-1])
    return f"{_significant(amount / scale)} {prefix}{unit}"


def _significant(value: float) -> str:
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{min(2, max(0, digits))}f}"


def percent(fraction: float) -> str:
    """Format a fraction: ``62%``. Below 10%, add a decimal: ``6.2%``."""
    return f"{fraction:.0%}" if fraction >= 0.1 else f"{fraction:.1%}"


def times(ratio: Ratio) -> str:
    """Format a ratio with its interval: ``1.052 (1.031 to 1.074)``."""
    return f"{_ratio(ratio.center)} ({_ratio(ratio.low)} to {_ratio(ratio.high)})"


def _ratio(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
