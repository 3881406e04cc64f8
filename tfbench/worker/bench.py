"""``bench``: where a benchmark meets the race. It serves timing requests until it is told to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tfbench.errors import BenchmarkError
from tfbench.model import JSON
from tfbench.protocol import Channel
from tfbench.worker import runtime
from tfbench.worker.block import Block, Clock, collector_held_off, serve_turns, slowdown, warm_up

_WORK = ("flops", "bytes", "items")


@dataclass
class Launch:
    """What a launched process was told by the controller, and how far it has come."""

    channel: Channel
    own: int
    inbox: int
    outboxes: Sequence[int]
    warmup: tuple[float, float, float]
    """Seconds, limit in seconds and steadiness of `warm_up`."""
    clock: Clock = time.perf_counter_ns
    called: bool = False
    facts: JSON = field(default_factory=dict)

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Warm the step up, say so, and time its blocks in turn with the other processes.

        Raises:
            BenchmarkError: The step returns nothing, so that nothing shows that it did its work.
        """
        synchronise = runtime.synchroniser()
        block = Block(partial(step, *arguments), synchronise, self.clock)
        began = self.clock()
        result = step(*arguments)
        block.wait()
        self.facts["first_call"] = (self.clock() - began) * 1e-9
        if result is None:
            raise BenchmarkError("the step returned nothing: return its result, so that the work cannot be left out")
        del result
        iteration = warm_up(block, *self.warmup, self.clock)
        self.channel.send("prepared", iteration=iteration, facts=self.facts)
        while (request := self.channel.receive("serve", "stop"))["kind"] == "serve":
            self._answer(block, request)

    def _answer(self, block: Block, request: JSON) -> None:
        whole, spins = slowdown(block, request["iterations"], request["prime"], request["extra"], self.clock)
        with collector_held_off():
            began, ended = serve_turns(
                block,
                own=self.own,
                follow=request["follow"],
                inbox=self.inbox,
                outboxes=self.outboxes,
                iterations=request["iterations"],
                prime=request["prime"],
                extra=whole,
                spins=spins,
            )
        self.channel.send("rounds", began=began, ended=ended)


class Bench:
    """The ``bench`` fixture in the measuring process."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def __call__(self, step: Callable[..., Any], *arguments: Any, **work: float | None) -> None:
        """Measure ``step(*arguments)``; it must return something.

        Args:
            step: One iteration of the work.
            arguments: Handed to every call.
            work: ``flops``, ``bytes`` (least traffic) and ``items`` of one call, for rates.

        Raises:
            BenchmarkError: Called twice, with what is not a function, or with an unknown keyword.
        """
        if self._launch.called:
            raise BenchmarkError("bench was called twice: one benchmark measures one step")
        if not callable(step):
            raise BenchmarkError(f"bench({step!r}): the first argument must be a function; pass its arguments after it")
        if unknown := sorted(set(work) - set(_WORK)):
            raise BenchmarkError(f"bench has no keyword {unknown[0]!r}; it has {', '.join(_WORK)}")
        for name, amount in work.items():
            if amount is not None and not (isinstance(amount, (int, float)) and 0 < amount < math.inf):
                raise BenchmarkError(f"bench: {name}={amount!r} must be a positive number for one call of the step")
        self._launch.called = True
        self._launch.facts.update({name: amount for name, amount in work.items() if amount is not None})
        self._launch.serve(step, arguments)
