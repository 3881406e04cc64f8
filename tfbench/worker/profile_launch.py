"""A launch that profiles its steps and takes no times. Each step is marked, together with the fetch of its input."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tfbench.model import JSON
from tfbench.protocol.messages import ProfileCase, Profiled
from tfbench.worker import profiler, tf_runtime
from tfbench.worker.bench import LaunchHandler
from tfbench.worker.block import Block, warm_up

STEP = "step"
"""The name of the marks."""


class ProfilingLaunch(LaunchHandler[ProfileCase]):
    """Warms the step up, so that the profile shows its steady state, and profiles some of its calls."""

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        call = partial(step, *arguments)
        block = Block(call, tf_runtime.synchroniser(), time.perf_counter_ns)
        call()
        block.wait()
        iteration = warm_up(block, *self.request.warmup, time.perf_counter_ns)
        fewest, most = self.request.steps
        # Readers of a profile leave out its first step.
        wanted = 1 + min(most, max(fewest, round(self.request.seconds / iteration)))
        trace = profiler.tf_profiler().Trace
        done = 0
        with profiler.METHODS[self.request.method](self.request.folder, self.request.levels) as collects:
            for number in itertools.count():
                if not collects() if callable(collects) else number == wanted:
                    break
                with trace(STEP, step_num=number, _r=1):
                    call()
                    block.wait()
                done += 1
        self.channel.send(Profiled(done, iteration, self.facts))
