"""Read exact metrics: graphs, leaks, memory, outputs, traces. Probes run in a launch that takes no times.

Their methods are called ``before`` the first call of the step, ``between`` the first call and the later ones, and
``after`` the last call. The evidence is JSON, from which the controller derives the metrics.

TensorFlow exports a graph when it builds a function for its first call, so functions called before `bench` are missing.

For the process, only anonymous pages above those inherited from the zygote count, because pages of program files come
and go with the code that runs. The kernel records only the peak of all resident pages. Pages of files stay resident,
so their size at the end is subtracted from it.

A cache or a pool of threads that fills up grows in the first windows of calls, and a leak in every one. The growth of a
window is therefore the smallest of all.
"""

from __future__ import annotations

import gc
import gzip
import math
import os
import re
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.facts import read_proc
from tfbench.model import JSON, LEAK_KINDS, OUTSIDE_PYTHON
from tfbench.protocol import XLA_FOLDER, ProbeCase
from tfbench.worker import tf_runtime
from tfbench.worker.isolation import children, file_limit, mallinfo
from tfbench.worker.tf_runtime import MetricUnavailable

# Probes: each reads one kind of evidence for the metrics other than time


class Probe:
    """Reads one kind of evidence. A subclass overrides only the methods that it needs."""

    name = ""

    def before(self) -> None:
        """Prepare for the first call of the step in this process."""

    def between(self, result: object) -> None:
        """Read the state after the first call, which returned ``result``."""

    def after(self, calls: int) -> None:
        """Read the state after so many further calls, whose results are released."""

    def found(self) -> JSON:
        """Return the evidence as JSON. Raises `MetricUnavailable` if it cannot be read here."""
        raise NotImplementedError


# The graphs that TensorFlow runs, after grappler and as placed on devices, and the modules that XLA compiles


_UNIQUE = re.compile(r"_\d+(?=/|$)")
_TYPES = ("T", "dtype", "DstT", "SrcT", "out_type", "Tparams", "Toutput")
_ENDING = "_after_optimizations.txt"
_OF_TENSORFLOW = "^a_|^cluster_"
"""Begin of the names of TensorFlow's modules: of functions (``__inference_…``), and of automatic clusters."""
_DRIVER = Path("/proc/driver/nvidia")


class Graph(Probe):
    """Lists the nodes of the first call's graphs."""

    name = "graph"

    def __init__(self) -> None:
        self._metadata: Any = None

    def before(self) -> None:
        tf_runtime.collect_graphs(True)

    def between(self, result: object) -> None:
        self._metadata = tf_runtime.collect_graphs(False)

    def found(self) -> JSON:
        graphs = self._metadata.function_graphs
        if not graphs:
            raise MetricUnavailable(
                "the first call built no TensorFlow graph: it ran an eager op, a function that XLA compiles completely, "
                "or a function that was called before bench"
            )
        optimized = [_nodes(graph.post_optimization_graph) for graph in graphs]
        run = [_nodes(*(graph.partition_graphs or [graph.post_optimization_graph])) for graph in graphs]
        rewritten = any("_Mkl" in node["op"] for nodes in run for node in nodes)
        return {"optimized": optimized, "executed": run, "onednn": rewritten or tf_runtime.has_onednn()}


def _nodes(*graphs: Any) -> list[JSON]:
    """Return the nodes of GraphDefs and of their functions: name without counters, op, fused ops, types."""
    parts = [nodes for graph in graphs for nodes in (graph.node, *(made.node_def for made in graph.library.function))]
    return [_node(node) for nodes in parts for node in nodes]


def _node(node: Any) -> JSON:
    made: JSON = {"name": _UNIQUE.sub("", node.name), "op": "function" if node.op.startswith("__") else node.op}
    if "fused_ops" in node.attr and (fused := [name.decode() for name in node.attr["fused_ops"].list.s]):
        made["fused"] = fused
    numbers = {key: node.attr[key].type for key in _TYPES if key in node.attr and node.attr[key].type}
    if numbers:
        made["types"] = {key: tf_runtime.dtype_name(number) for key, number in numbers.items()}
    if node.op in ("_Send", "_HostSend"):
        ends = (node.attr[key].s.decode() for key in ("send_device", "recv_device"))
        made["copy"] = " to ".join(end.rpartition("device:")[2] or "?" for end in ends)
    if inputs := [_UNIQUE.sub("", name.removeprefix("^").partition(":")[0]) for name in node.input]:
        made["inputs"] = inputs
    return made


class Xla(Probe):
    """Lists the files of the modules that are compiled in any call, from XLA's own dump below the launch's folder.

    All calls count, because XLA compiles its automatic clusters at the second call.
    The probe must be created before the first op, because XLA reads its flags only once. For a GPU, XLA also compiles a
    module for each algorithm that it tries. The dump leaves them out.
    """

    name = "xla"

    def __init__(self, folder: Path, driver: Path = _DRIVER) -> None:
        self._folder = folder / XLA_FOLDER
        given = os.environ.get("XLA_FLAGS", "")
        only = f"--xla_dump_hlo_module_re={_OF_TENSORFLOW}" if driver.exists() else ""
        os.environ["XLA_FLAGS"] = f"{given} --xla_dump_to={self._folder} --xla_dump_hlo_as_text {only}".strip()
        self._known: set[str] = set()
        self._after: set[str] = set()

    def before(self) -> None:
        self._known = self._modules()

    def after(self, calls: int) -> None:
        self._after = self._modules()

    def found(self) -> JSON:
        if new := sorted(self._after - self._known):
            return {"modules": new}
        raise MetricUnavailable("XLA compiled no module")

    def _modules(self) -> set[str]:
        return {file.name for file in self._folder.glob(f"*{_ENDING}")}


# Peak memory of the process and of the devices, and tensors that stay alive from call to call


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_FIELDS = ("VmHWM", "RssAnon", "RssFile", "RssShmem")


class HostPeak:
    """Peak anonymous memory of this process in bytes, above its size at the start."""

    def __init__(self) -> None:
        self._began = resident().get("RssAnon")
        self._most = 0

    def mark(self) -> None:
        """Record the peak so far, and reset the kernel's record if the process may do that."""
        now = resident()
        if self._began is None or not set(_FIELDS) <= set(now):
            return
        self._most = max(self._most, now["VmHWM"] - now["RssFile"] - now["RssShmem"] - self._began)
        with suppress(OSError):  # the peak of all time then counts, which only hides that a later call needed less
            _CLEAR.write_text("5", encoding="ascii")

    @property
    def bytes(self) -> int | None:
        """Bytes, ``None`` if the system does not report them."""
        return None if self._began is None else max(0, self._most)


def resident() -> dict[str, int]:
    """Return field -> bytes as Linux counts them; empty on other systems."""
    pairs = (line.partition(":") for line in read_proc(_STATUS).splitlines())
    return {key: int(value.split()[0]) << 10 for key, _, value in pairs if key in _FIELDS}


class DevicePeak(Probe):
    """Reads TensorFlow's peak allocation on each accelerator."""

    name = "device_memory"

    def before(self) -> None:
        tf_runtime.device_peaks(reset=True)

    def found(self) -> JSON:
        if peaks := tf_runtime.device_peaks():
            return {"peak": peaks}
        raise MetricUnavailable("TensorFlow sees no accelerator, and does not count its allocations on a CPU")


class Live(Probe):
    """Counts the eager tensors that stay alive, and their bytes, by call."""

    name = "live"

    def __init__(self) -> None:
        self._before: np.ndarray[Any, Any] = np.zeros(2)
        self._per_call = self._before

    def settled(self) -> None:
        """Count once the first calls have filled the caches. Any later growth repeats with every call."""
        self._before = _alive()

    def after(self, calls: int) -> None:
        self._per_call = (_alive() - self._before) / calls

    def found(self) -> JSON:
        tensors, size = self._per_call.tolist()
        return {"tensors": tensors, "bytes": size}


def _alive() -> np.ndarray[Any, Any]:
    """Return the number and bytes of eager tensors after a garbage collection."""
    gc.collect()
    eager = tf_runtime.required().Tensor
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), eager)]
    return np.array([len(tensors), sum(map(tf_runtime.tensor_bytes, tensors))], float)


# What a process gains with every call: memory, Python objects, threads and child processes, open files and traces


_FOLDERS = ("/proc/self/task", "/proc/self/fd")
"""One entry per thread, and per open file."""
_TEN = 10
"""Longer windows have a multiple of ten calls, so that one event in ten calls is in every window equally often."""
_FEW = 50
"""TensorFlow's Python keeps and drops some objects at any time: too much for windows of fewer calls."""
_FRAMES, _SITES = 64, 3
"""Frames that an allocation records, and allocation sites that are named."""
_INSTALLED = ("site-packages", "dist-packages", os.path.dirname(os.__file__), "<frozen", os.path.dirname(__file__))


class Leaks(Probe):
    """Counts what stays after each window of calls, per call."""

    name = "leaks"

    def __init__(self) -> None:
        self._allocated = mallinfo()
        self._traces = 0
        self._found: JSON = {}
        self._why = "the step was not repeated"

    def repeat(self, call: Callable[[], object], each: float, request: ProbeCase) -> None:
        """Run the windows of calls that the request allows. A call takes ``each`` seconds."""
        windows, most, quick = request.windows
        longest = request.seconds[2]
        if windows * each > longest:
            fix = "use a smaller step" if request.limits else "use a smaller step, or @no_leak, which takes longer"
            self._why = (
                f"a call takes {each:.2g} s, and the {windows} calls that show a leak may take {longest:g} s: {fix}"
            )
            return
        fitting = [int(seconds / windows / max(each, 1e-9)) for seconds in request.seconds]
        calls = max(1, min(most, fitting[1]), min(quick, fitting[0]))
        calls -= calls % _TEN if calls > _TEN else 0
        opened = open_files()
        call()
        if (left := open_files() - opened) > 0:  # all windows must fit into the limit of open files
            calls = max(1, min(calls, (file_limit() - opened) // (2 * windows * left)))
        marks = np.full((windows + 1, len(LEAK_KINDS)), math.nan)  # made before, so that it is no growth
        stop = tf_runtime.on_trace(self._traced)
        try:
            self._mark(marks[0])
            for window in range(windows):
                for _ in range(calls):
                    call()
                self._mark(marks[window + 1])
        finally:
            stop()
        known = zip(LEAK_KINDS, _growth(marks, calls, request.noise).tolist(), strict=True)
        self._found = {kind: value for kind, value in known if not math.isnan(value)}
        memory = (self._found.get(kind, 0.0) for kind in ("bytes", "objects"))
        if request.limits and any(grown > limit for grown, limit in zip(memory, request.limits, strict=True)):
            self._found["sites"] = self._sites(call, min(calls, _TEN), request.seconds[1])
        self._found["calls"] = calls * windows

    def _traced(self, name: str, graph: object, seconds: float, function: object) -> None:
        self._traces += 1

    def _mark(self, row: np.ndarray[Any, Any]) -> None:
        """Fill in what the process has now, in the order of `LEAK_KINDS`. What the system does not report stays NaN."""
        gc.collect()
        if self._allocated is not None:
            info = self._allocated()
            row[0] = info.uordblks + info.hblkhd
        row[1] = resident().get("RssAnon", math.nan)
        row[2] = sys.getallocatedblocks()
        with suppress(OSError):
            row[3:5] = [len(os.listdir(folder)) for folder in _FOLDERS]
            row[3] += len(children())  # of processes, zombies included
        row[5] = self._traces

    def _sites(self, call: Callable[[], object], calls: int, seconds: float) -> dict[str, float]:
        """Return the lines of code whose memory grows most -> bytes per call.

        Recorded calls may take thirty times as long, so there are fewer of them than ``calls`` if they would take more than
        these ``seconds``. A line is the innermost one outside of installed packages, or else the innermost one.
        """
        tracemalloc.start(_FRAMES)
        try:
            began = time.monotonic()
            call()
            calls = max(1, min(calls, int(seconds / (time.monotonic() - began + 1e-9))))
            gc.collect()
            before = tracemalloc.take_snapshot()
            for _ in range(calls):
                call()
            gc.collect()
            changes = tracemalloc.take_snapshot().compare_to(before, "traceback")
        finally:
            tracemalloc.stop()
        sizes: dict[str, float] = defaultdict(float)
        for change in changes:
            frames = [frame for frame in reversed(change.traceback) if frame.filename != tracemalloc.__file__]
            own = [frame for frame in frames if not any(part in frame.filename for part in _INSTALLED)]
            if frame := next(iter(own or frames), None):
                sizes[f"{os.path.basename(frame.filename)}:{frame.lineno}"] += change.size_diff / calls
        rest = self._found.get("bytes", 0.0) - sum(sizes.values())
        if rest > sum(sizes.values()):
            sizes[OUTSIDE_PYTHON] = rest
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:_SITES]
        return {place: size for place, size in largest if size > 0.1 * largest[0][1]}

    def found(self) -> JSON:
        if not self._found:
            raise MetricUnavailable(self._why)
        return self._found


def open_files() -> int:
    """Return the number of open files of this process, 0 if the system does not report it."""
    try:
        return len(os.listdir(_FOLDERS[1]))
    except OSError:
        return 0


def _growth(marks: np.ndarray[Any, Any], calls: int, noise: tuple[float, float, float]) -> np.ndarray[Any, Any]:
    """Return the growth of each kind per call, from marks around windows of so many calls.

    It is the smallest of all windows. The resident size grows in steps larger than many windows, so that it is the
    smaller one of both halves.
    """
    windows = len(marks) - 1
    grown = np.maximum(np.diff(marks, axis=0).min(axis=0), 0)
    middle = windows // 2
    halves = (marks[middle, 1] - marks[0, 1]) / middle, (marks[-1, 1] - marks[middle, 1]) / (windows - middle)
    grown[1] = 2 * max(0.0, min(halves)) if not math.isnan(halves[0]) else math.nan  # of two windows
    for kind, short in ((0, calls < _TEN), (1, True), (2, calls < _FEW)):
        if short and grown[kind] < noise[kind]:
            grown[kind] = 0.0
    grown[1] /= 2
    per_call: np.ndarray[Any, Any] = grown / calls
    return per_call


# The results of two calls as arrays, which the controller compares, and the size of the benchmark's artifact


FILE = "outputs.npz"
LARGEST = 1 << 28
"""Upper limit in bytes, since the controller holds the results of all variants of a workload at once."""
MOST_ON_GPU = 1 << 24
"""Numbers above which only a part of a result is compared on a GPU, whose large shapes would fill the disk and take seconds."""
MOST = 4096
"""Upper limit of arrays, because each of them is written and read on its own."""


class Outputs(Probe):
    """Writes the numbers of the results of two calls, and no Python objects, to a file in the launch's folder. Sends
    names, types, containers and the numbers of the calls."""

    name = "outputs"

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._first: list[tf_runtime.Part] = []
        self._later: list[tf_runtime.Part] = []
        self._call = 1

    def between(self, result: object) -> None:
        self._first = tf_runtime.flattened(result)

    def later(self, call: int, result: object) -> None:
        """Keep the result of a later call, unless both results together are too large."""
        parts = tf_runtime.flattened(result)
        both = [*self._first, *parts]
        if len(both) <= MOST and _bytes(both) <= LARGEST:
            self._call, self._later = call, parts

    def found(self) -> JSON:
        if not self._first:
            raise MetricUnavailable("the step returns no numbers")
        if (count := len(self._first)) > MOST:
            raise MetricUnavailable(f"the step returns {count:,} arrays, more than the limit of {MOST:,}")
        if (size := _bytes(self._first)) > LARGEST:
            raise MetricUnavailable(f"the step returns {size >> 20} MiB, more than the limit of {LARGEST >> 20} MiB")
        parts = [*self._first, *self._later]
        # Every n-th row, so that variants whose results have other shapes still differ in them, and those of another
        # precision do not.
        numbers = sum(part.array.size for part in self._first)
        step = -(-numbers // MOST_ON_GPU) if tf_runtime.gpus() else 1
        kept = (part.array[::step] if part.array.ndim else part.array for part in parts)
        # Not every version of numpy reads extension types, such as bfloat16.
        portable = (array.astype(np.float32) if array.dtype.kind == "V" else array for array in kept)
        np.savez(self._file, *portable)
        return {
            "file": FILE,
            "names": [part.name for part in parts],
            "dtypes": [part.array.dtype.name for part in parts],
            "inside": [part.inside for part in parts],
            "calls": [1] * len(self._first) + [self._call] * len(self._later),
        }


def _bytes(parts: Sequence[tf_runtime.Part]) -> int:
    return sum(part.array.nbytes for part in parts)


class Artifact(Probe):
    """Counts the bytes of ``bench(..., artifact=)``, raw and gzipped: of bytes, or of the file or folder at a path."""

    name = "artifact"

    def __init__(self, artifact: Any) -> None:
        self._artifact = artifact

    def found(self) -> JSON:
        if self._artifact is None:
            raise MetricUnavailable("the benchmark names no artifact")
        sizes = [(len(content), len(gzip.compress(content, mtime=0))) for content in _contents(self._artifact)]
        return {"bytes": sum(raw for raw, _ in sizes), "gzipped": sum(zipped for _, zipped in sizes)}


def _contents(artifact: Any) -> Iterator[bytes]:
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        yield bytes(artifact)
        return
    path = Path(os.fspath(artifact))
    if not path.exists():
        raise MetricUnavailable(f"the artifact {path} does not exist")
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            yield file.read_bytes()


# Traces of Python functions into graphs: number, arguments that cause a retrace, floating-point operations


_LONGEST = 60


class Traces(Probe):
    """Counts traces that are not nested in another trace: those of the first call, and later ones with their cause."""

    name = "traces"

    def __init__(self) -> None:
        self.graphs: dict[str, Any] = {}
        """Function -> its last graph of the first call."""
        self._found: JSON = {"first": [], "later": []}
        self._signatures: dict[str, list[str]] = {}
        self._stop: Callable[[], None] = lambda: None
        self._in_first = True

    def before(self) -> None:
        self._stop = tf_runtime.on_trace(self._traced)

    def between(self, result: object) -> None:
        self._in_first = False

    def after(self, calls: int) -> None:
        self._stop()

    def _traced(self, name: str, graph: Any, seconds: float, function: object) -> None:
        signature = _signature(graph)
        before, self._signatures[name] = self._signatures.get(name), signature
        if self._in_first:
            self._found["first"].append(name)
            self.graphs[name] = graph
        else:
            self._found["later"].append(f"{name}: {_cause(before, signature)}")

    def found(self) -> JSON:
        return self._found


class Flops(Probe):
    """Counts the floating-point operations of the graphs that were traced in the first call.

    TensorFlow has statistics of its ops. Ops without them count as 0.
    """

    name = "flops"

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def found(self) -> JSON:
        if graphs := self._traces.graphs:
            return {"flops": sum(map(tf_runtime.flops, graphs.values()))}
        raise MetricUnavailable("the first call traced no function")


def _signature(graph: Any) -> list[str]:
    """Describe every argument: tensors by type and shape, Python values by their representation."""
    positional, named = graph.structured_input_signature or ((), {})
    return [f"{place}: {_words(value)}" for place, value in [*enumerate(positional), *sorted(named.items())]]


def _words(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        sizes = "…" if shape.rank is None else ", ".join("?" if size is None else str(size) for size in shape)
        return f"{getattr(dtype, 'name', dtype)}[{sizes}]"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_words, value))})"[:_LONGEST]
    return f"the Python value {tf_runtime.ADDRESS.sub('…', repr(value))[:_LONGEST]}"


def _cause(before: list[str] | None, now: list[str]) -> str:
    if before is None:
        return "first called after the first call of the step"
    if len(before) != len(now):
        return f"called with {len(before)} arguments, then with {len(now)}"
    for old, new in zip(before, now, strict=True):
        if old != new:
            fix = "pass it as a tensor" if "Python value" in new else "give it an input_signature or reduce_retracing"
            place, _, was = old.partition(": ")
            return f"argument {place} was {was}, then {new.partition(': ')[2]}; {fix}"
    return "traced again for the same arguments: a new tf.function is made for each call"
