"""A launch that runs its step for a while and counts: for what is read from outside meanwhile, as a GPU's energy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tfbench.model import JSON
from tfbench.protocol import Channel
from tfbench.worker import bench_options, tf_runtime
from tfbench.worker.block import Block, warm_up


@dataclass
class Looping:
    """A launched process that was told to loop."""

    channel: Channel
    seconds: float
    """How long."""
    warmup: tuple[float, float, float]
    """As in `worker.bench.Launch`."""
    called: bool = False
    facts: JSON = field(default_factory=dict)

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        """Warm the step up, wait to be told, run it for the time, and tell how often it ran.

        Raises:
            BenchmarkError: A keyword of ``bench`` cannot be meant.
        """
        self.facts.update(bench_options.facts(keywords))
        block = Block(partial(step, *arguments), tf_runtime.synchroniser(), time.perf_counter_ns)
        iteration = warm_up(block, *self.warmup, time.perf_counter_ns)
        self.channel.send("prepared", iteration=iteration, facts=self.facts)
        if self.channel.receive("serve", "stop")["kind"] == "stop":
            return
        at_once, done, began = max(1, round(0.01 / iteration)), 0, time.perf_counter()
        while time.perf_counter() - began < self.seconds:
            block(at_once, 0, 0, 0)
            done += at_once
        self.channel.send("looped", iterations=done)
