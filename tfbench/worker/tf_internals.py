"""TensorFlow's internals, as probes and the first call read them: graphs, traces, tensors, memory of devices.

Written for TensorFlow 2.10 to 2.21. `MetricUnavailable` reports a version that lacks one, or a process without TensorFlow.
No other module than this one and `tf_runtime` uses private parts of TensorFlow.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tfbench.model import JSON
from tfbench.worker import tf_runtime
from tfbench.worker.probes import MetricUnavailable

_LONGEST = 120
"""Characters of the place of an output in a result."""
Traced = Callable[[str, Any, float], None]
"""Called with the name of a function, its graph, and the seconds of its tracing."""


def required() -> Any:
    """Return TensorFlow.

    Raises:
        MetricUnavailable: The benchmarks do not use it.
    """
    if (tf := tf_runtime.tensorflow()) is None:
        raise MetricUnavailable("the benchmark does not use TensorFlow")
    return tf


def seed(number: int) -> None:
    """Seed all random generators, so that every process with this number draws the same ones."""
    random.seed(number)
    np.random.seed(number)
    if (tf := tf_runtime.tensorflow()) is not None:
        tf.random.set_seed(number)
        # Once loaded, Keras has its own generator.
        if (keras := sys.modules.get("keras") or sys.modules.get("tf_keras")) is not None:
            with contextlib.suppress(AttributeError):
                keras.utils.set_random_seed(number)


def collect_graphs(on: bool) -> Any:
    """Start or stop the collection of the graphs of all functions that are built.

    Returns:
        The RunMetadata with the graphs that were collected before.
    """
    required()
    from tensorflow.python.eager import context

    eager = context.context()
    if on:
        eager.enable_graph_collection()
    collected = eager.export_run_metadata()
    if not on:
        eager.disable_graph_collection()
    return collected


def dtype_name(number: int) -> str:
    """Return the name of a type, such as ``float32``, from its number in a graph."""
    with contextlib.suppress(TypeError):
        return str(required().dtypes.as_dtype(number).name)
    return f"type {number}"


def has_onednn() -> bool:
    """Return whether TensorFlow rewrites graphs for oneDNN, which depends on build, processor and settings."""
    with contextlib.suppress(ImportError, AttributeError):
        from tensorflow.python.util import _pywrap_util_port

        return bool(_pywrap_util_port.IsMklEnabled())
    return False


def defaults() -> JSON:
    """Return defaults that differ between versions of TensorFlow, in words. It does not start the runtime."""
    if tf_runtime.tensorflow() is None:
        return {}
    found = {"oneDNN": "used" if has_onednn() else "not used"}
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
        keras = tf_runtime.keras()
        found["backend of Keras"] = str(keras.backend.backend())
        compiled = inspect.signature(keras.Model.compile).parameters["jit_compile"].default
        found["XLA in Keras' fit"] = {"auto": "where it can", True: "always"}.get(compiled, "only if asked for")
    return found


def on_trace(callback: Traced) -> Callable[[], None]:
    """Call ``callback`` after each trace of a Python function, without traces nested in another trace.

    Returns:
        A function that ends this.
    """
    try:
        required()
        from tensorflow.python.framework import func_graph

        traced = func_graph.func_graph_from_py_func
    except (MetricUnavailable, ImportError, AttributeError):
        return lambda: None
    depth = 0

    def timed(name: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        depth += 1
        began = time.perf_counter()
        try:
            graph = traced(name, *args, **kwargs)
        finally:
            depth -= 1
        if depth == 0:
            callback(str(name), graph, time.perf_counter() - began)
        return graph

    func_graph.func_graph_from_py_func = timed
    return partial(setattr, func_graph, "func_graph_from_py_func", traced)


def flops(graph: Any) -> int:
    """Return the floating-point operations of a graph, from TensorFlow's statistics of its ops."""
    profiler = required().compat.v1.profiler
    builder = profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    with contextlib.redirect_stdout(io.StringIO()):
        return int(profiler.profile(graph, cmd="op", options=options).total_float_ops)


def tensor_bytes(tensor: Any) -> int:
    """Return the bytes of a tensor's numbers; 0 for a symbolic tensor, a string, and a tensor without fixed shape."""
    try:
        return int(tensor.shape.num_elements()) * int(tensor.dtype.size) if hasattr(tensor, "numpy") else 0
    except (TypeError, ValueError):
        return 0


def flattened(result: object) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Return every array of numbers in a nested result with its place, such as ``['loss']`` or ``[1]``.

    Variables and tensors count with their values. The order is that of the keys of dicts, and not of their insertion.
    """
    found = []
    for name, part in _leaves("", result):
        array = np.asarray(part.numpy() if hasattr(part, "numpy") else part)
        # For numpy, bfloat16 and float8 are extension types of kind V.
        if array.dtype.kind in "fiubc" or (array.dtype.kind == "V" and array.dtype.names is None):
            found.append((name[:_LONGEST], array))
    return found


def _leaves(name: str, result: object) -> Iterator[tuple[str, Any]]:
    if isinstance(result, Mapping):
        for key, part in sorted(result.items(), key=lambda item: str(item[0])):
            yield from _leaves(f"{name}[{key!r:.40}]", part)
    elif isinstance(result, (list, tuple)):
        for place, part in enumerate(result):
            yield from _leaves(f"{name}[{place}]", part)
    else:
        tf = tf_runtime.tensorflow()
        parts = [result] if tf is None else tf.nest.flatten(result, expand_composites=True)
        for place, part in enumerate(parts):
            yield (name if len(parts) == 1 else f"{name}.{place}"), part


def device_peaks(reset: bool = False) -> dict[str, int]:
    """Return accelerator -> most bytes that TensorFlow had allocated since the last reset, and reset them if asked."""
    found: dict[str, int] = {}
    if (tf := tf_runtime.tensorflow()) is not None:
        memory = tf.config.experimental
        for device in tf.config.list_physical_devices("GPU"):
            name = device.name.replace("/physical_device:", "")
            found[name] = int(memory.get_memory_info(name)["peak"])
            if reset:
                memory.reset_memory_stats(name)
    return found
