"""A launch that takes no times: the step runs under TensorFlow's profiler."""

from __future__ import annotations

import itertools

from tfbench.model import ONCE
from tfbench.protocol.messages import ProfileCase, Profiled
from tfbench.worker import profiler
from tfbench.worker.bench import Bench, Step
from tfbench.worker.block import Block, warm_up

STEP = "step"
"""The name of the marks in a profile."""


class ProfilingLaunch(Bench[ProfileCase]):
    """Warms the step up, so that the profile shows its steady state, and profiles some of its calls.

    Each step is marked, together with the fetch of its input.
    """

    def serve(self, call: Step) -> None:
        block = self.block(call)
        if self.facts.get(ONCE):
            self._profile_once(block)
            return
        call()
        block.wait()
        iteration, _ = warm_up(block, *self.request.warmup)
        fewest, most = self.request.steps
        # Readers of a profile leave out its first step.
        wanted = 1 + min(most, max(fewest, round(self.request.seconds / iteration)))
        trace = profiler.tf_profiler().Trace
        with profiler.METHODS[self.request.method](self.request.folder, self.request.levels) as collects:
            for done in itertools.count():
                if not collects() if callable(collects) else done == wanted:
                    break
                with block.one() as step, trace(STEP, step_num=done, _r=1):
                    step()
                    block.wait()
        self.channel.send(Profiled())

    def _profile_once(self, block: Block) -> None:
        """Profile the only call as the second step. Readers leave out the first, which is empty."""
        trace = profiler.tf_profiler().Trace
        with profiler.METHODS[self.request.method](self.request.folder, self.request.levels):
            with trace(STEP, step_num=0, _r=1):
                block.wait()
            with block.one() as step, trace(STEP, step_num=1, _r=1):
                step()
                block.wait()
        self.channel.send(Profiled())
