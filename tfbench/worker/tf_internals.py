"""TensorFlow's internals, as probes and the first call read them: graphs, traces, tensors, memory of devices.

Written for TensorFlow 2.12 to 2.21. `MetricUnavailable` reports a version that lacks one, or a process without TensorFlow.
No other module than this one and `tf_runtime` uses private parts of TensorFlow.
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
"""Called with the name of a function, its graph, and the seconds of its tracing."""


def required() -> Any:
    """Return TensorFlow.

    Raises:
        MetricUnavailable: The benchmarks do not use it.
    """
    tf = tf_runtime.tensorflow()
    if tf is None or not hasattr(tf, "function"):
        raise MetricUnavailable("the benchmark does not use TensorFlow")
    return tf


def seed() -> None:
    """Seed all random generators, so that every process draws the same numbers."""
    random.seed(1)
    np.random.seed(1)
    if (tf := tf_runtime.tensorflow()) is not None and hasattr(tf, "random"):
        tf.random.set_seed(1)
        # Once loaded, Keras has its own generator.
        if (keras := sys.modules.get("keras") or sys.modules.get("tf_keras")) is not None:
            with contextlib.suppress(AttributeError):
                keras.utils.set_random_seed(1)


# Graphs


def _context() -> Any:
    required()
    from tensorflow.python.eager import context

    return context.context()


def collect_graphs(on: bool) -> None:
    """Start or stop the collection of the graphs of all functions that are built."""
    context = _context()
    if on:
        context.enable_graph_collection()
        context.export_run_metadata()
    else:
        context.disable_graph_collection()


def collected_graphs() -> Any:
    """Return the RunMetadata with the graphs since the last call."""
    return _context().export_run_metadata()


def dtype_name(number: int) -> str:
    """Return the name of a type, such as ``float32``, from its number in a graph."""
    try:
        return str(required().dtypes.as_dtype(number).name)
    except TypeError:
        return f"type {number}"


def has_onednn() -> bool:
    """Return whether TensorFlow rewrites graphs for oneDNN, which depends on build, processor and settings."""
    try:
        from tensorflow.python.util import _pywrap_util_port

        return bool(_pywrap_util_port.IsMklEnabled())
    except (ImportError, AttributeError):
        return False


def defaults() -> JSON:
    """Return defaults that differ between versions of TensorFlow, in words. It does not start the runtime."""
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
    """Call ``callback`` after each trace of a Python function, without traces nested in another trace.

    Returns:
        A function that ends this.
    """
    if tf_runtime.tensorflow() is None:
        return lambda: None
    try:
        from tensorflow.python.framework import func_graph

        traced = func_graph.func_graph_from_py_func
    except (ImportError, AttributeError):
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

    def stop() -> None:
        func_graph.func_graph_from_py_func = traced

    return stop


@contextlib.contextmanager
def tracing_timed() -> Iterator[list[float]]:
    """Collect the seconds of each trace inside the context."""
    seconds: list[float] = []
    stop = on_trace(lambda name, graph, took: seconds.append(took))
    try:
        yield seconds
    finally:
        stop()


def flops(graph: Any) -> int:
    """Return the floating-point operations of a graph, from TensorFlow's statistics of its ops."""
    profiler = required().compat.v1.profiler
    builder = profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    with contextlib.redirect_stdout(io.StringIO()):
        return int(profiler.profile(graph, cmd="op", options=options).total_float_ops)


# Tensors


def eager_tensor_type() -> type:
    """Return the type of tensors that have a value."""
    tensor: type = required().Tensor
    return tensor


def tensor_bytes(tensor: Any) -> int:
    """Return the bytes of a tensor's numbers; 0 for a symbolic tensor, a string, and a tensor without fixed shape."""
    try:
        return int(tensor.shape.num_elements()) * int(tensor.dtype.size) if hasattr(tensor, "numpy") else 0
    except (TypeError, ValueError):
        return 0


def flattened(result: object) -> list[np.ndarray[Any, Any]]:
    """Return every array of numbers in a nested result. Variables and tensors count with their values."""
    tf = tf_runtime.tensorflow()
    nested = hasattr(tf, "nest")
    parts = tf.nest.flatten(result, expand_composites=True) if tf is not None and nested else _leaves(result)
    arrays = []
    for part in parts:
        value = part.numpy() if hasattr(part, "numpy") else part
        array = np.asarray(value)
        # For numpy, bfloat16 and float8 are extension types of kind V.
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


def _gpus() -> list[str]:
    tf = tf_runtime.tensorflow()
    if tf is None or not hasattr(tf, "config"):
        return []
    return [device.name.replace("/physical_device:", "") for device in tf.config.list_physical_devices("GPU")]


def reset_device_memory() -> None:
    """Reset the memory peaks of all accelerators."""
    for name in _gpus():
        required().config.experimental.reset_memory_stats(name)


def device_memory(which: str) -> dict[str, int]:
    """Return accelerator -> bytes allocated by TensorFlow; ``which`` is ``current`` or ``peak``."""
    return {name: int(required().config.experimental.get_memory_info(name)[which]) for name in _gpus()}
