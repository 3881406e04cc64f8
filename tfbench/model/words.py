"""Numbers in words: times, sizes, ratios with their intervals, counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tfbench.model.measurement import Calls, Ratio
from tfbench.untrusted import plural

BYTES, SECONDS, JOULES = "B", "s", "J"
"""Units of metrics that `amount` gives a prefix."""
LARGEST = 1e300
"""Represents an infinite error in files, because JSON has no infinity."""
_NAMED = 4
"""A description names at most this many ops or kernels."""
_PARTS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_MULTIPLES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))

# Quantities, to three significant digits


def duration(seconds: float) -> str:
    """Format seconds: ``12.3 µs``; none or less as ``0``."""
    return amount(seconds, SECONDS)


def span(seconds: float) -> str:
    """Format a time of seconds to days, without fractions of a second: ``45 s``, ``12 min``, ``3.4 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def rate(amount: float, unit: str) -> str:
    """Format a rate with a decimal prefix: ``41.2 GFLOP/s``."""
    return _scaled(amount, _MULTIPLES, unit)


def rates(before: float | None, now: float | None, unit: str) -> str:
    """Format the rates of both sides: ``1.20 Mitems/s -> 1.14 Mitems/s``."""
    return " -> ".join(rate(amount, unit) if amount else "-" for amount in (before, now))


def _scaled(amount: float, scales: Sequence[tuple[float, str]], unit: str) -> str:
    scale, prefix = next((step for step in scales if amount >= step[0]), scales[-1])
    return f"{_significant(amount / scale)} {prefix}{unit}"


def _significant(value: float) -> str:
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{min(2, max(0, digits))}f}"


def percent(fraction: float) -> str:
    """Format a fraction: ``62%``. Below 10%, add a decimal: ``6.2%``."""
    return f"{fraction:.0%}" if fraction >= 0.1 else f"{fraction:.1%}"


def signed(fraction: float) -> str:
    """Format a change like `percent`, with its sign: ``+33%``, ``-0.4%``."""
    return f"{fraction:+.0%}" if abs(fraction) >= 0.1 else f"{fraction:+.1%}"


# Values of metrics


def amount(value: float | None, unit: str) -> str:
    """Format a value exactly enough to see that it changed; bytes get a binary prefix, seconds and joules a decimal one."""
    if value is None:
        return "none"
    if unit in (SECONDS, JOULES):
        return _scaled(value, _PARTS, unit) if value > 0 else "0"
    if unit == BYTES:
        return size(value, "{:.2f}".format)
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def size(value: float, number: Callable[[float], str] = _significant) -> str:
    """Format bytes with a binary prefix: ``9.42 MiB``."""
    scales = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
    scaled = (f"{number(value / scale)} {word}" for word, scale in scales.items() if abs(value) >= scale)
    return next(scaled, f"{value:,.0f} B")


def difference(value: float) -> str:
    """Format the error of a result relative to another one."""
    return "an infinite factor" if value >= LARGEST else f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.2g}"


def named(counts: Mapping[str, int]) -> str:
    """Describe a count by its most frequent entries: ``2 Cast, Relu and 3 more``."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [what if count == 1 else f"{count} {what}" for what, count in ordered[:_NAMED]]
    rest = sum(count for _, count in ordered[_NAMED:])
    return ", ".join(words) + (f" and {rest} more" if rest else "")


def counted(counts: Mapping[str, int]) -> str:
    """List counts in their order, without zeros: ``2 error, 3 regressed``."""
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def exchanged(**counts: Mapping[str, int]) -> str:
    """Describe the entries that a count has ``lost`` and ``gained``: ``lost Relu; gained 2 Cast``."""
    return "; ".join(f"{word} {named(some)}" for word, some in counts.items())


def thresholds(values: Mapping[str, float]) -> str:
    """Format the own thresholds of a case: ``minimum effect 5.0%, tolerance 10.0%``; ``""`` for none."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.1%}" for name, value in values.items())


# Ratios of times


def hidden(ratio: Ratio) -> float:
    """Return the largest slowdown that the interval leaves possible, as a fraction; 0 if none."""
    return max(0.0, ratio.high - 1)


def change(ratio: float) -> str:
    """Describe a ratio of times: ``5.2% slower``; factors of 2 and more as ``3.4x slower``."""
    word, factor = ("slower", ratio) if ratio >= 1 else ("faster", 1 / ratio)
    return f"{factor:.1f}x {word}" if factor >= 2 else f"{abs(ratio - 1):.1%} {word}"


def times(ratio: Ratio) -> str:
    """Format a ratio with its interval: ``1.052 (1.031 to 1.074)``."""
    return f"{factor(ratio.center)} ({ends(ratio)})"


def ends(ratio: Ratio) -> str:
    """Format the interval of a ratio: ``1.031 to 1.074``."""
    return f"{factor(ratio.low)} to {factor(ratio.high)}"


def factor(value: float) -> str:
    """Format a ratio: ``1.052``."""
    return "∞" if math.isinf(value) else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def evidence(ratio: Ratio, launches: int) -> str:
    """Format the evidence for a change: ``interval +1.0% to +3.0% at 95% confidence, 6 launches``, large ones as factors."""
    low, high = (f"{end - 1:+.1%}" if ratio.high < 3 else f"{end:.1f}x" for end in (ratio.low, ratio.high))
    count = plural(launches, "launch")
    return f"interval {low} to {high} at {100 * ratio.confidence:.4g}% confidence, {count}"


def changed(ratio: Ratio, launches: int) -> str:
    """Describe a change with its evidence: ``5.2% slower (interval …)``."""
    return f"{change(ratio.center)} ({evidence(ratio, launches)})"


def calls(before: Calls, now: Calls) -> str:
    """Compare the calls of two sides: ``p50 1.2 -> 1.2 ms, mean 1.2 -> 1.8 ms (+45.0%), slow calls 0.1% -> 5.1%``."""
    p90 = [("p90", before.p90, now.p90)] if before.p90 and now.p90 else []
    parts = [
        f"{name} {duration(then)} -> {duration(later)}" for name, then, later in [("p50", before.p50, now.p50), *p90]
    ]
    mean = f"mean {duration(before.mean)} -> {duration(now.mean)} ({now.mean / before.mean - 1:+.1%})"
    slow = "calls" if p90 else "rounds"  # a round may have several calls
    return ", ".join([*parts, mean, f"slow {slow} {before.slow:.1%} -> {now.slow:.1%}"])
