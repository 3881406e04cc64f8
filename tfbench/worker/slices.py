"""Sliced rounds: the processes of a launch run on one processor at once, and its scheduler alternates them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from tfbench.protocol.messages import Rounds, ServeSliced
from tfbench.worker.block import TOKEN, Block, Injection

HEAD_START = 1e-3
"""Seconds between the starts of two entrants in a round, less than a slice of the scheduler. Otherwise the one that has
waited for the other would start first in every round, and would take 1% more processor time for it."""


def serve_slices(
    call: Callable[[], object], order: ServeSliced, inbox: int, outboxes: Sequence[int], seed: int = 0
) -> Rounds:
    """Time blocks by the processor time of this process. The entrants start each round one shortly after the other.

    Args:
        inbox: Descriptor from which this entrant reads one byte per round and other entrant.
        outboxes: For each entrant, the descriptor that writes to its inbox.
        seed: Of injected slow calls.
    """
    block = Block(call, None, time.process_time_ns)
    injected = Injection(order.iterations, order.extra, order.slow, block.clock, seed)
    others = [outboxes[entrant] for entrant in order.others]
    blocks = []
    for place in order.places:
        for outbox in others:
            os.write(outbox, TOKEN)
        for _ in others:
            os.read(inbox, 1)
        time.sleep(place * HEAD_START)
        blocks.append(block(order.iterations, 0, *injected()))
    return Rounds(tuple(start for start, _ in blocks), tuple(end for _, end in blocks), ())
