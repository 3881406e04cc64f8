"""A launch that repeats its step and counts, while the controller reads the energy counters of the GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tfbench.model import JSON
from tfbench.protocol.messages import Begin, Prepared, RepeatCase, Repeated
from tfbench.worker import tf_runtime
from tfbench.worker.bench import LaunchHandler
from tfbench.worker.block import Block, warm_up

_UNWATCHED_SECONDS = 0.01
"""The time is read once per so many seconds of iterations."""


class EnergyLaunch(LaunchHandler[RepeatCase]):
    """Repeats the step for the seconds of the request, once the controller says so."""

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        block = Block(partial(step, *arguments), tf_runtime.synchroniser(), time.perf_counter_ns)
        iteration = warm_up(block, *self.request.warmup, time.perf_counter_ns)
        self.channel.send(Prepared(iteration, self.facts))
        self.channel.receive(Begin)
        at_once, done, began = max(1, round(_UNWATCHED_SECONDS / iteration)), 0, time.perf_counter()
        while time.perf_counter() - began < self.request.seconds:
            block(at_once, 0, 0, 0)
            done += at_once
        self.channel.send(Repeated(done))
