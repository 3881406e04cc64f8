"""Launches that sample, probe or profile instead of racing."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tfbench import protocol
from tfbench.errors import BenchmarkError
from tfbench.model import JSON, NATIVE, ONCE
from tfbench.suite.functions import digest
from tfbench.worker import gc, probes, tf_runtime, time
from tfbench.worker.bench import Bench, Step
from tfbench.worker.block import Block, warm_up
from tfbench.worker.isolation import mallinfo
from tfbench.worker.probes import Probes

# A launch that takes no times: a thread samples which Python functions the step runs in, and memory is counted


INTERVAL = 1e-3
"""Seconds between samples: a thousand in the second that a step is sampled, so a share of 10% is known to 1%."""
_SWITCH = 1e-4
"""Seconds after which Python hands over its lock, below the interval. The default, 5 ms, would be the real interval."""
_SMALLEST = 0.01
"""Share of the samples below which a function is not sent, since it cannot hold half of a slowdown of 2%."""
_LINES = 3
"""Number of lines of Python that are reported, in descending order of the memory that they hold."""


class SamplingLaunch(Bench[protocol.SampleCase]):
    """Samples the functions of the step, or counts what its calls leave in memory. A step that runs once is called once."""

    def serve(self, call: Step) -> None:
        block = self.block(call)
        once = bool(self.facts.get(ONCE)) or self.request.first
        if not once:
            for _ in range(2):  # traces, and fills caches
                with block.one() as step:
                    self.check_result(step())
        sampler = FunctionSampler(sys._getframe())
        memory: JSON = {}
        calls = 0
        with growth(memory) if self.request.memory else sampler:
            began = time.perf_counter()
            while not calls or (not once and time.perf_counter() - began < self.request.seconds):
                with block.one() as step:
                    step()
                    block.wait()
                calls += 1
            seconds = time.perf_counter() - began
        enough = sampler.samples * _SMALLEST
        functions = {name: (count, depth) for name, (count, depth) in sampler.functions.items() if count >= enough}
        self.channel.send(protocol.Sampled(calls, seconds, sampler.samples, functions, memory))


class FunctionSampler:
    """Counts the functions on the stack of the calling thread, from a thread of its own. A context manager.

    Only frames below ``root`` count.
    """

    def __init__(self, root: FrameType) -> None:
        self.samples = 0
        self.functions: dict[str, list[int]] = {}
        """Function -> samples with it on the stack, and the sum of its depths in them."""
        self._root = root
        self._watched = threading.get_ident()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tfbench-sampler", daemon=True)
        self._interval = sys.getswitchinterval()

    def __enter__(self) -> FunctionSampler:
        sys.setswitchinterval(_SWITCH)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def _watch(self) -> None:
        while not self._end.wait(INTERVAL):
            if (frame := sys._current_frames().get(self._watched)) is not None:
                self.add(frame)

    def add(self, frame: FrameType | None) -> None:
        """Count the functions from this frame down to the root."""
        names = []
        while frame is not None and frame is not self._root:
            names.append(_qualified(frame.f_code, frame.f_globals.get("__name__", "?")))
            frame = frame.f_back
        self.samples += 1
        # A recursive function counts once, at its outermost call.
        for depth, name in enumerate(dict.fromkeys(reversed(names))):
            entry = self.functions.setdefault(name, [0, 0])
            entry[0] += 1
            entry[1] += depth


@cache
def _qualified(code: CodeType, module: str) -> str:
    return f"{module}.{getattr(code, 'co_qualname', code.co_name)}"  # qualified names are new in Python 3.11


@contextmanager
def growth(grown: JSON) -> Iterator[None]:
    """Fill in what the block leaves behind, in bytes by keeper, and the lines of Python that hold most.

    ``python`` is what Python allocates, ``native`` what others hold from the C library's allocator, and ``retained`` what
    that allocator keeps after it was freed.
    """
    tracemalloc.start()
    try:
        began = _sizes()
        yield
        ended = _sizes()
        grown.update({name: max(0.0, ended[name] - began[name]) for name in ended.keys() & began.keys()})
        largest = tracemalloc.take_snapshot().statistics("lineno")[:_LINES]
        # Without the folder that a package is installed in.
        grown["lines"] = {str(line.traceback[0]).rpartition("site-packages/")[2]: line.size for line in largest}
    finally:
        tracemalloc.stop()


def _sizes() -> dict[str, float]:
    gc.collect()
    python = float(tracemalloc.get_traced_memory()[0])
    if (ask := mallinfo()) is None:
        return {"python": python}
    info = ask()
    # Large blocks of Python's come from this allocator too, and small ones from its own arenas.
    native = info.uordblks + info.hblkhd - python - tracemalloc.get_tracemalloc_memory()
    return {"python": python, "native": max(0.0, native), "retained": float(info.fordblks)}


# A launch that takes no times: probes read the other metrics while the step runs a few times


_SEED = 1
"""Start of the generators of random numbers until the results that are compared have been read."""


@dataclass(repr=False)
class ProbingLaunch(Bench[protocol.ProbeCase]):
    """Runs the step between the calls of the probes, and sends their evidence."""

    def __post_init__(self) -> None:
        self.facts["source"] = digest(self.function)
        self._folder = Path(self.request.folder)
        self._probes = Probes()
        self._probes.start("xla", probes.xla(self._folder))
        self._end_seed = tf_runtime.seed(_SEED)
        self.own_files.watch_replaced()

    def serve(self, call: Step) -> None:
        start, reach, graphs = self._probes.start, self._probes.reach, dict[str, Any]()
        reach(probes.BEFORE)
        start("outputs", probes.outputs(self._folder))
        start("traces", probes.traces(graphs))
        start("live", probes.live())
        start("flops", probes.flops(graphs))
        start("device_memory", probes.device_memory())
        start("artifact", probes.artifact(self.artifact))
        start("lite", probes.lite(self.artifact))
        start("graph", probes.graph())
        result = call()
        self.check_result(result)
        reach(probes.FIRST, result)
        del result
        if self.facts.get(ONCE):
            reach(probes.LAST, (1, None))
            reach(probes.RELEASED, 0)
            self._probes.absent |= dict.fromkeys(("leaks", "slowing"), "the step was not repeated")
        else:
            call()  # it may still fill a cache
            reach(probes.SETTLED)
            seconds = []
            for number in range(1, self.request.calls + 1):
                began = time.perf_counter()
                result = call()
                seconds.append(time.perf_counter() - began)
                if number == self.request.calls:
                    reach(probes.LAST, (2 + number, result))
                del result  # it is no part of the peak of the next call
            reach(probes.RELEASED, self.request.calls)
            self._end_seed()
            # Last, since these calls are more or fewer, as long as they take. The fastest call says how many.
            start("leaks", probes.leaks(call, min(seconds), self.request))
            start("slowing", probes.slowing(call, min(seconds), self.request))
        start("afterwork", probes.afterwork())
        reach(probes.END)
        self._send(self._probes.found, self._probes.absent)

    def serve_reported(self, seconds: float) -> None:
        self._send({}, dict.fromkeys(probes.NAMES, "the benchmark loops by itself, so no call of a step can be read"))

    def _send(self, found: JSON, absent: dict[str, str]) -> None:
        if native := self.own_files.native():
            self.facts[NATIVE] = native
        if read := self.own_files.read():  # last, since a step may read what it needs in its first call
            self.facts |= {"read": read, "installed": self.own_files.installed()}
        self.channel.send(protocol.Probed(found, absent, self.facts))


# A launch that takes no times: the step runs under TensorFlow's profiler


STEP = "step"
"""The name of the marks in a profile."""
_UNWATCHED_SECONDS = 0.01
"""A step that repeats for its energy waits for the device once in so many seconds."""


@contextmanager
def profiled(folder: str) -> Iterator[Any]:
    """Profile this process until the block ends, into a folder. The context is TensorFlow's class for marks, ``Trace``.

    Raises `BenchmarkError` if the benchmarks do not import TensorFlow.
    """
    if (tf := tf_runtime.tensorflow()) is None:
        raise BenchmarkError("the benchmark file does not import TensorFlow, whose profiler it needs")
    profiler = tf.profiler.experimental
    # Ops and the larger phases of the runtime. To record every Python call would change the times.
    profiler.start(folder, profiler.ProfilerOptions(host_tracer_level=2, device_tracer_level=1, python_tracer_level=0))
    try:
        yield profiler.Trace
    finally:
        profiler.stop()


class ProfilingLaunch(Bench[protocol.ProfileCase]):
    """Warms the step up, so that the profile shows its steady state, and profiles some of its calls.

    Each step is marked, together with the fetch of its input.
    """

    def serve(self, call: Step) -> None:
        once = bool(self.facts.get(ONCE))
        if not once:
            call()
            self.block(call).wait()
            call = self.in_cache(call)
        block, iteration, steps = self.block(call), 1.0, 2
        if not once:
            iteration = warm_up(block, self.request.warmup)
            fewest, most = self.request.steps
            steps = 1 + min(most, max(fewest, round(self.request.seconds / iteration)))
        self._repeat(block, 0.0 if once else self.request.energy, iteration)
        with profiled(self.request.folder) as trace:
            for number in range(steps):
                # Readers of a profile leave out its first step, which is empty if there is only one call.
                empty = once and not number
                with nullcontext(block.wait) if empty else block.one() as step, trace(STEP, step_num=number, _r=1):
                    step()
                    block.wait()
        self.channel.send(protocol.Profiled())

    def _repeat(self, block: Block, seconds: float, iteration: float) -> None:
        """Repeat the step between two messages, if asked to, while the controller reads the GPUs' counters of energy."""
        if not self.request.energy:
            return
        self.channel.send(protocol.Reached())
        self.channel.receive(protocol.Begin)
        at_once = max(1, round(_UNWATCHED_SECONDS / (iteration + (block.untimed or 0))))
        calls, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            block(at_once)
            calls += at_once
        self.channel.send(protocol.Sampled(calls, time.perf_counter() - began, 0, {}, {}))
