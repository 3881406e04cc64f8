"""The ``bench`` fixture: it hands the step of a benchmark to the launch that the process was forked for."""

from __future__ import annotations

import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from tfbench.errors import BenchmarkError
from tfbench.model import JSON, ONCE, REPORTED
from tfbench.protocol.channel import Channel
from tfbench.protocol.messages import (
    Begin,
    CaseRequest,
    Prepared,
    Reached,
    Rounds,
    Serve,
    ServeSliced,
    Settle,
    Settled,
    Stop,
    TimeCase,
)  # fmt: skip
from tfbench.worker import allocator, bench_options, tf_internals, tf_runtime
from tfbench.worker.block import (
    Block,
    Clock,
    Injection,
    PreparedBlock,
    PreparedStep,
    gc_disabled,
    pace,
    serve_turns,
    spin,
    spins_for,
    warm_up,
    works_on,
)
from tfbench.worker.first_call import call_once, first_call
from tfbench.worker.own_files import OwnFiles
from tfbench.worker.probes.memory import HostPeak
from tfbench.worker.slices import serve_slices
from tfbench.worker.tracers import tracer
from tfbench.worker.unfinished import unfinished

Request = TypeVar("Request", bound=CaseRequest)
Step = Callable[[], Any] | PreparedStep
NO_RESULT = "the step returned None: return its result, so that the work cannot be optimized away"


@dataclass(repr=False)
class Bench(ABC, Generic[Request]):
    """The ``bench`` fixture in the process of a launch, created before the other fixtures of the benchmark run."""

    channel: Channel
    request: Request
    """The request that the process was forked for."""
    pipes: Sequence[int]
    """Open files that came with the request."""
    function: object
    own_files: OwnFiles
    """The files of the side's source tree that the process has read."""
    clock: Clock = field(default=time.perf_counter_ns, init=False)
    called: bool = field(default=False, init=False)
    refusal: str = field(default="", init=False)
    """Why a call was refused, in case the benchmark catches the error, or another thread does."""
    ends_early: bool = field(default=False, init=False)
    """Whether the rest of the benchmark is left out, so that its end is no failure."""
    needs_result: bool = field(default=True, init=False)
    """Whether the step must return its result."""
    artifact: Any = field(default=None, init=False)
    facts: JSON = field(default_factory=dict, init=False)
    """Results of the launch besides its answer, and the other keywords of ``bench``."""
    late_facts: JSON = field(default_factory=dict, init=False)
    """What is known when the benchmark has returned."""
    seconds: list[float] = field(default_factory=list, init=False)
    """Time of one iteration in each round, once the launch has been timed."""
    iterations: int = field(default=1, init=False)
    """Iterations of each of these rounds."""

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
        self.take("bench", step)
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

    def take(self, fixture: str, step: object) -> None:
        """Note that the benchmark hands over its step.

        Args:
            fixture: Name of the fixture that it called, for errors.

        Raises:
            BenchmarkError: It has done so before, from another thread, or ``step`` is no function.
        """
        if self.called:
            self.refuse(f"{fixture} was called twice: one benchmark measures one step")
        if threading.current_thread() is not threading.main_thread():
            self.refuse(
                f"{fixture} was called in the thread {threading.current_thread().name}: call it in the main thread"
            )
        if inspect.iscoroutine(step):
            step.close()
            self.refuse(f"{fixture} was given a coroutine: pass the function, and have it run its coroutine")
        if not callable(step):
            self.refuse(f"{fixture}({step!r}): the first argument must be a function; pass its arguments after it")
        self.called = True

    def refuse(self, reason: str) -> NoReturn:
        """Note and raise an error.

        Raises:
            BenchmarkError: Always.
        """
        self.refusal = self.refusal or reason
        raise BenchmarkError(reason)

    def check_result(self, result: object) -> None:
        """Check what the first call of the step returned.

        Raises:
            BenchmarkError: It is ``None`` and must not be, its work is not done, or TensorFlow does not wait for its ops.
        """
        if reason := unfinished(result, functions=bool(self.facts.get(ONCE))):
            self.refuse(reason)
        tf_runtime.check_synchronous()
        if result is None and self.needs_result:
            raise BenchmarkError(NO_RESULT)

    @abstractmethod
    def serve(self, call: Step) -> None:
        """Do with the step and its arguments what the request asks for, and answer it.

        Raises:
            BenchmarkError: The launch cannot use the step.
        """

    def serve_reported(self, seconds: float) -> None:
        """Answer the request for a benchmark that takes its own time.

        Args:
            seconds: The time that it reports.

        Raises:
            BenchmarkError: The launch needs a step.
        """
        self.refuse("it loops by itself and only reports a time, so there is no step to run here")

    def block(self, call: Step) -> Block:
        """Return a block of this step."""
        if isinstance(call, PreparedStep):
            return PreparedBlock(call, tf_runtime.synchroniser(), self.clock)
        return Block(call, tf_runtime.synchroniser(), self.clock)


@dataclass(repr=False)
class TimingLaunch(Bench[TimeCase]):
    """Times blocks of the step in turn with the other processes of the launch."""

    _peak: HostPeak = field(default_factory=HostPeak, init=False)

    def __post_init__(self) -> None:
        allocator.map_large_blocks()  # until the peak of memory is known
        tf_internals.seed(self.request.seed)

    def serve(self, call: Step) -> None:
        if found := tracer():
            raise BenchmarkError(
                f"{found} is active in the measuring process and slows every call down; run without it, such as "
                "without --cov or a debugger"
            )
        block = self.block(call)
        if self.facts.get(ONCE):
            self._serve_once(block)
            return
        first = self._first_call(block)
        self._note_peak()
        allocator.keep_freed_memory()
        waiting: float | None
        iteration, waiting = warm_up(block, *self.request.warmup)
        on_device, untimed = block.synchronise is not None, block.untimed
        if ahead := not on_device and works_on():
            iteration = pace(block, self.request.warmup[0])
        alone = len(self.request.cpus) == 1 and not on_device and untimed is None
        by_processor = alone and self.clock is time.perf_counter_ns
        waiting = waiting if by_processor else None
        self.channel.send(Prepared(iteration, self.facts, on_device, waiting, untimed, first, ahead))
        inbox, *outboxes = self.pipes
        seed = self.request.seed + self.request.entrant

        def timed(order: Serve | ServeSliced) -> Rounds:
            if isinstance(order, ServeSliced):
                return serve_slices(call, order, inbox, outboxes, seed)
            injected = Injection(order.iterations, order.extra, order.slow, self.clock, seed)

            def turn() -> tuple[int, int]:
                return block(order.iterations, order.prime, *injected())

            block.restart()
            used = time.process_time_ns()
            began, ended = serve_turns(turn, self.request.entrant, order.follow, inbox, outboxes, order.groups)
            used = time.process_time_ns() - used if by_processor else 0
            preempted = block.preempted if by_processor else ()
            return Rounds(tuple(began), tuple(ended), tuple(block.dispatched), used, preempted)

        cost = iteration + (untimed or 0)
        self._take_turns(timed, lambda order: block(round(order.seconds / cost)))

    def serve_reported(self, seconds: float) -> None:
        self.facts.update({REPORTED: True, ONCE: True})
        self._repeat(seconds)

    def _first_call(self, block: Block) -> tuple[float, float] | None:
        """Add the times of `first_call` to the facts; returns those of a call that shared its processor."""
        shared = self._meets()
        facts, used = first_call(block, self.check_result)
        self.facts.update(facts)
        if shared:
            self._meet()  # a warm-up beside the first call of another entrant would find the step slow
            tf_runtime.pin(self.request.cpus)
        return (facts["first_call"], used) if shared else None

    def _meets(self) -> bool:
        """Go where the entrants meet, if they do, and wait for the others."""
        meets = bool(self.request.meeting) and self.clock is time.perf_counter_ns
        if meets:
            tf_runtime.pin(self.request.meeting)
            self._meet()
        return meets

    def _meet(self) -> None:
        self.channel.send(Reached())
        self.channel.receive(Begin)

    def _take_turns(self, timed: Callable[[Serve | ServeSliced], Rounds], settle: Callable[[Settle], object]) -> None:
        """Serve requests until the launch stops.

        Args:
            timed: Takes the turns of a request.
            settle: Runs the step on other processors.
        """
        cpus = self.request.cpus
        while True:
            order = self.channel.receive(Settle, Serve, ServeSliced, Stop)
            if isinstance(order, Settle):
                cpus = order.cpus
                tf_runtime.pin(cpus)
                settle(order)
                self.channel.send(Settled())
            elif isinstance(order, (Serve, ServeSliced)):
                with gc_disabled():
                    rounds = timed(order)
                tf_runtime.check_pinned(cpus)
                tf_runtime.check_synchronous()
                self.channel.send(rounds)
                self.iterations = order.iterations
                times = zip(rounds.began, rounds.ended, strict=True)
                self.seconds = [(end - start) * 1e-9 / self.iterations for start, end in times]
            else:
                return

    def _note_peak(self) -> None:
        self._peak.mark()
        if (peak := self._peak.bytes) is not None:
            self.facts["peak_host_memory"] = peak

    def _serve_once(self, block: Block) -> None:
        """Call the step once, and answer every request for rounds with this time."""
        allocator.keep_freed_memory()  # a step that runs once may contain a loop
        shared = self._meets()
        result, seconds, used = call_once(block, block.clock)
        self.check_result(result)
        self._note_peak()
        self._repeat(seconds, (seconds, used) if shared else None)

    def _repeat(self, seconds: float, first: tuple[float, float] | None = None) -> None:
        """Answer every request for rounds with the same time.

        Args:
            first: Its times, if it was taken on a shared processor.
        """
        elapsed = round(seconds * 1e9)
        self.channel.send(Prepared(seconds, self.facts, first_call=first))
        while True:
            order = self.channel.receive(Settle, Serve, Stop)
            if isinstance(order, Settle):
                self.channel.send(Settled())
            elif isinstance(order, Serve):
                if order.extra and REPORTED in self.facts:
                    self.refuse(
                        "--inject-slowdown cannot slow down a method that loops by itself; leave it out with -k"
                    )
                began = self.clock()
                if order.extra:
                    spin(spins_for(order.extra * elapsed, self.clock))
                ended = self.clock() + elapsed
                self.channel.send(Rounds((began,) * len(order.follow), (ended,) * len(order.follow), ()))
                self.seconds = [seconds] * len(order.follow)
            else:
                return
