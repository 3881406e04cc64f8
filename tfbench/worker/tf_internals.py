"""What probes and the first call ask of TensorFlow's own books; with `tf_runtime`, all that is known of its private corners.

Written for TensorFlow 2.12 to 2.21. What a version lacks, or a process without TensorFlow, is `MetricUnavailable`.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfbench.model import JSON
from tfbench.worker import tf_runtime
from tfbench.worker.probes import MetricUnavailable

Traced = Callable[[str, Any, float], None]
"""Told the function's name, its graph and the seconds that tracing it took."""


def required() -> Any:
    """TensorFlow.

    Raises:
        MetricUnavailable: The benchmarks do not use it.
    """
    tf = tf_runtime.tensorflow()
    if tf is None or not hasattr(tf, "function"):
        raise MetricUnavailable("the benchmark does not use TensorFlow")
    return tf


def seed() -> None:
    """The same random numbers in every process that calls this before anything draws some."""
    random.seed(1)
    np.random.seed(1)
    if (tf := tf_runtime.tensorflow()) is not None and hasattr(tf, "random"):
        tf.random.set_seed(1)
        # Keras draws from a generator of its own once it is loaded.
        if (keras := sys.modules.get("keras") or sys.modules.get("tf_keras")) is not None:
            with contextlib.suppress(AttributeError):
                keras.utils.set_random_seed(1)


# Graphs


def _context() -> Any:
    required()
    from tensorflow.python.eager import context

    return context.context()


def collect_graphs(on: bool) -> None:
    """Have every function that is built from now on leave its graphs, or stop that."""
    context = _context()
    if on:
        context.enable_graph_collection()
        context.export_run_metadata()
    else:
        context.disable_graph_collection()


def collected_graphs() -> Any:
    """RunMetadata with the graphs since the last time this was asked."""
    return _context().export_run_metadata()


def dtype_name(number: int) -> str:
    """``float32`` from the number that a graph has for it."""
    try:
        return str(required().dtypes.as_dtype(number).name)
    except TypeError:
        return f"type {number}"


def has_onednn() -> bool:
    """Whether this TensorFlow rewrites graphs for oneDNN, by its build, the processor and the settings."""
    try:
        from tensorflow.python.util import _pywrap_util_port

        return bool(_pywrap_util_port.IsMklEnabled())
    except (ImportError, AttributeError):
        return False


def defaults() -> JSON:
    """What this version decides for its user and another one may decide otherwise, in words; starts nothing."""
    tf = tf_runtime.tensorflow()
    if tf is None or not hasattr(tf, "function"):
        return {}
    found = {"oneDNN": "used" if has_onednn() else "not used"}
    with contextlib.suppress(ImportError, AttributeError, KeyError, TypeError, ValueError):
        keras = tf.keras
        found["backend of Keras"] = str(keras.backend.backend())
        compiled = inspect.signature(keras.Model.compile).parameters["jit_compile"].default
        found["XLA in Keras' fit"] = {"auto": "where it can", True: "always"}.get(compiled, "only if asked for")
    return found


# Traces


def on_trace(callback: Traced) -> Callable[[], None]:
    """Have ``callback`` called after each trace of a Python function that is no part of another one.

    Returns:
        What ends it.
    """
    if tf_runtime.tensorflow() is None:
        return lambda: None
    try:
        from tensorflow.python.framework import func_graph

        traced = func_graph.func_graph_from_py_func
    except (ImportError, AttributeError):
        return lambda: None
    depth = 0

    def tell(name: str, *args: Any, **kwargs: Any) -> Any:
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

    func_graph.func_graph_from_py_func = tell

    def stop() -> None:
        func_graph.func_graph_from_py_func = traced

    return stop


@contextlib.contextmanager
def tracing_timed() -> Iterator[list[float]]:
    """Seconds of each trace inside."""
    seconds: list[float] = []
    stop = on_trace(lambda name, graph, took: seconds.append(took))
    try:
        yield seconds
    finally:
        stop()


def flops(graph: Any) -> int:
    """Of a graph, by the statistics that TensorFlow has of its ops."""
    profiler = required().compat.v1.profiler
    builder = profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    with contextlib.redirect_stdout(io.StringIO()):
        return int(profiler.profile(graph, cmd="op", options=options).total_float_ops)


# Tensors


def eager_tensor_type() -> type:
    """What tensors with a value are instances of."""
    tensor: type = required().Tensor
    return tensor


def tensor_bytes(tensor: Any) -> int:
    """Of its numbers; 0 for a symbolic tensor, a string and what has no fixed shape."""
    try:
        return int(tensor.shape.num_elements()) * int(tensor.dtype.size) if hasattr(tensor, "numpy") else 0
    except (TypeError, ValueError):
        return 0


def flattened(result: object) -> list[np.ndarray[Any, Any]]:
    """Every array of numbers in a result, however nested; variables and tensors by their values."""
    tf = tf_runtime.tensorflow()
    nested = hasattr(tf, "nest")
    parts = tf.nest.flatten(result, expand_composites=True) if tf is not None and nested else _leaves(result)
    arrays = []
    for part in parts:
        value = part.numpy() if hasattr(part, "numpy") else part
        array = np.asarray(value)
        # bfloat16 and float8 are extension types, to numpy of kind V.
        if array.dtype.kind in "fiubc" or (array.dtype.kind == "V" and array.dtype.names is None):
            arrays.append(array)
    return arrays


def _leaves(result: object) -> Iterator[object]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from _leaves(part)
    else:
        yield result


# Devices


def _gpu_session() -> list[str]:
    tf = tf_runtime.tensorflow()
    if tf is None or not hasattr(tf, "config"):
        return []
    return [device.name.replace("/physical_device:", "") for device in tf.config.list_physical_devices("GPU")]


def reset_device_memory() -> None:
    """Let the peaks of all accelerators begin anew."""
    for name in _gpu_session():
        required().config.experimental.reset_memory_stats(name)


def device_memory(which: str) -> dict[str, int]:
    """Accelerator -> bytes that TensorFlow has allocated on it, ``current`` or ``peak``."""
    return {name: int(required().config.experimental.get_memory_info(name)[which]) for name in _gpu_session()}
