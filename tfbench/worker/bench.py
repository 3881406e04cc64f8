"""The ``bench`` fixture: it hands the step of a benchmark to the launch that the process was forked for."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from tfbench.errors import BenchmarkError
from tfbench.model import JSON, ONCE
from tfbench.protocol.channel import Channel
from tfbench.protocol.messages import (
    Begin,
    CaseRequest,
    Prepared,
    ProfileCase,
    Profiled,
    RepeatCase,
    Repeated,
    Rounds,
    Serve,
    ServeSliced,
    Settle,
    Settled,
    Stop,
    TimeCase,
)  # fmt: skip
from tfbench.worker import bench_options, profiler, tf_internals, tf_runtime
from tfbench.worker.block import Block, Clock, gc_disabled, serve_turns, slowdown, spin, spins_for, warm_up
from tfbench.worker.probes.memory import HostPeak
from tfbench.worker.slices import serve_slices
from tfbench.worker.tracers import tracer

Request = TypeVar("Request", bound=CaseRequest)
NO_RESULT = "the step returned None: return its result, so that the work cannot be optimized away"
STEP = "step"
"""The name of the marks in a profile."""
_UNWATCHED_SECONDS = 0.01
"""A launch for the energy reads the time once per so many seconds of iterations."""


@dataclass(repr=False)
class Bench(ABC, Generic[Request]):
    """The ``bench`` fixture in the process of a launch, created before the other fixtures of the benchmark run."""

    channel: Channel
    request: Request
    """The request that the process was forked for."""
    pipes: Sequence[int]
    """Open files that came with the request."""
    function: object
    clock: Clock = field(default=time.perf_counter_ns, init=False)
    called: bool = field(default=False, init=False)
    artifact: Any = field(default=None, init=False)
    facts: JSON = field(default_factory=dict, init=False)
    """Results of the launch besides its answer, and the other keywords of ``bench``."""

    def __repr__(self) -> str:
        return "<the fixture bench>"  # tracebacks show it as an argument of the benchmark

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
        if self.called:
            raise BenchmarkError("bench was called twice: one benchmark measures one step")
        if not callable(step):
            raise BenchmarkError(f"bench({step!r}): the first argument must be a function; pass its arguments after it")
        self.called = True
        self.facts.update(bench_options.facts(keywords))
        self.artifact = keywords.get(bench_options.ARTIFACT)
        self.serve(partial(step, *arguments))

    def once(self, step: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Measure ``step(*arguments)`` in its first and only call of the process, one sample per launch.

        Use it for steps that happen once: to build, trace, load or convert a model, or to run a first epoch.
        Arguments, keywords and errors are those of ``bench``.
        """
        self.facts[ONCE] = True
        self(step, *arguments, **keywords)

    @abstractmethod
    def serve(self, call: partial[Any]) -> None:
        """Do with the step and its arguments what the request asks for, and answer it.

        Raises:
            BenchmarkError: The launch cannot use the step.
        """

    def block(self, call: partial[Any]) -> Block:
        """Return a block of this step."""
        return Block(call, tf_runtime.synchroniser(), self.clock)


@dataclass(repr=False)
class TimingLaunch(Bench[TimeCase]):
    """Times blocks of the step in turn with the other processes of the launch."""

    _peak: HostPeak = field(default_factory=HostPeak, init=False)

    def serve(self, call: partial[Any]) -> None:
        if found := tracer():
            raise BenchmarkError(
                f"{found} is active in the measuring process and slows every call down; run without it, such as "
                "without --cov or a debugger"
            )
        block = self.block(call)
        if self.facts.get(ONCE):
            self._serve_once(block)
            return
        returned, first = first_call(block)
        self.facts.update(first)
        if not returned:
            raise BenchmarkError(NO_RESULT)
        self._peak.mark()
        iteration, waiting = warm_up(block, *self.request.warmup)
        self._note_peak()
        on_device, own_clock = block.synchronise is not None, self.clock is not time.perf_counter_ns
        self.channel.send(Prepared(iteration, self.facts, on_device, None if on_device or own_clock else waiting))
        inbox, *outboxes = self.pipes
        cpus = self.request.cpus
        while True:
            order = self.channel.receive(Settle, Serve, ServeSliced, Stop)
            if isinstance(order, Settle):
                cpus = order.cpus
                tf_runtime.pin(cpus)
                block(round(order.seconds / iteration))
                self.channel.send(Settled())
            elif isinstance(order, Serve):
                extra, rest = slowdown(order.iterations, order.extra, self.clock)
                timed = partial(block, order.iterations, order.prime, extra, rest)
                block.dispatched.clear()
                with gc_disabled():
                    began, ended = serve_turns(timed, self.request.entrant, order.follow, inbox, outboxes)
                tf_runtime.check_pinned(cpus)
                self.channel.send(Rounds(tuple(began), tuple(ended), tuple(block.dispatched)))
            elif isinstance(order, ServeSliced):
                with gc_disabled():
                    rounds = serve_slices(call, order, inbox, outboxes)
                tf_runtime.check_pinned(cpus)
                self.channel.send(rounds)
            else:
                return

    def _note_peak(self) -> None:
        self._peak.mark()
        if (peak := self._peak.bytes) is not None:
            self.facts["peak_host_memory"] = peak

    def _serve_once(self, block: Block) -> None:
        """Call the step once, and answer every request for rounds with this time."""
        began = block.clock()
        returned = block.call() is not None
        block.wait()
        elapsed = block.clock() - began
        if not returned:
            raise BenchmarkError(NO_RESULT)
        self._note_peak()
        self.channel.send(Prepared(max(elapsed, 1) * 1e-9, self.facts))
        while True:
            order = self.channel.receive(Settle, Serve, Stop)
            if isinstance(order, Settle):
                self.channel.send(Settled())
            elif isinstance(order, Serve):
                began = block.clock()
                if order.extra:
                    spin(spins_for(order.extra * elapsed, block.clock))
                ended = block.clock() + elapsed
                self.channel.send(Rounds((began,) * len(order.follow), (ended,) * len(order.follow), ()))
            else:
                return


class EnergyLaunch(Bench[RepeatCase]):
    """Repeats the step and counts, while the controller reads the energy counters of the GPUs."""

    def serve(self, call: partial[Any]) -> None:
        block = self.block(call)
        once = bool(self.facts.get(ONCE))
        iteration = 1.0 if once else warm_up(block, *self.request.warmup)[0]
        self.channel.send(Prepared(iteration, self.facts))
        self.channel.receive(Begin)
        if once:
            block(1)
            self.channel.send(Repeated(1))
            return
        at_once, done, began = max(1, round(_UNWATCHED_SECONDS / iteration)), 0, time.perf_counter()
        while time.perf_counter() - began < self.request.seconds:
            block(at_once)
            done += at_once
        self.channel.send(Repeated(done))


class ProfilingLaunch(Bench[ProfileCase]):
    """Warms the step up, so that the profile shows its steady state, and profiles some of its calls.

    Each step is marked, together with the fetch of its input.
    """

    def serve(self, call: partial[Any]) -> None:
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
                with trace(STEP, step_num=done, _r=1):
                    call()
                    block.wait()
        self.channel.send(Profiled())

    def _profile_once(self, block: Block) -> None:
        """Profile the only call as the second step. Readers leave out the first, which is empty."""
        trace = profiler.tf_profiler().Trace
        with profiler.METHODS[self.request.method](self.request.folder, self.request.levels):
            with trace(STEP, step_num=0, _r=1):
                block.wait()
            with trace(STEP, step_num=1, _r=1):
                block.call()
                block.wait()
        self.channel.send(Profiled())


def first_call(block: Block) -> tuple[bool, JSON]:
    """Call the step for the first time, and once more. It leaves no trace before the rounds.

    Returns:
        Whether the step returned a result, and the seconds of the first call: in total, in tracing of Python functions,
        in compilation and in execution. The second call gives the execution. Compilation (grappler, XLA, the choice
        of kernels) is the rest.
    """
    traces: list[float] = []
    with ExitStack() as watch:
        watch.callback(tf_internals.on_trace(lambda name, graph, seconds: traces.append(seconds)))
        began = time.perf_counter()
        returned = block.call() is not None
        block.wait()
        whole = time.perf_counter() - began
    began = time.perf_counter()
    block.call()
    block.wait()
    again = time.perf_counter() - began
    trace = sum(traces)
    parts = {"trace": trace, "compile": max(0.0, whole - trace - again), "execute": min(again, whole)}
    return returned, {"first_call": whole, "first_call_parts": parts}
