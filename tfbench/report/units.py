"""Numbers as people read them."""

from __future__ import annotations

import math

from tfbench.model import Ratio

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_PARTS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def duration(seconds: float) -> str:
    """Three significant digits and a unit: ``12.3 µs``."""
    scale, unit = next((step for step in _TIMES if seconds >= step[0]), _TIMES[-1])
    return f"{_significant(seconds / scale)} {unit}"


def joules(amount: float) -> str:
    """Three significant digits and a unit: ``41.2 mJ``."""
    scale, prefix = next(((scale, prefix) for scale, prefix in _PARTS if amount >= scale), _PARTS[-1])
    return f"{_significant(amount / scale)} {prefix}J"


def rate(amount: float, unit: str) -> str:
    """Three significant digits and a prefix: ``41.2 GFLOP/s``."""
    scale, prefix = next((step for step in _RATES if amount >= step[0]), _RATES[-1])
    return f"{_significant(amount / scale)} {prefix}{unit}"


def percent(fraction: float) -> str:
    """``62%``; small ones with a digit more."""
    return f"{fraction:.0%}" if fraction >= 0.1 else f"{fraction:.1%}"


def size(amount: float) -> str:
    """Bytes in the unit that suits them: ``9.42 MiB``."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(amount) >= 1 << power:
            return f"{_significant(amount / (1 << power))} {unit}"
    return f"{amount:.0f} B"


def _significant(value: float) -> str:
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{min(2, max(0, digits))}f}"


def times(ratio: Ratio) -> str:
    """A ratio and its interval: ``1.052 (1.031 to 1.074)``."""
    return f"{_ratio(ratio.center)} ({_ratio(ratio.low)} to {_ratio(ratio.high)})"


def _ratio(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
