"""The `bench` fixture in a worker."""

from __future__ import annotations

import collections
import inspect
import io
import itertools
import math
import os
import random
import sys
import threading
import types
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import pytest

from tfbench import protocol
from tfbench.errors import BenchmarkError
from tfbench.model.case import (
    CACHE,
    COLD,
    COLLECTIONS,
    COVERED,
    FIRST_CALL,
    FIRST_CALL_PARTS,
    JSON,
    ONCE,
    PEAK_HOST_MEMORY,
    QUALITIES,
    REPORTED,
    RETRACED,
    SET_LATE,
    SET_UP,
    UNKNOWN,
    WAITED,
    WARM,
    WARM_UP,
)
from tfbench.protocol import CaseRequest, Channel, Prepared
from tfbench.untrusted import brief
from tfbench.worker import block as blocks
from tfbench.worker import isolation, tf_runtime, time
from tfbench.worker.own_files import OwnFiles
from tfbench.worker.probes import HostPeak
from tfbench.worker.quiet import Meter, certain, own_time, used_time, waiting

# The keywords of ``bench``: the work of one call of the step, its contracts, and the qualities of a model


ARTIFACT = "artifact"
CEILING = "ceiling"


def facts(keywords: Mapping[str, Any]) -> JSON:
    """Return amounts of work, and ``contracts`` and ``qualities`` if there are any. Keywords that are ``None`` are left out.

    Raises `BenchmarkError` if a keyword is unknown, or its value is invalid.
    """
    # Shapes and sizes are often numpy's.
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in keywords.items()}
    given = {name: value for name, value in plain.items() if value is not None and name != ARTIFACT}
    for name, value in given.items():
        if name not in _CHECKS:
            fix = f"for an argument of the step, write bench(functools.partial(step, {name}=…), …)"
            raise BenchmarkError(f"bench has no keyword {name!r}: {fix}; it has {', '.join((*_CHECKS, ARTIFACT))}")
        valid, wanted = _CHECKS[name]
        if not valid(value):
            raise BenchmarkError(f"bench: {name}={brief(repr(value))} must be {wanted}")
    if CEILING in given and given[CEILING] not in given:
        raise BenchmarkError(f"bench: ceiling={given[CEILING]!r} also needs {given[CEILING]}=")
    amounts, contracts, qualities = (
        {name: given[name] for name in names if name in given} for names in ((*WORK, CEILING, CACHE), CONTRACTS, MODEL)
    )
    groups = {"contracts": contracts, QUALITIES: qualities}
    return {**amounts, **{name: group for name, group in groups.items() if group}}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_counts(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(op, str) and _is_count(value[op]) for op in value)


_AMOUNT = (lambda value: _is_number(value) and value > 0, "a positive number for one call of the step")
_COUNT = (_is_count, "a whole number")
_FRACTION = (lambda value: _is_number(value) and 0 <= value <= 1, "a fraction, from 0 to 1")
_Check = tuple[Callable[[Any], bool], str]
"""Whether a value is valid, and what it must be."""
WORK: Mapping[str, _Check] = dict.fromkeys(("flops", "bytes", "items"), _AMOUNT)
CONTRACTS: Mapping[str, _Check] = {
    "expect_ops": (_is_counts, 'how often each op is in the graph, such as {"_FusedConv2D": 1}'),
    "compiled": (lambda value: isinstance(value, bool), "True or False"),
    "max_traces": _COUNT,
    "max_peak_bytes": _AMOUNT,
    "parity": (lambda value: _is_number(value) and 0 <= value < 1, "a relative error of the result, from 0 to 1"),
}
MODEL: Mapping[str, _Check] = {"accuracy": _FRACTION, "sparsity": _FRACTION, "unique_weights": _COUNT}
_CHECKS: Mapping[str, _Check] = {
    **WORK, **CONTRACTS, **MODEL, CEILING: (lambda value: value in ("flops", "bytes"), "'flops' or 'bytes'"),
    CACHE: (lambda value: value in (COLD, WARM), f"{COLD!r} or {WARM!r}"),
}  # fmt: skip


# Calls of a step that are timed one by one, the first one with its parts


def call_once(block: blocks.Block, clock: blocks.Clock) -> tuple[object, float, float]:
    """Call the step and wait for the device.

    Returns its result, and the most and the least seconds by this clock that it takes without neighbours, more than none. They
    are the same where no meter of the block tells them apart.
    """
    meter = block.meter and Meter(blocks.children(), watch=True)
    with block.one() as call:
        if meter is not None:
            meter.begin()
        began = clock()
        result = call()
        block.wait()
        most = least = max(clock() - began, 1)
        if meter is not None:
            _, least, most = meter.end(most)
    return result, most * 1e-9, least * 1e-9


def first_call(block: blocks.Block, check: Callable[[object], None]) -> tuple[JSON, float]:
    """Call the step for the first time, and once more. It leaves no trace before the rounds.

    ``check`` is called with the result of the first call.

    Returns:
        The seconds of the first call: in total, in tracing of Python functions, in compilation and in execution.
        The second call gives the execution. Compilation (grappler, XLA, the choice of kernels) is the rest.
        The seconds of the second call as `WARM_UP`, to which the later warm-up adds. And the least seconds of the first call, as `call_once` returns them.
    """
    traces: list[float] = []
    began = time.perf_counter()
    with tf_runtime.on_trace(lambda name, graph, seconds, function: traces.append(seconds)):
        result, whole, least = call_once(block, time.perf_counter_ns)
    own = min(1.0, whole / (time.perf_counter() - began))
    check(result)
    del result
    _, again, _ = call_once(block, time.perf_counter_ns)
    trace = own * sum(traces)
    parts = {"trace": trace, "compile": max(0.0, whole - trace - again), "execute": min(again, whole)}
    return {FIRST_CALL: whole, FIRST_CALL_PARTS: parts, WARM_UP: again}, least


# Cold caches: each call has another copy of its tensors


_GPU = "GPU"
"""Part of the name of the device of a tensor in a GPU's memory."""
_MULTIPLE = 2.0
"""Bytes that the calls of a cold step move between two uses of a tensor, as a multiple of the cache. Caches replace
lines only about in the order of their use."""
_SETS = 1024
"""Most copies of its arguments that a cold step has in turn. Each takes up to 0.1 ms, and inputs of less than a
five-hundredth of the cache gain little from it."""
_NO_COPIES = f"{CACHE}={COLD!r} needs larger arrays or tensors among the arguments of the step; leave it out here"
_NO_SIZE = f"{CACHE}={COLD!r} needs the size of the cache, which the system does not report; leave it out here"


def in_cache(call: Step, wanted: str | None) -> tuple[Step, str | None]:
    """Return the step with calls that find the cache as ``wanted``, and how they find it.

    Calls with tensors on a GPU are cold by default.

    Args:
        wanted: ``cold``, ``warm`` or ``None`` for the default.

    Returns:
        The step, and ``cold``, ``warm`` or ``unknown``; ``None`` for the default of a CPU, which is a primed block.
    """
    arguments = (*call.args, *call.keywords.values()) if isinstance(call, partial) else ()
    given = {id(leaf): leaf for part in arguments for leaf in _leaves(part)}
    arrays = [leaf for leaf in given.values() if _nbytes(leaf)]
    on_gpu = [leaf for leaf in arrays if _GPU in getattr(leaf, "device", "")]
    gpu = bool(tf_runtime.gpus() and (on_gpu or not arrays))
    if wanted == WARM or not (wanted or gpu):
        return call, wanted
    size, moved = int(_MULTIPLE * tf_runtime.cache_bytes(gpu)), on_gpu if gpu else arrays
    sets = -(-size // max(1, sum(map(_nbytes, moved))))
    if size and isinstance(call, partial) and sets <= _SETS:
        copies = [call, *(_with_copies(call, moved) for _ in range(sets - 1))]
        return map(partial.__call__, itertools.cycle(copies)).__next__, COLD
    if wanted:
        pytest.skip(_NO_COPIES if size else _NO_SIZE)
    return call, WARM if size else UNKNOWN


def _leaves(part: Any) -> list[Any]:
    tf = tf_runtime.tensorflow()
    return [part] if tf is None else list(tf.nest.flatten(part))


def _nbytes(leaf: Any) -> int:
    """Return the bytes of an array or a tensor; 0 for all else, such as a variable, which a step may change."""
    tf = tf_runtime.tensorflow()
    if tf is not None and isinstance(leaf, tf.Tensor):
        return tf_runtime.tensor_bytes(leaf)
    return leaf.nbytes if isinstance(leaf, np.ndarray) else 0


def _with_copies(call: partial[Any], moved: Sequence[Any]) -> partial[Any]:
    """Return the call with copies of these of its arrays and tensors; one that is passed twice stays the same twice."""
    copies = {id(leaf): tf_runtime.copied(leaf) for leaf in moved}

    def copy(part: Any) -> Any:
        leaves, tf = _leaves(part), tf_runtime.tensorflow()
        if copies.keys().isdisjoint(map(id, leaves)):
            return part
        changed = [copies.get(id(leaf), leaf) for leaf in leaves]
        return changed[0] if tf is None else tf.nest.pack_sequence_as(part, changed)

    return partial(call.func, *map(copy, call.args), **{name: copy(part) for name, part in call.keywords.items()})


# Find results whose work was not done when the step returned, so that its time says nothing about the work


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial)
_RUN = "pass the async function itself, or a function that runs it, such as lambda: asyncio.run(step())"
_CONSUME = "consume it in the step, such as by list(…), sum(…) or next(…)"
_WAITING = {("result",): "result", ("get", "ready"): "get"}
"""Methods of an object that stands for a later result -> the method that waits for it."""
_OWN_RESULT = "update_state"
"""A method of Keras' metrics, whose ``result`` waits for no one."""
_ITERATE = "iterate over it in the step, such as by for batch in dataset, or sum its batches by .reduce(…)"
_FETCH = "wait for it in the step, such as by coordinator.fetch(…)"
_OF_TENSORFLOW = {
    "data.Dataset": _ITERATE,
    "distribute.DistributedDataset": _ITERATE,
    "distribute.experimental.coordinator.RemoteValue": _FETCH,
    "distribute.experimental.coordinator.PerWorkerValues": _FETCH,
}
"""Type of TensorFlow -> what to do with an object of it."""
_BESIDE = {"threading": "Thread", "multiprocessing.process": "BaseProcess", "subprocess": "Popen"}
"""Module -> what works beside the step, and may go on after it."""
_LISTS: tuple[Any, ...] = (collections.deque, collections.UserList, MappingView)
_DEEPEST = 16
"""Levels of a result that are searched. Results have few, and a linked list of objects may have thousands."""


def unfinished(result: object, *, functions: bool = False) -> str:
    """Return what in a result is not computed yet, with the fix; ``""`` if all is, as far as types tell.

    Containers are searched, and the attributes of data classes and of objects of the project's own classes, unless they
    can be called, such as a model. A coroutine is closed, since Python would warn that it never ran.
    With ``functions``, functions are a result, as they are of a step that builds them. Those that an object keeps always
    are.
    """
    parts: list[tuple[str, Any, bool]] = [("", result, functions)]
    seen: dict[int, object] = {}
    """Parts by their ids, which last as long as the parts: a view makes new tuples each time."""
    for _ in range(_DEEPEST):
        inside = []
        for path, part, allowed in parts:
            if fix := _fix(part, allowed):
                kind = type(part).__name__
                article = "an" if kind[0].lower() in "aeiou" else "a"
                what = f"the step's result{path} is" if path else "the step returned"
                return f"{what} {article} {kind}, whose work was not done: {fix}"
            if id(part) in seen:
                continue
            objects = isinstance(part, np.ndarray) and part.dtype == object
            listed: Any = part.tolist() if objects else list(part) if isinstance(part, _LISTS) else part
            if (found := tf_runtime.contents(listed)) is not None:
                inside += [(path + place, value, allowed) for place, value in found[1]]
            elif held := _held(part):
                inside += [(f"{path}.{name}", value, True) for name, value in held.items()]
            else:
                continue
            seen[id(part)] = part
        parts = inside
    return ""


def _held(part: object) -> Mapping[str, object]:
    """Return the attributes and slots of an object that is searched, without running its code."""
    kind = type(part)
    data = is_dataclass(kind) or (tf_runtime.is_own(kind) and not callable(part))
    if not data or isinstance(part, (type, types.ModuleType)):
        return {}
    held: dict[str, object] = {}
    for base in kind.__mro__:
        for name, slot in vars(base).items():
            if isinstance(slot, types.MemberDescriptorType):
                with suppress(AttributeError):  # it is empty
                    held[name] = slot.__get__(part)
    with suppress(AttributeError):
        held |= object.__getattribute__(part, "__dict__")
    return held


def _fix(part: object, functions: bool) -> str:
    """Return how the step gets this part computed, ``""`` if it is."""
    kind = type(part)
    if isinstance(part, Awaitable):
        if inspect.iscoroutine(part):
            part.close()
        return _RUN
    for methods, wait in _WAITING.items():
        if all(callable(getattr(kind, method, None)) for method in methods) and not hasattr(kind, _OWN_RESULT):
            return f"wait for it in the step, such as by .{wait}()"
    if any(isinstance(part, getattr(sys.modules.get(module), name, ())) for module, name in _BESIDE.items()):
        return "wait for its end in the step, and return what it has computed"
    if isinstance(part, AsyncIterator) or hasattr(kind, "__aiter__"):
        return "consume it in a coroutine, and measure a function that runs that by asyncio.run"
    for name, fix in _OF_TENSORFLOW.items():
        with suppress(AttributeError, TypeError):  # this version of TensorFlow has no such type
            if isinstance(part, attrgetter(name)(tf_runtime.tensorflow())):
                return fix
    if isinstance(part, Iterable) and not isinstance(part, io.IOBase):
        # Files of other kinds are iterated over by lines, and a variable of TensorFlow has no length.
        held = any(hasattr(kind, name) for name in ("__len__", "close", "dtype"))
        if isinstance(part, Iterator) or not held:
            return _CONSUME
    if functions:
        return ""
    traces = getattr(kind, "experimental_get_tracing_count", None)  # of a tf.function
    if isinstance(part, _FUNCTIONS) or (callable(traces) and traces(part) == 0):
        return "call it in the step, or measure by bench.once how it is built"
    return ""


# Find functions that Python calls for every line or call, such as those of coverage, profilers and debuggers


_TOOLS = range(6)
"""Identifiers of tools in `sys.monitoring`."""


def tracer() -> str:
    """Name what traces this thread, ``""`` if nothing does."""
    if os.environ.get(protocol.TRACED_WORKERS):
        return ""
    for kind, function in (("trace", sys.gettrace()), ("profile", sys.getprofile())):
        if function is not None:
            return f"a {kind} function of {type(function).__module__}.{type(function).__qualname__}"
    if sys.version_info >= (3, 12):
        for tool in _TOOLS:
            if (name := sys.monitoring.get_tool(tool)) is not None and sys.monitoring.get_events(tool):
                return f"the monitoring tool {name}"
    return ""


# The ``bench`` fixture: it hands the step of a benchmark to the launch that the process was forked for


Request = TypeVar("Request", bound=CaseRequest)
Step = Callable[[], Any] | blocks.PreparedStep
_ELSEWHERE, _CALLS_ELSEWHERE = 0.05, 3
"""Seconds and calls, at least, that tell on another processor what a step waits by itself."""
_WAITS = 0.2
"""A step that waits longer than this fraction of its processor time may have waits that go on between its calls."""
_TAKEN = "Address already in use", "database is locked", "lockfile already exists"
"""Parts of errors about a port or a file that another process has taken, the last of `tf.data.Dataset.cache`."""


def _in_loop(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that runs an async one to its end, in one event loop for all of its calls; return any other step itself."""
    if not (inspect.iscoroutinefunction(step) or inspect.iscoroutinefunction(type(step).__call__)):
        return step
    import asyncio  # few benchmarks need it

    loop = asyncio.new_event_loop()
    made = lambda *arguments: loop.run_until_complete(step(*arguments))  # noqa: E731
    weakref.finalize(made, loop.close)
    return made


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
    clock: blocks.Clock = field(default=time.perf_counter_ns, init=False)
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
        """Measure ``step(*arguments)``, which must return its result. `tfbench.Bench` lists the keywords.

        Raises `BenchmarkError` if ``bench`` is called twice, without a function, or with an invalid keyword.
        """
        self.take("bench", step)
        self.facts.update(facts(keywords))
        self.artifact = keywords.get(ARTIFACT)
        self.serve(partial(_in_loop(step), *arguments))

    def once(self, step: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Measure ``step(*arguments)`` in its first and only call of the process, one sample per launch.

        Use it for steps that happen once: to build, trace, load or convert a model, or to run a first epoch.
        Arguments, keywords and errors are those of ``bench``.
        """
        if keywords.get(CACHE):
            self.refuse(f"bench.once: {CACHE}= has no effect on a step that runs once; leave it out")
        self.facts[ONCE] = True
        self(step, *arguments, **keywords)

    def take(self, fixture: str, step: object) -> None:
        """Note that the benchmark hands over its step to this fixture, which errors name.

        Raises `BenchmarkError` if it has done so before, from another thread, or ``step`` is no function.
        """
        if self.called:
            self.refuse(f"{fixture} was called twice: one benchmark measures one step")
        if threading.current_thread() is not threading.main_thread():
            self.refuse(
                f"{fixture} was called in the thread {threading.current_thread().name}: call it in the main thread"
            )
        if not callable(step):
            given = brief(repr(step))
            wrong = f"{fixture}({given}): the first argument must be a function; pass its arguments after it"
            self.refuse(unfinished(step) or wrong)
        self.called = True

    def fix_of(self, error: str) -> str:
        """Return what to do about a port or file that is taken, or about too many open files; ``""`` for another error."""
        if any(taken in error for taken in _TAKEN):
            return "several processes run the benchmark at once: bind port 0, and write below tmp_path"
        limit = f"the process has reached the limit of {isolation.file_limit():,} open files (ulimit -n)"
        return f"{limit}; close files where they are opened" if "Too many open files" in error else ""

    def refuse(self, reason: str) -> NoReturn:
        """Raise a `BenchmarkError`, and note the first reason."""
        self.refusal = self.refusal or reason
        raise BenchmarkError(reason)

    def check_result(self, result: object) -> None:
        """Check what the first call of the step returned.

        Raises `BenchmarkError` if it is ``None`` and must not be, its work is not done, or TensorFlow does not wait for
        its ops.
        """
        if reason := unfinished(result, functions=bool(self.facts.get(ONCE))):
            self.refuse(reason)
        tf_runtime.check_synchronous()
        if result is None and self.needs_result:
            raise BenchmarkError(NO_RESULT)

    @abstractmethod
    def serve(self, call: Step) -> None:
        """Do with the step and its arguments what the request asks for, and answer it.

        Raises `BenchmarkError` if the launch cannot use the step.
        """

    def serve_reported(self, seconds: float) -> None:
        """Answer the request for a benchmark that takes its own time, and reports ``seconds``.

        Raises `BenchmarkError` if the launch needs a step.
        """
        self.refuse("it loops by itself and only reports a time, so there is no step to run here")

    def in_cache(self, call: Step) -> Step:
        """Return the step with calls that find the cache as the benchmark asks for, or as by default; note which."""
        call, state = in_cache(call, self.facts.get(CACHE))
        if state:
            self.facts[CACHE] = state
        return call

    def block(self, call: Step) -> blocks.Block:
        """Return a block of this step."""
        kind: type[blocks.Block] = blocks.PreparedBlock if isinstance(call, blocks.PreparedStep) else blocks.Block
        return kind(call, tf_runtime.synchroniser(), self.clock)


_FIRST_CALLS = 2
"""Calls of `first_call`, before those of the warm-up."""
_READ_AT_FIRST_USE = ("XLA_FLAGS", "TF_XLA_FLAGS")
"""Variables that TensorFlow reads when it first compiles, and not when it is imported."""


@dataclass(repr=False)
class TimingLaunch(Bench[protocol.TimeCase]):
    """Times blocks of the step in turn with the other processes of the launch."""

    _peak: HostPeak = field(default_factory=HostPeak, init=False)
    _retraces: int = field(default=0, init=False)
    """Traces of Python functions that had been traced before, in the calls after the first ones."""
    _traced: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet, init=False)
    _variables: Mapping[str, str] = field(default_factory=tf_runtime.variables_in_effect, init=False)
    """Those that libraries read, as the benchmark and its fixtures find them."""
    _began: int = field(default=0, init=False)
    """When the fixtures of the benchmark began."""
    _since: float = field(default=0.0, init=False)
    """When it called ``bench``."""

    def __post_init__(self) -> None:
        isolation.map_large_blocks()  # until the peak of memory is known
        self._began = own_time()

    def serve(self, call: Step) -> None:
        self.facts[SET_UP] = (own_time() - self._began) * 1e-9
        self._peak.mark(counts=False)
        self._since = time.perf_counter()
        if active := tracer():
            raise BenchmarkError(
                f"{active} is active in the measuring process and slows every call down; run without it, such as "
                "without --cov or a debugger"
            )
        block = self.block(call)
        if self.facts.get(ONCE):
            self._serve_once(block)
            return
        first = self._first_call(block)
        self._note_peak()
        call = self.in_cache(call)
        block = self.block(call)
        isolation.keep_freed_memory()
        prepared = self._warm_up(block, first)
        self._note_late_variables()
        if (often := blocks.gc_rate()) != 1:
            self.facts[COLLECTIONS] = often
        self._serve_rounds(block, prepared)

    def block(self, call: Step) -> blocks.Block:
        block = super().block(call)
        if self.clock is time.perf_counter_ns and block.synchronise is None and len(self.request.cpus) == 1:
            block.meter = Meter(blocks.children())
        return block

    def _note_late_variables(self) -> None:
        now = tf_runtime.variables_in_effect().items() - self._variables.items()
        late = (f"{name}={value}" for name, value in now if name not in _READ_AT_FIRST_USE and os.sep not in value)
        if variables := sorted(late):  # without paths, which differ between sides and launches
            self.facts[SET_LATE] = variables

    def _warm_up(self, block: blocks.Block, first: tuple[float, float, int] | None) -> Prepared:
        """Warm the step up, and find out how it uses its processor. ``first`` has the times of a first call in turn."""
        whole = Meter(blocks.children(), watch=True)
        whole.begin()
        began, own = time.perf_counter_ns(), own_time()
        with blocks.gc_watched(), self._counting_retraces():
            iteration = blocks.warm_up(block, self.request.warmup, lambda: self._retraces)
        own = own_time() - own
        stretch = whole.end(time.perf_counter_ns() - began)
        steady = block.calls * (iteration + (block.untimed or 0.0))
        if WARM_UP in self.facts and self.request.warmup[0]:
            self.facts[WARM_UP] += max(0.0, own * 1e-9 - steady)
        else:
            self.facts.pop(WARM_UP, None)  # a brief launch does not become steady
        waited = waiting([stretch])
        on_device, untimed = block.synchronise is not None, block.untimed
        works_on = not on_device and not blocks.rest()
        by_system = self.clock is time.perf_counter_ns and untimed is None and not on_device
        paced = blocks.waits_ahead(block, self.request.warmup[0], iteration) if by_system and waited > _WAITS else None
        if works_on or paced:
            self.facts.pop(WARM_UP, None)  # calls that find their results ready say nothing about the others
            iteration = paced or blocks.pace(block, self.request.warmup[0])
            # What the calls so far have left must not be taken for the work of the rounds.
            blocks.rest(blocks.REST_LIMIT)
        by_processor = untimed is None and block.meter is not None
        # The median call may have lost its processor to others, and the mean includes waits of few calls.
        waits = min(waiting(block.meter.stretches), waited) if by_processor and block.meter else None
        return Prepared(
            iteration, self.facts, on_device, waits, untimed, first, works_on or bool(paced), bool(paced), block.calls
        )

    def _counting_retraces(self) -> AbstractContextManager[None]:
        def traced(name: str, graph: object, seconds: float, function: object) -> None:
            with suppress(TypeError):  # an object without weak references
                self._retraces += function in self._traced
                self._traced.add(function)

        return tf_runtime.on_trace(traced)

    def _serve_rounds(self, block: blocks.Block, prepared: Prepared) -> None:
        """Serve requests until the launch stops. The garbage of the rounds is collected after them."""
        cpus, calls, before_rounds = self.request.cpus, 0, 0
        self.channel.send(prepared)
        with self._counting_retraces(), ExitStack() as uncollected:
            while True:
                order = self.channel.receive(protocol.Settle, protocol.Serve, protocol.ServeSliced, protocol.Stop)
                if isinstance(order, protocol.Settle):
                    cpus = order.cpus
                    waits = self._waits_elsewhere(block, prepared, order.elsewhere)
                    tf_runtime.pin(cpus)
                    block(order.calls)
                    if prepared.works_on:
                        blocks.rest(blocks.REST_LIMIT)
                    self.channel.send(protocol.Settled(waits))
                elif isinstance(order, (protocol.Serve, protocol.ServeSliced)):
                    if order.extra and REPORTED in self.facts:
                        self.refuse(
                            "--inject-slowdown cannot slow down a method that loops by itself; leave it out with -k"
                        )
                    uncollected.enter_context(blocks.gc_disabled())
                    retraced, beside, before = self._retraces, blocks.WorkBeside(), block.calls
                    before_rounds = before_rounds or _FIRST_CALLS + before
                    if isinstance(order, protocol.Serve):
                        rounds = self._turns(order, block, beside)
                    else:  # processor time includes that of threads
                        block, before = blocks.Block(block.call, None, time.process_time_ns), 0
                        rounds, self.late_facts[WAITED] = blocks.serve_slices(
                            block, order, self.pipes, beside, self._seed
                        )
                    calls = block.calls - before
                    beside.end_rounds()
                    if calls:
                        tf_runtime.check_pinned(cpus)
                        tf_runtime.check_synchronous()
                        until = time.perf_counter() - self._since
                        self.late_facts[COVERED] = [before_rounds + 1, before_rounds + calls, until]
                    self.channel.send(rounds)
                    self.iterations = order.iterations
                    times = zip(rounds.began, rounds.ended, strict=True)
                    self.seconds = [(end - start) * 1e-9 / self.iterations for start, end in times]
                else:
                    break
            if calls and 2 * (self._retraces - retraced) > calls:
                self.late_facts[RETRACED] = True
            if calls and not prepared.on_device and self.clock is time.perf_counter_ns:
                self.late_facts |= beside.facts(calls)

    def _waits_elsewhere(self, block: blocks.Block, prepared: Prepared, places: Sequence[int]) -> float | None:
        """Return the share that the step waits by itself, as some calls on other processors tell it.

        Where neighbours took the processor of the warm-up, they hide this share, and another processor may have none.
        """
        waits = prepared.waiting
        if (meter := block.meter) is None or certain(meter.stretches):
            return waits
        for cpu in places:
            tf_runtime.pin((cpu,))
            block.restart()
            until = time.monotonic() + _ELSEWHERE
            while len(block.least) < _CALLS_ELSEWHERE or time.monotonic() < until:
                block(1)
            found = waiting(meter.stretches)
            waits = found if waits is None else min(waits, found)
        return waits

    def _turns(self, order: protocol.Serve, block: blocks.Block, beside: blocks.WorkBeside) -> protocol.Rounds:
        """Time the blocks of each turn."""
        injected = blocks.injection(order.iterations, order.extra, order.slow, self._seed)
        drawn = random.Random(self.request.seed)  # the same on all sides, which then make equally many calls
        spent = 0

        def turn() -> list[tuple[int, int]]:
            nonlocal spent
            beside.pause()
            if order.drain and not spent:
                spent, nanoseconds = blocks.drain(block, order.drain, blocks.REST_LIMIT)
                beside.nanoseconds += nanoseconds
                block.restart()
            # A step may take its inputs by turn. Equally many calls in each turn would time the same ones again and again.
            prime = order.prime + (order.prime > 0 and drawn.random() < 0.5)
            times = [block(order.iterations, 0 if number else prime, *next(injected)) for number in range(order.blocks)]
            beside.go_on()
            return times

        block.restart()
        used = used_time(blocks.children())
        began, ended = blocks.serve_turns(turn, order, self.request.entrant, self.pipes)
        if spent:  # after the rounds, threads make ahead again what these calls have taken
            beside.nanoseconds -= spent * (sum(ended) - sum(began)) // (len(began) * order.iterations)
        used = used_time(blocks.children()) - used
        if block.meter is not None:
            stretches = block.meter.stretches
            self.late_facts[WAITED] = max(
                0.0, sum(one.most for one in stretches) / max(1, sum(one.used for one in stretches)) - 1
            )
        served = zip(began, ended, block.least, strict=False)
        least = tuple((number, least) for number, (start, end, least) in enumerate(served) if least < end - start)
        return protocol.Rounds(tuple(began), tuple(ended), tuple(block.dispatched), used, least)

    @property
    def _seed(self) -> int:
        return self.request.seed + self.request.entrant

    def serve_reported(self, seconds: float) -> None:
        self.facts.update({REPORTED: True, ONCE: True})
        self._serve_again(seconds)

    def _first_call(self, block: blocks.Block) -> tuple[float, float, int] | None:
        """Add the times of `first_call` to the facts; returns those of a call in turn, for `Prepared`."""
        compiling = self.request.compiling
        in_turn = self._meets(compiling)
        used = used_time(blocks.children())
        facts, least = first_call(block, self.check_result)
        used = used_time(blocks.children()) - used
        self.facts.update(facts)
        if in_turn:
            self._meet()  # a warm-up beside the first call of another entrant would take its processor
        if in_turn or compiling:
            tf_runtime.pin(self.request.cpus)
        return (facts[FIRST_CALL], least, used) if in_turn else None

    def _meets(self, compiling: tuple[int, ...] = ()) -> bool:
        """Go where the entrants meet, if they do, and wait for the others; or to these processors, if there are any."""
        meeting = self.request.meeting if self.clock is time.perf_counter_ns else ()
        tf_runtime.pin(compiling or meeting)
        if meeting:
            self._meet()
        return bool(meeting)

    def _meet(self) -> None:
        self.channel.send(protocol.Reached())
        self.channel.receive(protocol.Begin)

    def _note_peak(self) -> None:
        self._peak.mark()
        if (peak := self._peak.bytes) is not None:
            self.facts[PEAK_HOST_MEMORY] = peak

    def _serve_once(self, block: blocks.Block) -> None:
        """Call the step once, and serve rounds of this time."""
        isolation.keep_freed_memory()  # a step that runs once may contain a loop
        in_turn, used = self._meets(), used_time(blocks.children())
        result, seconds, least = call_once(block, block.clock)
        used = used_time(blocks.children()) - used
        if block.synchronise is None and self.clock is time.perf_counter_ns:
            self.late_facts |= blocks.WorkBeside(blocks.active_time).facts(1)
        self.check_result(result)
        self._note_peak()
        self._note_late_variables()
        self._serve_again(seconds, (seconds, least, used) if in_turn else None)

    def _serve_again(self, seconds: float, first: tuple[float, float, int] | None = None) -> None:
        """Serve rounds that all have this time. ``first`` has its times, if it was taken in turn."""
        block = blocks.TakenBlock(lambda: None, None, self.clock, taken=round(seconds * 1e9))
        self._serve_rounds(block, Prepared(seconds, self.facts, first_call=first))
