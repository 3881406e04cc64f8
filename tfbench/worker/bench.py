"""``bench``: where a benchmark meets the race. It serves timing requests until it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from tfbench.errors import BenchmarkError
from tfbench.model import JSON
from tfbench.protocol import Channel
from tfbench.worker import bench_options, tf_runtime
from tfbench.worker.block import Block, Clock, gc_disabled, serve_turns, slowdown, warm_up
from tfbench.worker.probes.first_call import first_call
from tfbench.worker.probes.memory import HostPeak


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

    def __post_init__(self) -> None:
        self._peak = HostPeak()

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        """Warm the step up, say so, and time its blocks in turn with the other processes.

        Raises:
            BenchmarkError: A keyword of ``bench`` cannot be meant, or the step returns nothing, so that nothing
                shows that it did its work.
        """
        self.facts.update(bench_options.facts(keywords))
        synchronise = tf_runtime.synchroniser()
        call = partial(step, *arguments)
        block = Block(call, synchronise, self.clock)
        returned, first = first_call(call, block.wait)
        self.facts.update(first)
        if not returned:
            raise BenchmarkError("the step returned nothing: return its result, so that the work cannot be left out")
        self._peak.mark()
        iteration = warm_up(block, *self.warmup, self.clock)
        self._peak.mark()
        if (peak := self._peak.bytes) is not None:
            self.facts["peak_host_memory"] = peak
        self.channel.send("prepared", iteration=iteration, facts=self.facts, on_device=synchronise is not None)
        while (request := self.channel.receive("serve", "stop"))["kind"] == "serve":
            self._answer(block, request)

    def _answer(self, block: Block, request: JSON) -> None:
        whole, spins = slowdown(block, request["iterations"], request["prime"], request["extra"], self.clock)
        block.dispatched.clear()
        with gc_disabled():
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
        self.channel.send("rounds", began=began, ended=ended, dispatched=block.dispatched)


class LaunchHandler(Protocol):
    """A launched process, whatever it was launched for."""

    called: bool

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        """Do with the step what the controller asked for."""


class Bench:
    """The ``bench`` fixture in the measuring process."""

    def __init__(self, launch: LaunchHandler) -> None:
        self._launch = launch

    def __call__(self, step: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Measure ``step(*arguments)``; it must return something.

        Args:
            step: One iteration of the work.
            arguments: Handed to every call.
            keywords: ``flops``, ``bytes`` (least traffic) and ``items`` of one call, for rates; the contracts
                ``expect_ops``, ``compiled``, ``max_traces``, ``max_peak_bytes`` and ``parity``; ``accuracy``,
                ``sparsity`` and ``unique_weights`` of a model; ``artifact``, bytes or a path whose size is to be told;
                ``ceiling``, ``flops`` or ``bytes``, if nothing on this machine does more of these in a second.

        Raises:
            BenchmarkError: Called twice, with what is not a function, or with an unknown keyword.
        """
        if self._launch.called:
            raise BenchmarkError("bench was called twice: one benchmark measures one step")
        if not callable(step):
            raise BenchmarkError(f"bench({step!r}): the first argument must be a function; pass its arguments after it")
        self._launch.called = True
        self._launch.serve(step, arguments, keywords)
