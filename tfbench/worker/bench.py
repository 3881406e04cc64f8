"""The ``bench`` fixture: it hands the step of a benchmark to the launch that the process was forked for."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from tfbench.errors import BenchmarkError
from tfbench.model import JSON
from tfbench.protocol.channel import Channel
from tfbench.protocol.messages import CaseRequest, Prepared, Rounds, Serve, Stop, TimeCase
from tfbench.worker import bench_options, tf_runtime
from tfbench.worker.block import Block, Clock, gc_disabled, serve_turns, slowdown, warm_up
from tfbench.worker.probes.first_call import first_call
from tfbench.worker.probes.memory import HostPeak

Request = TypeVar("Request", bound=CaseRequest)
NO_RESULT = "the step returned None: return its result, so that the work cannot be optimized away"


class LaunchHandler(ABC, Generic[Request]):
    """The task of a forked process, created before the fixtures of the benchmark run.

    Args:
        channel: Connects to the controller.
        request: The request that the process was forked for.
        pipes: Open files that came with the request.
        function: The benchmark function.
    """

    def __init__(self, channel: Channel, request: Request, pipes: Sequence[int], function: object) -> None:
        self.channel = channel
        self.request = request
        self.pipes = pipes
        self.called = False
        self.facts: JSON = {}
        """Results of the launch besides its answer, and the keywords of ``bench``."""

    @abstractmethod
    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        """Do with the step what the request asks for, and answer it.

        Raises:
            BenchmarkError: The launch cannot use the step.
        """


class TimingLaunch(LaunchHandler[TimeCase]):
    """Times blocks of the step in turn with the other processes of the launch."""

    def __init__(self, channel: Channel, request: TimeCase, pipes: Sequence[int], function: object) -> None:
        super().__init__(channel, request, pipes, function)
        self.clock: Clock = time.perf_counter_ns
        self._peak = HostPeak()

    def serve(self, step: Callable[..., Any], arguments: tuple[Any, ...], keywords: JSON) -> None:
        synchronise = tf_runtime.synchroniser()
        call = partial(step, *arguments)
        block = Block(call, synchronise, self.clock)
        returned, first = first_call(call, block.wait)
        self.facts.update(first)
        if not returned:
            raise BenchmarkError(NO_RESULT)
        self._peak.mark()
        iteration = warm_up(block, *self.request.warmup, self.clock)
        self._peak.mark()
        if (peak := self._peak.bytes) is not None:
            self.facts["peak_host_memory"] = peak
        self.channel.send(Prepared(iteration, self.facts, on_device=synchronise is not None))
        while isinstance(request := self.channel.receive(Serve, Stop), Serve):
            self._time(block, request)

    def _time(self, block: Block, request: Serve) -> None:
        whole, spins = slowdown(block, request.iterations, request.prime, request.extra, self.clock)
        block.dispatched.clear()
        inbox, *outboxes = self.pipes
        with gc_disabled():
            began, ended = serve_turns(
                block,
                own=self.request.entrant,
                follow=request.follow,
                inbox=inbox,
                outboxes=outboxes,
                iterations=request.iterations,
                prime=request.prime,
                extra=whole,
                spins=spins,
            )
        self.channel.send(Rounds(tuple(began), tuple(ended), tuple(block.dispatched)))


class Bench:
    """The ``bench`` fixture in the process of a launch."""

    def __init__(self, launch: LaunchHandler[Any]) -> None:
        self._launch = launch

    def __call__(self, step: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Measure ``step(*arguments)``, which must return its result.

        Args:
            step: One iteration of the work.
            arguments: Passed to every call.
            keywords: The work of one call, for rates: ``flops``, ``bytes`` (minimum traffic) and ``items``.
                Contracts: ``expect_ops``, ``compiled``, ``max_traces``, ``max_peak_bytes`` and ``parity``.
                Qualities of a model: ``accuracy``, ``sparsity`` and ``unique_weights``.
                ``artifact``: bytes or a path whose size is reported.
                ``ceiling``: ``flops`` or ``bytes``, if this step sets the machine's roofline for it.

        Raises:
            BenchmarkError: ``bench`` is called twice, without a function, or with an invalid keyword.
        """
        if self._launch.called:
            raise BenchmarkError("bench was called twice: one benchmark measures one step")
        if not callable(step):
            raise BenchmarkError(f"bench({step!r}): the first argument must be a function; pass its arguments after it")
        self._launch.called = True
        self._launch.facts.update(bench_options.facts(keywords))
        self._launch.serve(step, arguments, keywords)
