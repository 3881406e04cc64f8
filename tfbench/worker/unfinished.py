"""Find results whose work was not done when the step returned, so that its time says nothing about the work."""

from __future__ import annotations

import functools
import inspect
import io
import types
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any

from tfbench.worker import tf_runtime

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
_RUN = "measure a function that runs it, such as lambda: asyncio.run(step())"
_WAITING = {("result", "done"): "result", ("get", "ready"): "get"}
"""Methods of an object that stands for a later result -> the method that waits for it."""


def unfinished(result: object, *, functions: bool = False) -> str:
    """Return what in a result is not computed yet, with the fix; ``""`` if all is, as far as types tell.

    Lists, tuples, sets and mappings are searched. A coroutine is closed, since Python would warn that it never ran.

    Args:
        functions: Whether functions are a result, as they are of a step that builds them.
    """
    found = [("", result)]
    seen: set[int] = set()
    while found:
        path, part = found.pop()
        if fix := _fix(part, functions):
            kind = type(part).__name__
            article = "an" if kind[0].lower() in "aeiou" else "a"
            what = f"the step's result{path} is" if path else "the step returned"
            return f"{what} {article} {kind}, whose work was not done: {fix}"
        if isinstance(part, Mapping):
            inside = [(f"[{key!r:.40}]", value) for key, value in part.items()]
        elif isinstance(part, (list, tuple, set, frozenset)):
            inside = [(f"[{place}]", value) for place, value in enumerate(part)]
        else:
            continue
        if id(part) not in seen:
            seen.add(id(part))
            found += reversed([(path + step, value) for step, value in inside])
    return ""


def _fix(part: object, functions: bool) -> str:
    """Return how the step gets this part computed, ``""`` if it is."""
    if inspect.iscoroutine(part):
        part.close()
        return _RUN
    if isinstance(part, Awaitable):
        return _RUN
    for methods, wait in _WAITING.items():
        if all(callable(getattr(type(part), method, None)) for method in methods):
            return f"wait for it in the step, such as by .{wait}()"
    if isinstance(part, AsyncIterator):
        return "consume it in a coroutine, and measure a function that runs that by asyncio.run"
    if isinstance(part, Iterator) and not isinstance(part, io.IOBase):
        return "consume it in the step, such as by list(…), sum(…) or next(…)"
    if (tf := tf_runtime.tensorflow()) is not None:
        if isinstance(part, _types(tf, "data.Dataset", "distribute.DistributedDataset")):
            return "iterate over it in the step, such as by for batch in dataset, or sum its batches by .reduce(…)"
        remote = _types(
            tf, "distribute.experimental.coordinator.RemoteValue", "distribute.experimental.coordinator.PerWorkerValues"
        )
        if isinstance(part, remote):
            return "wait for it in the step, such as by coordinator.fetch(…)"
    if functions:
        return ""
    traces = getattr(part, "experimental_get_tracing_count", None)  # of a tf.function
    if isinstance(part, _FUNCTIONS) or (callable(traces) and traces() == 0):
        return "call it in the step, or measure by bench.once how it is built"
    return ""


def _types(tf: Any, *names: str) -> tuple[type, ...]:
    """Return those of the public types that this version of TensorFlow has."""
    found = []
    for name in names:
        try:
            found.append(functools.reduce(getattr, name.split("."), tf))
        except AttributeError:
            continue
    return tuple(one for one in found if isinstance(one, type))
