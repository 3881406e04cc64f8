"""Find results whose work was not done when the step returned, so that its time says nothing about the work."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import io
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, MappingView, Sized
from contextlib import suppress
from operator import attrgetter
from typing import Any

import numpy as np

from tfbench.worker import tf_runtime

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
_RUN = "pass the async function itself, or a function that runs it, such as lambda: asyncio.run(step())"
_CONSUME = "consume it in the step, such as by list(…), sum(…) or next(…)"
_WAITING = {("result",): "result", ("get", "ready"): "get"}
"""Methods of an object that stands for a later result -> the method that waits for it."""
_OWN_RESULT = "update_state"
"""A method of Keras' metrics, whose ``result`` waits for no one."""
_OF_TENSORFLOW = {
    **dict.fromkeys(
        ("data.Dataset", "distribute.DistributedDataset"),
        "iterate over it in the step, such as by for batch in dataset, or sum its batches by .reduce(…)",
    ),
    **dict.fromkeys(
        (f"distribute.experimental.coordinator.{name}" for name in ("RemoteValue", "PerWorkerValues")),
        "wait for it in the step, such as by coordinator.fetch(…)",
    ),
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
    data = dataclasses.is_dataclass(kind) or (tf_runtime.is_own(kind) and not callable(part))
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
        held = isinstance(part, Sized) or hasattr(kind, "close") or hasattr(kind, "dtype")
        if isinstance(part, Iterator) or not held:
            return _CONSUME
    if functions:
        return ""
    traces = getattr(kind, "experimental_get_tracing_count", None)  # of a tf.function
    if isinstance(part, _FUNCTIONS) or (callable(traces) and traces(part) == 0):
        return "call it in the step, or measure by bench.once how it is built"
    return ""
