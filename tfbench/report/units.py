"""Format numbers with units, to three significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfbench.model import Calls, Ratio, Verdict

MEANS_APART = 0.03
"""Difference of the log-ratios of mean and median from which reports show both: noise alone makes one of 1.5%."""

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


def calls(before: Calls, now: Calls) -> str:
    """Compare the calls of two sides: ``p50 1.2 -> 1.2 ms, mean 1.2 -> 1.8 ms (+45.0%), slow calls 0.1% -> 5.1%``."""
    p90 = [("p90", before.p90, now.p90)] if before.p90 and now.p90 else []
    parts = [f"{name} {time(then)} -> {time(later)}" for name, then, later in [("p50", before.p50, now.p50), *p90]]
    mean = f"mean {time(before.mean)} -> {time(now.mean)} ({now.mean / before.mean - 1:+.1%})"
    return ", ".join([*parts, mean, f"slow calls {before.slow:.1%} -> {now.slow:.1%}"])


def calls_that_differ(verdict: Verdict) -> str:
    """Return `calls` of a verdict whose mean has another ratio than its median; ``""`` for others."""
    if verdict.calls is None:
        return ""
    before, now = verdict.calls
    apart = math.log(now.mean / before.mean) - math.log(now.p50 / before.p50)
    return calls(before, now) if abs(apart) > MEANS_APART else ""


def explanation(verdict: Verdict) -> str:
    """Return the reason of a verdict, with the calls of both sides where they differ and the reason does not have them."""
    message, tail = verdict.reason.message, calls_that_differ(verdict)
    return message if tail in message else f"{message}; {tail}"


def times(ratio: Ratio) -> str:
    """Format a ratio with its interval: ``1.052 (1.031 to 1.074)``."""
    return f"{_ratio(ratio.center)} ({_ratio(ratio.low)} to {_ratio(ratio.high)})"


def _ratio(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def position(value: float, reach: float) -> float:
    """Return the place of a ratio on a logarithmic axis: 0 is the inverse of ``reach``, 1 is ``reach``."""
    return (math.log(max(value, 1e-9)) / math.log(reach) + 1) / 2 if value < math.inf else 1.0


def bar(ratio: Ratio, limits: tuple[float, float], reach: float, width: int) -> str:
    """Draw an interval as text: ``┊`` are the limits, ``│`` is 1, ``●`` the centre.

    Args:
        limits: Ratios of the thresholds, the smaller first.
        reach: Ratio at the right end; the left end is its inverse.
        width: Characters, at least 3.
    """

    def place(value: float) -> int:
        return max(0, min(width - 1, round(position(value, reach) * (width - 1))))

    cells = [" "] * width
    for at in range(place(ratio.low), place(ratio.high) + 1):
        cells[at] = "─"
    for value, mark in ((limits[0], "┊"), (limits[1], "┊"), (1.0, "│")):
        cells[place(value)] = mark
    for value, mark in ((ratio.low, "├"), (ratio.high, "┤"), (ratio.center, "●")):
        if not math.isnan(value):
            cells[place(value)] = mark
    return "".join(cells)
