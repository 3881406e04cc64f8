"""A launch that is profiled and not timed: marked steps, each with the fetching of its input."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tfbench.errors import BenchmarkError
from tfbench.model import JSON
from tfbench.protocol import Channel
from tfbench.worker import bench_options, profiler, tf_runtime
from tfbench.worker.block import Block, warm_up

STEP = "step"
"""The name of the marks."""


@dataclass
class Profiling:
    """A launched process that was told to profile itself."""

    channel: Channel
    folder: Path
    """Where the profiler writes."""
    steps: tuple[int, int]
    """Fewest and most steps."""
    seconds: float
    """Within the two, as many steps as fit into this time."""
    method: str
    levels: profiler.Levels
    warmup: tuple[float, float, float]
    """As in `worker.bench.Launch`: what runs for the first time is not what is to be seen."""
    called: bool = False
    facts: JSON = field(default_factory=dict)

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        """Warm the step up, profile some of its calls, and tell how many.

        Raises:
            BenchmarkError: A keyword of ``bench`` cannot be meant, or the profiler refuses.
        """
        self.facts.update(bench_options.facts(keywords))
        call = partial(step, *arguments)
        block = Block(call, tf_runtime.synchroniser(), time.perf_counter_ns)
        call()
        block.wait()
        iteration = warm_up(block, *self.warmup, time.perf_counter_ns)
        fewest, most = self.steps
        # The first one is left out by whoever reads them.
        wanted = 1 + min(most, max(fewest, round(self.seconds / iteration)))
        tf = tf_runtime.tensorflow()
        if tf is None:
            raise BenchmarkError("nothing here has imported TensorFlow, so there is nothing to profile")
        trace = tf.profiler.experimental.Trace
        done = 0
        with profiler.METHODS[self.method](str(self.folder), self.levels) as collects:
            for number in itertools.count():
                if not collects() if callable(collects) else number == wanted:
                    break
                with trace(STEP, step_num=number, _r=1):
                    call()
                    block.wait()
                done += 1
        self.channel.send("profiled", steps=done, iteration=iteration, facts=self.facts)
