"""TensorFlow's runtime, as the worker uses it: import, threads, devices, and whether the process can be forked."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tfbench.errors import BenchmarkError
from tfbench.worker.containment import die_with_parent

_MODULE = "tensorflow"


def tensorflow() -> Any:
    """Return the TensorFlow that the benchmarks imported, ``None`` if they imported none."""
    tf = sys.modules.get(_MODULE)
    return tf if hasattr(tf, "function") else None  # an empty folder of this name is no TensorFlow


class ImportTimer(MetaPathFinder):
    """Times the first import of TensorFlow. It must come before all other finders."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        """``None`` until the import is done."""

    @classmethod
    def installed(cls) -> ImportTimer:
        """Return a timer that waits for the import."""
        timer = cls()
        sys.meta_path.insert(0, timer)
        return timer

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            vars(spec.loader)["exec_module"] = partial(self._timed, spec.loader.exec_module)
        return spec

    def _timed(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        began = time.perf_counter()
        execute(module)
        self.seconds = time.perf_counter() - began


def import_all() -> None:
    """Import Keras, which TensorFlow loads late, once for all launches. It runs no op."""
    keras()


def keras() -> Any:
    """Return Keras as TensorFlow loads it, ``None`` if it cannot, since TensorFlow without Keras can be measured as well.

    Where ``TF_USE_LEGACY_KERAS`` asks for a tf_keras that is not installed, TensorFlow ends in a RecursionError.
    """
    with contextlib.suppress(ImportError, AttributeError, RecursionError):
        found = tensorflow().keras
        found.layers.Dense  # noqa: B018 - the access imports it
        return found
    return None


def has_run_an_op() -> bool:
    """Return whether the eager runtime has started, after which this process cannot be forked safely.

    It reads ``tensorflow.python.eager.context`` as it is in TensorFlow 2.10 to 2.21.
    """
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    return bool(getattr(context, "_initialized", False))


def has_opened_gpu() -> bool:
    """Return whether CUDA was initialised in this process, after which its children cannot use it.

    An open file of the driver shows it. A question to CUDA would initialise it.
    """
    # realpath returns a file that was closed in the meantime as it is. Without Linux there is no CUDA either.
    return any(os.path.realpath(file).startswith("/dev/nvidia") for file in Path("/proc/self/fd").glob("*"))


def set_threads(threads: int) -> None:
    """Set the intra- and inter-op threads of this process, unless a variable does. Call it before the first op."""
    if (tf := tensorflow()) is not None:
        if "TF_NUM_INTRAOP_THREADS" not in os.environ:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        if "TF_NUM_INTEROP_THREADS" not in os.environ:
            tf.config.threading.set_inter_op_parallelism_threads(threads)


def synchroniser() -> Callable[[], object] | None:
    """Return a function that waits for the devices, ``None`` where every call returns finished work.

    On a CPU an op returns when it is done, see `check_synchronous`. Waiting all the same costs 12 µs per block.
    """
    tf = tensorflow()
    if tf is None or not tf.config.list_physical_devices("GPU"):
        return None
    return tf.test.experimental.sync_devices  # type: ignore[no-any-return]


def devices() -> dict[str, tuple[str, ...]]:
    """Return the names of TensorFlow's devices by type. It initialises CUDA, so only processes of launches call it."""
    tf = tensorflow()
    found: dict[str, tuple[str, ...]] = {}
    for device in tf.config.list_physical_devices() if tf is not None else ():
        details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
        name = str(details.get("device_name", device.name))
        found[device.device_type] = (*found.get(device.device_type, ()), name)
    return found


def run_and_exit(parent: int, task: Callable[[], object]) -> NoReturn:
    """Do the task of a forked process and exit; a traceback goes to standard error.

    The process is killed when its parent ends, so that none is left over.
    """
    code = 1
    try:
        die_with_parent(parent)
        task()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def replace_process(argument: str, descriptor: int) -> NoReturn:
    """Start this worker anew in the same process.

    Args:
        argument: The message that it starts with.
        descriptor: Its socket, which stays open.
    """
    os.set_inheritable(descriptor, True)
    os.execv(sys.executable, [sys.executable, "-m", "tfbench.worker", argument])


def pin(cpus: Collection[int]) -> None:
    """Restrict this process with its threads and children to these processors, if the system can."""
    if not cpus or not hasattr(os, "sched_setaffinity"):
        return
    os.sched_setaffinity(0, cpus)
    done: set[int] = set()
    # A thread that is started meanwhile inherits the processors of one that was there before.
    while there := set(_tasks(os.getpid())) - done:
        done |= there
        for task in there:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(task, cpus)


def _tasks(pid: int) -> Iterator[int]:
    """Yield the ids of the threads of a process and of its descendants."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        yield int(task.name)
        with contextlib.suppress(OSError):  # it has ended, or the kernel does not list children
            for child in (task / "children").read_text().split():
                yield from _tasks(int(child))


def check_pinned(cpus: Collection[int]) -> None:
    """Check that this process is still restricted to the processors that `pin` gave it.

    Raises:
        BenchmarkError: The benchmark, or someone else, moved it.
    """
    if cpus and hasattr(os, "sched_getaffinity") and (now := os.sched_getaffinity(0)) != set(cpus):
        raise BenchmarkError(f"the process was moved from the processors {sorted(cpus)} to {sorted(now)}")


def check_synchronous() -> None:
    """Check that ops of this thread return when they are done, at least on a CPU.

    Raises:
        BenchmarkError: The benchmark lets them return before.
    """
    if (tf := tensorflow()) is not None and not tf.config.experimental.get_synchronous_execution():
        raise BenchmarkError(
            "ops return before they are done, so no call takes the time of its work: leave out "
            "set_synchronous_execution(False), or let the step run them in tf.experimental.async_scope(), which waits"
        )
