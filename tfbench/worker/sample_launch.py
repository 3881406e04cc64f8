"""A launch that takes no times: a thread samples which Python functions the step runs in, and memory is counted."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FrameType

from tfbench.model import JSON, ONCE
from tfbench.protocol.messages import SampleCase, Sampled
from tfbench.worker.allocator import mallinfo
from tfbench.worker.bench import Bench, Step
from tfbench.worker.probes.memory import resident

INTERVAL = 1e-3
"""Seconds between samples: a thousand in the second that a step is sampled, so a share of 10% is known to 1%."""
_SWITCH = 1e-4
"""Seconds after which Python hands over its lock, below the interval. The default, 5 ms, would be the real interval."""
_SMALLEST = 0.01
"""Share of the samples below which a function is not sent, since it cannot hold half of a slowdown of 2%."""
_LINES = 3
"""Number of lines of Python that are reported, in descending order of the memory that they hold."""
_TYPES = 5
"""Number of types of Python objects that are reported, in descending order of their growth."""


class SamplingLaunch(Bench[SampleCase]):
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
        self.channel.send(Sampled(calls, seconds, sampler.samples, functions, memory))


class FunctionSampler:
    """Counts the functions on the stack of the calling thread, from a thread of its own. A context manager.

    Args:
        root: The frame below those that count.
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
        self._names: dict[CodeType, str] = {}

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
            names.append(self._name(frame))
            frame = frame.f_back
        self.samples += 1
        # A recursive function counts once, at its outermost call.
        for depth, name in enumerate(dict.fromkeys(reversed(names))):
            entry = self.functions.setdefault(name, [0, 0])
            entry[0] += 1
            entry[1] += depth

    def _name(self, frame: FrameType) -> str:
        code = frame.f_code
        if (name := self._names.get(code)) is None:
            name = getattr(code, "co_qualname", code.co_name)  # qualified names are new in Python 3.11
            name = self._names[code] = f"{frame.f_globals.get('__name__', '?')}.{name}"
        return name


@contextlib.contextmanager
def growth(found: JSON) -> Iterator[None]:
    """Fill in what the block leaves behind, in bytes by keeper, and the types of Python objects that grew.

    ``python`` is what Python allocates, ``native`` what others hold from the C library's allocator, ``retained`` what
    that allocator keeps after it was freed, and ``resident`` all private memory of the process.
    """
    tracemalloc.start()
    try:
        began, objects = _sizes(), _objects()
        yield
        ended = _sizes()
        found.update({name: max(0.0, ended[name] - began[name]) for name in ended.keys() & began.keys()})
        more = _objects()
        more.subtract(objects)
        largest = tracemalloc.take_snapshot().statistics("lineno")[:_LINES]
        found["lines"] = {_place(one.traceback[0].filename, one.traceback[0].lineno): one.size for one in largest}
        found["types"] = {name: count for name, count in more.most_common(_TYPES) if count > 0}
    finally:
        tracemalloc.stop()


def _sizes() -> dict[str, float]:
    gc.collect()
    python = float(tracemalloc.get_traced_memory()[0])
    found = {"python": python, "resident": float(resident().get("RssAnon", 0))}
    if (ask := mallinfo()) is not None:
        info = ask()
        # Large blocks of Python's come from this allocator too, and small ones from its own arenas.
        ours = python + tracemalloc.get_tracemalloc_memory()
        found |= {"native": max(0.0, float(info.uordblks + info.hblkhd) - ours), "retained": float(info.fordblks)}
    return found


def _place(file: str, line: int) -> str:
    """Return a line of a package without the folder that it is installed in."""
    return f"{file.rpartition('site-packages/')[2]}:{line}"


def _objects() -> Counter[str]:
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
