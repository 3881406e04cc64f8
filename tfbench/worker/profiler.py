"""Profile calls.

A session and a context profile the code between two lines, and the callback profiles batches of Keras' ``fit``.
Sampling profiles a process over a port, also from another process.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from tfbench.errors import BenchmarkError
from tfbench.protocol import TRACED_WORKERS
from tfbench.worker import tf_runtime

# Find functions that Python calls for every line or call, such as those of coverage, profilers and debuggers


_TOOLS = range(6)
"""Identifiers of tools in `sys.monitoring`."""


def tracer() -> str:
    """Name what traces this thread, ``""`` if nothing does."""
    if os.environ.get(TRACED_WORKERS):
        return ""
    for kind, function in (("trace", sys.gettrace()), ("profile", sys.getprofile())):
        if function is not None:
            return f"a {kind} function of {type(function).__module__}.{type(function).__qualname__}"
    if sys.version_info >= (3, 12):
        for tool in _TOOLS:
            if (name := sys.monitoring.get_tool(tool)) is not None and sys.monitoring.get_events(tool):
                return f"the monitoring tool {name}"
    return ""


# The four methods of TensorFlow's profiler, with the same levels for each; see its guide


Levels = Mapping[str, int]
"""Levels of detail for ``host``, ``device`` and ``python``, see ``tf.profiler.experimental.ProfilerOptions``."""
LEVELS: Levels = {"host": 2, "device": 1, "python": 0}
"""Ops and the larger phases of the runtime. To record every Python call would change the times."""


def _tensorflow() -> Any:
    """Return TensorFlow, or raise a BenchmarkError if the benchmarks do not import it."""
    if (tf := tf_runtime.tensorflow()) is None:
        raise BenchmarkError("the benchmark file does not import TensorFlow, whose profiler it needs")
    return tf


def tf_profiler() -> Any:
    """Return ``tf.profiler.experimental``, like `_tensorflow`."""
    return _tensorflow().profiler.experimental


def options(levels: Levels) -> Any:
    """Return TensorFlow's options for these levels. Missing levels are those of `LEVELS`."""
    given = {f"{tracer}_tracer_level": level for tracer, level in {**LEVELS, **levels}.items()}
    return tf_profiler().ProfilerOptions(**given)


@contextmanager
def by_session(folder: str, levels: Levels = LEVELS) -> Iterator[None]:
    """Profile with ``tf.profiler.experimental.start`` and ``stop``."""
    profiler = tf_profiler()
    profiler.start(folder, options(levels))
    try:
        yield
    finally:
        profiler.stop()


def by_context(folder: str, levels: Levels = LEVELS) -> AbstractContextManager[Any]:
    """Profile with ``tf.profiler.experimental.Profile``."""
    return tf_profiler().Profile(folder, options(levels))  # type: ignore[no-any-return]


def by_callback(folder: str, batches: tuple[int, int]) -> Any:
    """Return a callback for Keras' ``fit`` that profiles from the first to the last of these batches, counted from 1.

    Keras chooses the levels. A step lasts from the end of one batch to the end of the next, so it includes the fetch of
    its input. Keras 2 marks such steps itself.

    Raises:
        BenchmarkError: TensorBoard, which Keras needs for this, is not installed.
    """
    tf = _tensorflow()
    if importlib.util.find_spec("tensorboard") is None:
        raise BenchmarkError("Keras' TensorBoard callback needs TensorBoard: pip install 'pytest-tfbench[profile]'")
    base = tf.keras.callbacks.TensorBoard
    return (_marking(base) if hasattr(tf.keras, "version") else base)(folder, profile_batch=batches, write_graph=False)


def _marking(base: Any) -> Any:
    """Return a subclass of Keras 3's callback that marks steps."""

    class Marking(base):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self._number = 0
            self._step = ExitStack()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_begin(epoch, logs)
            self._next()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)  # ends Keras' own trace of the batch, which is inside this step
            self._next()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._step.close()
            super().on_epoch_end(epoch, logs)

        def _next(self) -> None:
            self._step.close()
            self._step.enter_context(tf_profiler().Trace("train", step_num=self._number, _r=1))
            self._number += 1

    return Marking


def serve() -> str:
    """Make this process open to sampling on a free port; return its address."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    tf_profiler().server.start(port)
    return f"grpc://localhost:{port}"


def sample(addresses: Sequence[str], folder: str, seconds: float, levels: Levels = LEVELS) -> None:
    """Profile processes that called `serve`, all at the same time.

    Raises:
        BenchmarkError: No process answers, or none has any events.
    """
    tf, profiler = _tensorflow(), tf_profiler()
    try:
        profiler.client.trace(",".join(addresses), folder, round(seconds * 1000), options=options(levels))
    except tf.errors.OpError as error:
        raise BenchmarkError(f"{', '.join(addresses)} could not be sampled: {error.message}") from None


@contextmanager
def by_sampling(folder: str, levels: Levels = LEVELS, seconds: float = 1.0) -> Iterator[Callable[[], bool]]:
    """Sample this process; yield a function that says whether the sampling goes on. Run steps while it does."""
    address = serve()
    with ThreadPoolExecutor(1) as thread:
        sampling = thread.submit(sample, [address], folder, seconds, levels)
        yield lambda: not sampling.done()
    sampling.result()


METHODS: Mapping[str, Callable[[str, Levels], AbstractContextManager[Any]]] = {
    "session": by_session,
    "context": by_context,
    "sampling": by_sampling,
}
"""The methods for profiling a launch. Keras' callback is none of them, because a launch has steps and no batches."""
