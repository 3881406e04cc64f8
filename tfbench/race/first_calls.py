"""First calls of two sides that ran at once on one processor, as each would take alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tfbench.metrics.catalog import FIRST_CALL, FIRST_CALL_PARTS
from tfbench.model import ONCE
from tfbench.protocol.messages import Prepared

_FACTS = (FIRST_CALL, FIRST_CALL_PARTS)


def time_in_queue(calls: Mapping[int, tuple[float, float]]) -> float:
    """Return for how many seconds each of two first calls waited for the processor that they shared.

    While both are ready to run, the scheduler alternates them, so each spends as long in the queue as the other one.
    It is in the queue neither longer than the other one runs, nor longer than it does not run itself.

    Args:
        calls: Seconds and processor seconds of the first call of each entrant.
    """
    if len(calls) != 2:
        return 0.0
    return max(0.0, min(min(wall - running, running) for wall, running in calls.values()))


def alone(one: Prepared, queue: float) -> Prepared:
    """Take the time in the queue from the first call, and from the one iteration of a step that runs once.

    What remains is the time that the call runs, and the time that it waits for files, locks or a sleep.
    """
    if one.first_call is None or queue <= 0:
        return one
    wall, _ = one.first_call
    if one.facts.get(ONCE):
        return replace(one, iteration=wall - queue)
    parts = {part: value * (1 - queue / wall) for part, value in one.facts[FIRST_CALL_PARTS].items()}
    return replace(one, facts={**one.facts, FIRST_CALL: wall - queue, FIRST_CALL_PARTS: parts})


def without_first_call(one: Prepared) -> Prepared:
    """Drop a first call that was made apart from that of the other side, with which it cannot be compared well."""
    return replace(one, facts={name: fact for name, fact in one.facts.items() if name not in _FACTS})
