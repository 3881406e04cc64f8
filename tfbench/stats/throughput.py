"""Throughput: the work of a call (items, bytes, floating-point operations) per time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from tfbench.model import Ratio, Run

UNITS = {"items": "items/s", "flops": "FLOP/s", "bytes": "B/s"}
"""Fact with the work of a call -> unit of its rate."""
Rates = dict[str, tuple[float | None, float | None]]
"""Unit -> rate of baseline and contender, ``None`` where a side does not state its work."""


def log_items_ratio(before: Run, now: Run) -> float:
    """Return log(items per call now / before); 0 unless both sides state their items.

    Times of calls with other numbers of items, such as another batch size, compare per item.
    """
    was, is_now = before.facts.get("items"), now.facts.get("items")
    return math.log(is_now / was) if was and is_now else 0.0


def rates(before: Sequence[Run], now: Sequence[Run], ratio: Ratio | None) -> Rates:
    """Return the throughput of both sides for each kind of work that one of them states.

    The baseline's is its work by its median time. The contender's follows from it by the ratio of the race, which compares
    turns of the same moment: two medians do not. It therefore says the same as the verdict.

    Args:
        ratio: Of the times of an item if both sides state items, otherwise of the times of a call.
    """
    seconds = [second for run in before for second in run.seconds]
    if not seconds or not now or ratio is None or not 0 < ratio.center < math.inf:
        return {}
    call = median(seconds)
    later = call * ratio.center * math.exp(log_items_ratio(before[0], now[0]))
    found: Rates = {}
    for fact, unit in UNITS.items():
        was, is_now = before[0].facts.get(fact), now[0].facts.get(fact)
        if was or is_now:
            found[unit] = (was / call if was else None, is_now / later if is_now else None)
    return found
