"""A launch that takes no times: the step repeats while the controller reads the energy counters of the GPUs."""

from __future__ import annotations

import time

from tfbench.model import ONCE
from tfbench.protocol.messages import Begin, Prepared, RepeatCase, Repeated
from tfbench.worker.bench import Bench, Step
from tfbench.worker.block import warm_up

_UNWATCHED_SECONDS = 0.01
"""A launch for the energy reads the time once per so many seconds of iterations."""


class EnergyLaunch(Bench[RepeatCase]):
    """Repeats the step and counts, while the controller reads the energy counters of the GPUs."""

    def serve(self, call: Step) -> None:
        block = self.block(call)
        once = bool(self.facts.get(ONCE))
        iteration = 1.0 if once else warm_up(block, *self.request.warmup)[0]
        self.channel.send(Prepared(iteration, self.facts))
        self.channel.receive(Begin)
        if once:
            block(1)
            self.channel.send(Repeated(1))
            return
        at_once = max(1, round(_UNWATCHED_SECONDS / (iteration + (block.untimed or 0))))
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < self.request.seconds:
            block(at_once)
            done += at_once
        self.channel.send(Repeated(done))
