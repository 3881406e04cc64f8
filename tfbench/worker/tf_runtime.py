"""What a worker asks of TensorFlow.

Written for TensorFlow 2.10 to 2.21. `MetricUnavailable` reports a version that lacks one, or a process without TensorFlow.
No other module uses private parts of TensorFlow.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import enum
import hashlib
import inspect
import io
import math
import numbers
import os
import random
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tfbench.errors import BenchmarkError
from tfbench.facts import library_variables
from tfbench.imports import is_installed
from tfbench.model import JSON
from tfbench.worker import time
from tfbench.worker.isolation import die_with_parent

# TensorFlow's internals, as probes and the first call read them: graphs, traces, tensors, memory of devices


_LONGEST = 120
"""Characters of the place of an output in a result."""
ADDRESS = re.compile(r"0x[0-9a-f]+")
"""An address in memory, which differs from process to process."""
Traced = Callable[[str, Any, float, object], None]
"""Called with the name of a function, its graph, and the seconds of its tracing."""


class MetricUnavailable(Exception):
    """A probe cannot read its evidence. The message states the reason."""


def required() -> Any:
    """Return TensorFlow. Raises `MetricUnavailable` if the benchmarks do not use it."""
    if (tf := tensorflow()) is None:
        raise MetricUnavailable("the benchmark does not use TensorFlow")
    return tf


def seed(number: int) -> Callable[[], None]:
    """Seed all random generators, so that every process with this number draws the same ones.

    After `tf.random.set_seed`, each eager random op makes a kernel of its own: that takes 0.3 ms and 35 KiB more per call.
    So nothing but results may be read until the returned function has been called, which ends this.
    """
    random.seed(number)
    np.random.seed(number)
    if (tf := tensorflow()) is None:
        return unseed
    from tensorflow.python.eager import context

    own = context.global_seed()
    tf.random.set_seed(number)
    # Once loaded, Keras has its own generator.
    if (keras := sys.modules.get("keras") or sys.modules.get("tf_keras")) is not None:
        with contextlib.suppress(AttributeError):
            keras.utils.set_random_seed(number)

    def end() -> None:
        unseed()
        if context.global_seed() == number:  # unless the benchmark has set its own
            tf.random.set_seed(own)  # it also drops the kernels

    return end


def unseed() -> None:
    """Have Python's and numpy's generators draw numbers of this process alone."""
    random.seed()
    np.random.seed()


class Seeds:
    """Which generators the modules of a side seed, so that launches draw what processes of their own would.

    Python's generator starts anew in a forked process, even if a module has seeded it. numpy's is inherited, even if none has.
    """

    def __init__(self) -> None:
        """Note from now on, until `imported`, whether a module calls a function that sets the state of a generator."""
        self.seeded: set[str] = set()
        self._state: Any = None
        self._setters = [(module, name, getattr(module, name)) for module, name in _SETTERS]
        for module, name, setter in self._setters:
            setattr(module, name, partial(self._set, module.__name__, setter))

    def _set(self, module: str, setter: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        self.seeded.add(module)
        return setter(*arguments, **keywords)

    def imported(self) -> None:
        """Keep the state of Python's generator, which a forked process would lose."""
        for module, name, setter in self._setters:
            setattr(module, name, setter)
        self._state = random.getstate()

    def fork(self) -> None:
        """Go on with the numbers of a seed in a forked process, and draw others without one."""
        if random.__name__ in self.seeded:
            random.setstate(self._state)
        if np.random.__name__ not in self.seeded:
            np.random.seed()


_SETTERS = [
    *((random, name) for name in ("seed", "setstate")),
    *((np.random, name) for name in ("seed", "set_state", "set_bit_generator") if hasattr(np.random, name)),
]
"""The functions that set the states of Python's and numpy's generators."""


def collect_graphs(on: bool) -> Any:
    """Start or stop the collection of the graphs of all functions that are built.

    Returns the RunMetadata with the graphs that were collected before.
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
    """Return whether TensorFlow rewrites graphs for oneDNN, which depends on build, processor and settings.

    TensorFlow 2.10 denies it even if it does.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from tensorflow.python.util import _pywrap_util_port

        return bool(_pywrap_util_port.IsMklEnabled())
    return False


def defaults() -> JSON:
    """Return defaults that differ between versions of TensorFlow, in words. It does not start the runtime."""
    if (tf := tensorflow()) is None:
        return {}
    words: JSON = {}
    if not tf.__version__.startswith("2.10."):  # it denies oneDNN
        words["oneDNN"] = "used" if has_onednn() else "not used"
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
        module = keras()
        words["backend of Keras"] = str(module.backend.backend())
        compiled = inspect.signature(module.Model.compile).parameters["jit_compile"].default
        words["XLA in Keras' fit"] = {"auto": "where it can", True: "always"}.get(compiled, "only if asked for")
    return words


@contextlib.contextmanager
def on_trace(callback: Traced) -> Iterator[None]:
    """Call ``callback`` after each trace of a Python function in the context, without traces nested in another trace."""
    func_graph: Any = sys.modules.get("tensorflow.python.framework.func_graph")
    if (traced := getattr(func_graph, "func_graph_from_py_func", None)) is None:
        yield
        return
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
            callback(str(name), graph, time.perf_counter() - began, args[0] if args else None)
        return graph

    func_graph.func_graph_from_py_func = timed
    try:
        yield
    finally:
        func_graph.func_graph_from_py_func = traced


_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_PIPELINE = ("Dataset", "Iterator")


def flops(graph: Any) -> int:
    """Return the floating-point operations of a graph and of the functions that it calls, from TensorFlow's statistics of ops.

    Input pipelines count as 0, and so do branches without operations, such as assertions.
    Raises `MetricUnavailable` if the graph has a loop or another branch. How often those run is not in it.
    """
    total = _own_flops(graph)
    for op in graph.get_operations():
        functions = (function for value in op.node_def.attr.values() for function in (value.func, *value.list.func))
        called = [function.name for function in functions if function.name]
        counts = [flops(graph._get_function(name).graph) for name in called if op.type in (*_CALLS, *_BRANCHES)]
        if op.type in _CALLS:
            total += sum(counts)
        elif op.type in _BRANCHES and not any(counts):
            continue
        elif (called or op.type == "Enter") and not any(part in op.type for part in _PIPELINE):
            raise MetricUnavailable(f"the step has a loop or a branch ({op.type}), which TensorFlow does not count")
    return total


def _own_flops(graph: Any) -> int:
    profiler = required().compat.v1.profiler
    builder = profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    with contextlib.redirect_stdout(io.StringIO()):
        return int(profiler.profile(graph, cmd="op", options=options).total_float_ops)


def tensor_bytes(tensor: Any) -> int:
    """Return the bytes of a tensor's numbers; 0 for a symbolic tensor, a string, and a tensor without fixed shape."""
    with contextlib.suppress(TypeError, ValueError):
        return int(tensor.shape.num_elements()) * int(tensor.dtype.size) if hasattr(tensor, "numpy") else 0
    return 0


_L2 = 38
"""CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE."""


def cache_bytes(on_gpu: bool, processors: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return the size of the largest L2 of TensorFlow's GPUs, or of the last cache of this process's processors.

    It is 0 where the system does not report it.
    """
    if not on_gpu:
        cpu = min(os.sched_getaffinity(0))
        files = processors.glob(f"cpu{cpu}/cache/index*/size")
        return max((int(file.read_text().strip().removesuffix("K")) << 10 for file in files), default=0)
    size, device = ctypes.c_int(), ctypes.c_int()
    sizes = [0]
    with contextlib.suppress(OSError):  # no driver of NVIDIA
        cuda = ctypes.CDLL("libcuda.so.1")  # TensorFlow has initialised it
        for ordinal in range(len(gpus())):
            if cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0:
                sizes.append(0 if cuda.cuDeviceGetAttribute(ctypes.byref(size), _L2, device) else size.value)
    return max(sizes)


def copied(part: Any) -> Any:
    """Return a copy of a tensor, on its device, or of an array."""
    if isinstance(part, np.ndarray):
        return part.copy()
    tf = required()
    with tf.device(part.device):
        return tf.constant(part.numpy())  # an identity would share its buffer


class Part(NamedTuple):
    """An array of numbers in the result of a step."""

    name: str
    """Its place, such as ``['loss']`` or ``[1]``."""
    inside: str
    """Types of the containers that it is in, such as ``dict list``."""
    array: np.ndarray[Any, Any]


def flattened(result: object, most: int = sys.maxsize) -> list[Part]:
    """Return every array of numbers in a nested result; of one with more numbers than ``most``, every n-th row.

    Rows, so that variants whose results have other shapes still differ in them, and those of another precision do not. They
    are taken on the device of a tensor.

    Variables and tensors count with their values, and tensors and arrays of texts with numbers that stand for the texts.
    So do whole numbers of more than 64 bits. The order is that of the keys of dicts, and not of their insertion. Fields of
    data classes are searched, the numbers of Keras's `History`, and the public attributes of objects of the project's own
    classes, unless they can be called, such as a model. A part without numbers is left out, such as a tensor of variants, a
    symbolic tensor, a table, and an object of a library's class.
    """
    arrays = []
    for name, inside, part in _leaves("", "", result):
        try:
            step = -(-math.prod(getattr(part, "shape", ())) // most)
            array = _numbers(part[::step] if step > 1 else part)
        except Exception:  # its value cannot be read
            continue
        if array is not None:
            arrays.append(Part(ADDRESS.sub("…", name)[:_LONGEST], inside[:_LONGEST].strip(), array))
    return arrays


def _numbers(part: Any) -> np.ndarray[Any, Any] | None:
    """Return a part of a result as an array of numbers, ``None`` if it has none."""
    tensor = hasattr(part, "numpy")
    array = np.asarray(part.numpy()) if tensor else np.array(part)  # the step may write into its array again
    # For numpy, bfloat16 and float8 are extension types of kind V.
    if array.dtype.kind in "fiubc" or (array.dtype.kind == "V" and array.dtype.names is None):
        return array
    if array.dtype.kind in "mM":  # times
        return array.astype(np.int64)
    # A text that is no tensor may be a path, which differs from launch to launch.
    texts = (bytes, str) if tensor or isinstance(part, np.ndarray) else ()
    if all(isinstance(one, (numbers.Integral, *texts)) for one in array.flat):
        return np.reshape(np.array([_number_of(one) for one in array.flat], np.int64), array.shape)
    return array.astype(np.float64) if all(isinstance(number, numbers.Number) for number in array.flat) else None


def _number_of(one: object) -> int:
    """Return a number of 48 bits that stands for a text or a large number."""
    content = one if isinstance(one, bytes) else str(one).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")


def _leaves(name: str, inside: str, result: object, around: tuple[object, ...] = ()) -> Iterator[tuple[str, str, Any]]:
    if any(result is outer for outer in around):  # an object that contains itself
        return
    if (found := contents(result)) is None and (fields := _fields(result)) is not None:
        kind = "dataclass" if dataclasses.is_dataclass(result) else type(result).__name__
        found = kind, [(f".{field}", part) for field, part in fields.items()]
    if found is not None:
        for place, part in found[1]:
            yield from _leaves(name + place, f"{inside} {found[0]}", part, (*around, result))
        return
    tf = tensorflow()
    parts = [result] if tf is None else tf.nest.flatten(result, expand_composites=True)
    for number, part in enumerate(parts):
        yield (name if len(parts) == 1 else f"{name}.{number}"), inside, part


def contents(part: object) -> tuple[str, list[tuple[str, Any]]] | None:
    """Return the kind of a container and its parts with their places, such as ``['loss']`` and ``[1]``; ``None`` for others."""
    if isinstance(part, Mapping):
        held = dict(part) if isinstance(part, dict) else part  # a class of its own may compute what it returns
        return "dict", [(f"[{key!r:.40}]", held[key]) for key in sorted(held, key=str)]
    if isinstance(part, (set, frozenset)):
        return "set", [(f"[{place}]", one) for place, one in enumerate(sorted(part, key=repr))]
    if isinstance(part, (list, tuple)):
        # Wrappers of TensorFlow for lists and tuples are the same for the user.
        kind = "list" if isinstance(part, list) else type(part).__name__ if hasattr(part, "_fields") else "tuple"
        return kind, [(f"[{place}]", one) for place, one in enumerate(part)]
    return None


_HOLD_NUMBERS = (numbers.Number, np.ndarray, np.generic, Mapping, list, tuple, set, frozenset, SimpleNamespace)
"""Types of attributes whose numbers count. Others may be expensive to read, such as a table that loads its rows."""


def _attributes(result: object) -> Mapping[str, object] | None:
    """Return the public attributes of an object of the project's own class; ``None`` for other objects."""
    if not hasattr(result, "__dict__") or callable(result) or not is_own(type(result)):
        return None

    def counts(part: object) -> bool:
        return isinstance(part, _HOLD_NUMBERS) or hasattr(part, "numpy") or is_own(type(part))

    return {name: part for name, part in sorted(vars(result).items()) if not name.startswith("_") and counts(part)}


def is_own(kind: type) -> bool:
    """Return whether a class is defined in a file that is not installed."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind is SimpleNamespace or bool(file and not is_installed(file))


def _fields(result: object) -> Mapping[str, object] | None:
    """Return the named parts of an object that holds data; ``None`` for other objects."""
    if isinstance(result, np.ma.MaskedArray):
        return {"mask": np.ma.getmaskarray(result), "data": result.filled(0) if result.dtype.kind in "fiubc" else None}
    if isinstance(result, np.ndarray):
        return None if result.dtype.names is None else {field: result[field] for field in result.dtype.names}
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return {field.name: getattr(result, field.name, None) for field in dataclasses.fields(result)}
    if isinstance(result, enum.Enum):
        return {"value": result.value}
    if type(result).__name__ == "History" and isinstance(history := getattr(result, "history", None), Mapping):
        return {"history": history}  # of Keras, old or new
    if (attributes := getattr(type(result), "__attrs_attrs__", None)) is not None:
        return {attribute.name: getattr(result, attribute.name, None) for attribute in attributes}
    tf = tensorflow()
    whole = tf is None or any(part is result for part in tf.nest.flatten(result, expand_composites=True))
    return _attributes(result) if whole and not hasattr(result, "numpy") else None


def device_peaks(reset: bool = False) -> dict[str, int]:
    """Return accelerator -> most bytes that TensorFlow had allocated since the last reset, and reset them if asked.

    Raises `MetricUnavailable` if the allocator of an accelerator does not count its bytes.
    """
    peaks: dict[str, int] = {}
    for device in gpus():
        memory, name = required().config.experimental, device.name.replace("/physical_device:", "")
        try:
            peaks[name] = int(memory.get_memory_info(name)["peak"])
        except ValueError as error:  # such as CUDA's own allocator
            raise MetricUnavailable(f"the allocator of {name} does not count its bytes: {error}") from None
        if reset:
            memory.reset_memory_stats(name)
    return peaks


# TensorFlow's runtime, as the worker uses it: import, threads, devices, and whether the process can be forked


def tensorflow() -> Any:
    """Return the TensorFlow that the benchmarks imported, ``None`` if they imported none."""
    tf = sys.modules.get("tensorflow")
    return tf if hasattr(tf, "function") else None  # an empty folder of this name is no TensorFlow


def keras() -> Any:
    """Return Keras, which TensorFlow loads late; ``None`` if it cannot, since TensorFlow alone can be measured as well.

    The first call imports it, and runs no op.
    Where ``TF_USE_LEGACY_KERAS`` asks for a tf_keras that is not installed, TensorFlow ends in a RecursionError.
    """
    with contextlib.suppress(ImportError, AttributeError, RecursionError):
        module = tensorflow().keras
        module.layers.Dense  # noqa: B018 - the access imports it
        return module
    return None


def variables_in_effect() -> dict[str, str]:
    """Return the variables that libraries read, with the backend of a loaded Keras in place of an unset ``KERAS_BACKEND``.

    To set it late to what Keras has chosen by default, as many test suites do, changes nothing.
    """
    backend = getattr(sys.modules.get("keras.backend"), "backend", None)
    chosen = {"KERAS_BACKEND": str(backend())} if callable(backend) else {}
    return chosen | library_variables(os.environ)


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
    # realpath returns a file that was closed in the meantime as it is.
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
    return required().test.experimental.sync_devices if gpus() else None


def gpus() -> Sequence[Any]:
    """Return TensorFlow's GPUs. It initialises CUDA, so only processes of launches call it."""
    tf = tensorflow()
    return tf.config.list_physical_devices("GPU") if tf is not None else ()


def devices() -> dict[str, tuple[str, ...]]:
    """Return the names of TensorFlow's devices by type. It initialises CUDA, so only processes of launches call it."""
    tf = tensorflow()
    names: dict[str, tuple[str, ...]] = {}
    for device in tf.config.list_physical_devices() if tf is not None else ():
        details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
        name = str(details.get("device_name", device.name))
        names[device.device_type] = (*names.get(device.device_type, ()), name)
    return names


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


def forked(task: Callable[[], str]) -> tuple[int, str]:
    """Do a task in a forked process; return its exit code, negative for a signal, and the text that the task returns."""
    parent = os.getpid()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
        if (pid := os.fork()) == 0:
            run_and_exit(parent, lambda: print(task(), end="", file=answer, flush=True))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answer.seek(0)
        return code, answer.read()


def replace_process(argument: str, descriptor: int) -> NoReturn:
    """Start this worker anew in the same process, with the same options and this message. Its socket stays open."""
    os.set_inheritable(descriptor, True)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], argument])


def pin(cpus: Collection[int]) -> None:
    """Restrict this process with its threads and children to these processors; to none others than now if there are none."""
    if not cpus:
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

    Raises `BenchmarkError` if the benchmark, or someone else, moved it.
    """
    if cpus and (now := os.sched_getaffinity(0)) != set(cpus):
        raise BenchmarkError(f"the process was moved from the processors {sorted(cpus)} to {sorted(now)}")


def check_synchronous() -> None:
    """Check that ops of this thread return when they are done, at least on a CPU.

    Raises `BenchmarkError` if the benchmark lets them return before.
    """
    if (tf := tensorflow()) is not None and not tf.config.experimental.get_synchronous_execution():
        raise BenchmarkError(
            "ops return before they are done, so no call takes the time of its work: leave out "
            "set_synchronous_execution(False), or let the step run them in tf.experimental.async_scope(), which waits"
        )
