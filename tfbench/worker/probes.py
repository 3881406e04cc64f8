"""Read exact metrics: graphs, leaks, memory, outputs, traces. Probes run in a launch that takes no times.

A probe is a generator that waits for points of the launch, from before the first call of the step to after the last one.
The evidence that it returns is JSON, from which the controller derives the metrics.

TensorFlow exports a graph when it builds a function for its first call, so functions called before `bench` are missing.

For the process, only anonymous pages above those inherited from the zygote count, because pages of program files come
and go with the code that runs. The kernel records only the peak of all resident pages. Pages of files stay resident,
so their size at the end is subtracted from it.

A cache or a pool of threads that fills up grows in the first windows of calls, and a leak in every one. The growth of a
window is therefore the smallest of all.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import signal
import sys
import threading
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.facts import read_proc
from tfbench.model import JSON, LEAK_KINDS, NO_ACCELERATOR, NO_MODULE, OUTSIDE_PYTHON
from tfbench.protocol import XLA_FOLDER, ProbeCase
from tfbench.worker import gc, tf_runtime, time
from tfbench.worker.isolation import children, file_limit, mallinfo
from tfbench.worker.quiet import Meter, used_time
from tfbench.worker.tf_runtime import MetricUnavailable

# Probes: each reads one kind of evidence for the metrics other than time


BEFORE, FIRST, SETTLED, LAST, RELEASED, END = "before", "first", "settled", "last", "released", "end"
"""Points of a launch: before the first call, after it with its result, after the calls that fill caches, after the last call
with its number and result, once the results are released with the number of later calls, and when all calls are over."""
NAMES = (
    "xla", "outputs", "traces", "live", "flops", "device_memory", "artifact", "lite", "graph", "leaks", "slowing", "afterwork",
)  # fmt: skip
"""All probes."""
_REPEATING = ("leaks", "slowing")
"""Probes that repeat the step. What they raise is an error of the step, which fails the launch as in its other calls."""
Probe = Generator[str, Any, JSON]
"""Yields the next point that it waits for, is sent what that point has, and returns its evidence as JSON.

It raises `MetricUnavailable` if the evidence cannot be read here.
"""


class Probes:
    """Leads probes from point to point."""

    def __init__(self) -> None:
        self.found: JSON = {}
        """Probe -> its evidence."""
        self.absent: dict[str, str] = {}
        """Probe -> why it has none."""
        self._waiting: dict[str, tuple[str, Probe]] = {}

    def start(self, name: str, probe: Probe) -> None:
        """Run a probe up to its first point."""
        self._waiting[name] = "", probe
        self._go_on(name, None)

    def reach(self, point: str, value: Any = None) -> None:
        """Let the probes go on that wait for this point, in the reverse order of their start."""
        for name, (awaited, _) in reversed([*self._waiting.items()]):
            if awaited == point:
                self._go_on(name, value)

    def _go_on(self, name: str, value: Any) -> None:
        _, probe = self._waiting[name]
        try:
            self._waiting[name] = probe.send(value), probe
            return
        except StopIteration as end:
            self.found[name] = end.value
        except MetricUnavailable as error:
            self.absent[name] = str(error)
        except Exception as error:
            if name in _REPEATING:
                raise
            # A change in TensorFlow's internals must not cost the other probes.
            self.absent[name] = f"the probe failed ({type(error).__name__}: {str(error)[:200]})"
        del self._waiting[name]


# The graphs that TensorFlow runs, after grappler and as placed on devices, and the modules that XLA compiles


_UNIQUE = re.compile(r"_\d+(?=/|$)")
_TYPES = ("T", "dtype", "DstT", "SrcT", "out_type", "Tparams", "Toutput")
_ENDING = "_after_optimizations.txt"
_OF_TENSORFLOW = "^a_|^cluster_"
"""Begin of the names of TensorFlow's modules: of functions (``__inference_…``), and of automatic clusters."""
_DRIVER = Path("/proc/driver/nvidia")
_TFLITE = b"TFL3"
"""Identifier in the files of TFLite, from their fifth byte on."""


def graph() -> Probe:
    """List the nodes of the first call's graphs.

    It starts last, so it collects from just before the first call to just after it, and no other graphs.
    """
    tf_runtime.collect_graphs(True)
    yield FIRST
    graphs = tf_runtime.collect_graphs(False).function_graphs
    yield END
    if not graphs:
        raise MetricUnavailable(
            "the first call built no TensorFlow graph: it ran an eager op, a function that XLA compiles completely, "
            "or a function that was called before bench"
        )
    optimized = [_nodes(graph.post_optimization_graph) for graph in graphs]
    run = [_nodes(*(graph.partition_graphs or [graph.post_optimization_graph])) for graph in graphs]
    rewritten = any("_Mkl" in node["op"] for nodes in run for node in nodes)
    return {"optimized": optimized, "executed": run, "onednn": rewritten or tf_runtime.has_onednn()}


def lite(given: Any) -> Probe:
    """List the ops, delegates and custom ops of the TFLite interpreters that are alive after the first call.

    If there is none, list those of the models that the step returns or ``bench(..., artifact=)`` names.
    """
    result = yield FIRST
    named = [one for one in (result if isinstance(result, bytes) else None, given) if one is not None]
    del result  # it is released before others count what stays alive
    kept = (thing for thing in gc.get_objects() if hasattr(type(thing), "_get_ops_details"))
    ops = [op["op_name"] for interpreter in kept for op in interpreter._get_ops_details()]
    yield END
    if not ops:
        models = dict.fromkeys(model for one in named for model in _contents(one, _TFLITE))
        made = [tf_runtime.required().lite.Interpreter(model_content=model) for model in models]
        ops = [op["op_name"] for interpreter in made for op in interpreter._get_ops_details()]
    if not ops:
        raise MetricUnavailable("the step uses no interpreter of TFLite, and neither returns nor names a model of it")
    return {"ops": ops}


def _nodes(*graphs: Any) -> list[JSON]:
    """Return the nodes of GraphDefs and of their functions: name without counters, op, fused ops, types."""
    parts = [nodes for graph in graphs for nodes in (graph.node, *(made.node_def for made in graph.library.function))]
    return [_node(node) for nodes in parts for node in nodes]


def _node(node: Any) -> JSON:
    made: JSON = {"name": _UNIQUE.sub("", node.name), "op": "function" if node.op.startswith("__") else node.op}
    if "fused_ops" in node.attr and (fused := [name.decode() for name in node.attr["fused_ops"].list.s]):
        made["fused"] = fused
    if numbers := {key: node.attr[key].type for key in _TYPES if key in node.attr and node.attr[key].type}:
        made["types"] = {key: tf_runtime.dtype_name(number) for key, number in numbers.items()}
    if node.op in ("_Send", "_HostSend"):
        ends = (node.attr[key].s.decode() for key in ("send_device", "recv_device"))
        made["copy"] = " to ".join(end.rpartition("device:")[2] or "?" for end in ends)
    if inputs := [_UNIQUE.sub("", name.removeprefix("^").partition(":")[0]) for name in node.input]:
        made["inputs"] = inputs
    return made


def xla(folder: Path, driver: Path = _DRIVER) -> Probe:
    """List the files of the modules that are compiled in any call, from XLA's own dump below the launch's folder.

    All calls count, because XLA compiles its automatic clusters at the second call.
    The probe must start before the first op, because XLA reads its flags only once. For a GPU, XLA also compiles a
    module for each algorithm that it tries. The dump leaves them out.
    """
    dump = folder / XLA_FOLDER
    given = os.environ.get("XLA_FLAGS", "")
    only = f"--xla_dump_hlo_module_re={_OF_TENSORFLOW}" if driver.exists() else ""
    os.environ["XLA_FLAGS"] = f"{given} --xla_dump_to={dump} --xla_dump_hlo_as_text {only}".strip()
    yield BEFORE
    known = set(dump.glob(f"*{_ENDING}"))
    yield RELEASED
    if new := sorted(file.name for file in set(dump.glob(f"*{_ENDING}")) - known):
        return {"modules": new}
    raise MetricUnavailable(NO_MODULE)


# Peak memory of the process and of the devices, and tensors that stay alive from call to call


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_FIELDS = ("VmHWM", "RssAnon", "RssFile", "RssShmem")


class HostPeak:
    """Peak anonymous memory of this process in bytes, above its size at the start."""

    def __init__(self) -> None:
        self._began = resident().get("RssAnon")
        self._most = 0

    def mark(self, counts: bool = True) -> None:
        """Record the peak so far if it counts, and reset the kernel's record if the process may do that."""
        now = resident()
        if self._began is None or not set(_FIELDS) <= set(now):
            return
        self._most = max(self._most, now["VmHWM"] - now["RssFile"] - now["RssShmem"] - self._began) if counts else 0
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


def device_memory() -> Probe:
    """Read TensorFlow's peak allocation on each accelerator."""
    tf_runtime.device_peaks(reset=True)
    yield END
    if peaks := tf_runtime.device_peaks():
        return {"peak": peaks}
    raise MetricUnavailable(NO_ACCELERATOR)


def live() -> Probe:
    """Count the eager tensors that stay alive, and their bytes, by call.

    The first calls have filled the caches before. Any later growth repeats with every call.
    """
    yield SETTLED
    before = _alive()
    calls = yield RELEASED
    tensors, size = ((_alive() - before) / calls).tolist()
    return {"tensors": tensors, "bytes": size}


def _alive() -> np.ndarray[Any, Any]:
    """Return the number and bytes of eager tensors after a garbage collection."""
    gc.collect()
    eager = tf_runtime.required().Tensor
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), eager)]
    return np.array([len(tensors), sum(map(tf_runtime.tensor_bytes, tensors))], float)


# What a process gains with every call: memory, Python objects, threads and child processes, open files and traces


_THREADS, _FILES = "/proc/self/task", "/proc/self/fd"
"""Folders with an entry for each thread and for each open file."""
_TEN = 10
"""Longer windows have a multiple of ten calls, so that one event in ten calls is in every window equally often."""
_FEW = 50
"""TensorFlow's Python keeps and drops some objects at any time: too much for windows of fewer calls."""
_FRAMES, _SITES = 64, 3
"""Frames that an allocation records, and allocation sites that are named."""
_INSTALLED = ("site-packages", "dist-packages", os.path.dirname(os.__file__), "<frozen", os.path.dirname(__file__))


def leaks(call: Callable[[], object], each: float, request: ProbeCase) -> Probe:
    """Count what stays after each of the windows of calls that the request allows, per call of ``each`` seconds."""
    windows, most, quick = request.windows
    longest = request.seconds[2]
    if windows * each > longest:
        fix = "use a smaller step" if request.limits else "use a smaller step, or @no_leak, which takes longer"
        raise MetricUnavailable(
            f"a call takes {each:.2g} s, and the {windows} calls that show a leak may take {longest:g} s: {fix}"
        )
    fitting = [int(seconds / windows / max(each, 1e-9)) for seconds in request.seconds]
    calls = max(1, min(most, fitting[1]), min(quick, fitting[0]))
    calls -= calls % _TEN if calls > _TEN else 0
    opened = open_files()
    call()
    if (left := open_files() - opened) > 0:  # all windows must fit into the limit of open files
        calls = max(1, min(calls, (file_limit() - opened) // (2 * windows * left)))
    marks = np.full((windows + 1, len(LEAK_KINDS)), math.nan)  # made before, so that it is no growth
    allocated, traces = mallinfo(), 0

    def traced(*_: object) -> None:
        nonlocal traces
        traces += 1

    with tf_runtime.on_trace(traced):
        _mark(marks[0], allocated, traces)
        for window in range(windows):
            for _ in range(calls):
                call()
            _mark(marks[window + 1], allocated, traces)
    known = zip(LEAK_KINDS, _growth(marks, calls, request.noise).tolist(), strict=True)
    found: JSON = {kind: value for kind, value in known if not math.isnan(value)}
    memory = (found.get(kind, 0.0) for kind in ("bytes", "objects"))
    if request.limits and any(grown > limit for grown, limit in zip(memory, request.limits, strict=True)):
        found["sites"] = _sites(call, min(calls, _TEN), request.seconds[1], found.get("bytes", 0.0))
    yield END
    return {**found, "calls": calls * windows}


def _mark(row: np.ndarray[Any, Any], allocated: Callable[[], Any] | None, traces: int) -> None:
    """Fill in what the process has now, in the order of `LEAK_KINDS`. What the system does not report stays NaN."""
    gc.collect()
    if allocated is not None:
        info = allocated()
        row[0] = info.uordblks + info.hblkhd
    row[1] = resident().get("RssAnon", math.nan)
    row[2] = sys.getallocatedblocks()
    row[3] = len(os.listdir(_THREADS)) + len(children())  # of processes, zombies included
    row[4] = open_files()
    row[5] = traces


def _sites(call: Callable[[], object], calls: int, seconds: float, grown: float) -> dict[str, float]:
    """Return the lines of code whose memory grows most -> bytes per call, of which ``grown`` are known in all.

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
    rest = grown - sum(sizes.values())
    if rest > sum(sizes.values()):
        sizes[OUTSIDE_PYTHON] = rest
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:_SITES]
    return {place: size for place, size in largest if size > 0.1 * largest[0][1]}


def open_files() -> int:
    """Return the number of open files of this process."""
    return len(os.listdir(_FILES))


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
    return np.asarray(grown / calls)


# What a process does later: calls that take longer after many others, and work that goes on after the last one


_CHUNKS, _TENTH = 100, 10
"""Calls are timed in so many chunks, of which the first and the last tenth are compared: a tenth has at least two chunks
of a call that fits 20 times into the seconds."""


def slowing(call: Callable[[], object], each: float, request: ProbeCase) -> Probe:
    """Compare the last tenth of the many calls that the request allows with the first. A call takes ``each`` seconds."""
    most, seconds = request.many
    size = max(1, int(min(most, seconds / max(each, 1e-9)) / _CHUNKS))
    if 2 * _TENTH * each > seconds:
        raise MetricUnavailable(f"a call takes {each:.2g} s, so that {2 * _TENTH} calls take longer than {seconds:g} s")
    times: list[float] = []
    meter = Meter(watch=True)  # other probing launches and programs have the processor of a pool's threads, too
    until = time.monotonic() + seconds
    while len(times) < 2 * _TENTH or (len(times) * size < most and time.monotonic() < until):
        meter.begin()
        began = time.perf_counter_ns()
        for _ in range(size):
            call()
        times.append(max(1, meter.end(time.perf_counter_ns() - began).least) / size)
    tenth = len(times) // _TENTH
    # Neighbours and collections of garbage lengthen single chunks. Calls that became slow are in each of the last ones.
    ratio = min(times[-tenth:]) / min(times[:tenth])
    yield END
    return {"ratio": max(1.0, ratio), "calls": len(times) * size}


REST_SECONDS = 3.0
"""A timer or a writer that waits for a pause of one or two seconds works within this time."""
_REST_LOOK = 0.02
"""Seconds of rest of a process in which nothing can wait for its time: no other thread of Python, no child, no timer."""


def afterwork() -> Probe:
    """Count the processor time that the process and its children use in a rest, as long as something may work later."""
    yield END
    began = used_time(children())
    time.sleep(_REST_LOOK)
    if threading.active_count() > 1 or children() or signal.getitimer(signal.ITIMER_REAL)[0]:
        time.sleep(REST_SECONDS)
    return {"seconds": max(0, used_time(children()) - began) * 1e-9}


# The results of two calls as arrays, which the controller compares, and the size of the benchmark's artifact


FILE = "outputs.npz"
LARGEST = 1 << 28
"""Upper limit in bytes, since the controller holds the results of all variants of a workload at once."""
MOST_NUMBERS, MOST_ON_GPU = 1 << 25, 1 << 24
"""Numbers above which only a part of an array is compared, on a CPU and on a GPU, whose large shapes would fill the disk."""
MOST = 4096
"""Upper limit of arrays, because each of them is written and read on its own."""


def outputs(folder: Path) -> Probe:
    """Write the numbers of the results of two calls, and no Python objects, to a file in the launch's folder.

    The evidence has names, types, containers and the numbers of the calls. The result of the last call is left out if both
    together are too large.
    """
    most = MOST_ON_GPU if tf_runtime.gpus() else MOST_NUMBERS
    first = tf_runtime.flattened((yield FIRST), most)
    call, result = yield LAST
    later = tf_runtime.flattened(result, most)
    del result  # it is released before others count what stays alive
    if len(first) + len(later) > MOST or _bytes([*first, *later]) > LARGEST:
        later = []
    yield END
    if not first:
        raise MetricUnavailable("the step returns no numbers")
    if (count := len(first)) > MOST:
        raise MetricUnavailable(f"the step returns {count:,} arrays, more than the limit of {MOST:,}")
    if (size := _bytes(first)) > LARGEST:
        raise MetricUnavailable(f"the step returns {size >> 20} MiB, more than the limit of {LARGEST >> 20} MiB")
    parts = [*first, *later]
    arrays = (part.array for part in parts)
    # Not every version of numpy reads extension types, such as bfloat16.
    np.savez(folder / FILE, *(array.astype(np.float32) if array.dtype.kind == "V" else array for array in arrays))
    return {
        "file": FILE,
        "names": [part.name for part in parts],
        "dtypes": [part.array.dtype.name for part in parts],
        "inside": [part.inside for part in parts],
        "calls": [1] * len(first) + [call] * len(later),
    }


def _bytes(parts: Sequence[tf_runtime.Part]) -> int:
    return sum(part.array.nbytes for part in parts)


def artifact(given: Any) -> Probe:
    """Count the bytes of ``bench(..., artifact=)``, raw and gzipped: of bytes, or of the file or folder at a path."""
    yield END
    if given is None:
        raise MetricUnavailable("the benchmark names no artifact")
    sizes = [(len(content), len(gzip.compress(content, mtime=0))) for content in _contents(given)]
    return {"bytes": sum(raw for raw, _ in sizes), "gzipped": sum(zipped for _, zipped in sizes)}


def _contents(artifact: Any, kind: bytes = b"") -> Iterator[bytes]:
    """Yield the contents of an artifact, only those with this identifier from the fifth byte on."""
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        yield from [bytes(artifact)] if bytes(artifact)[4:8].startswith(kind) else []
        return
    path = Path(os.fspath(artifact))
    if not path.exists():
        raise MetricUnavailable(f"the artifact {path} does not exist")
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            with file.open("rb") as content:
                if content.read(8)[4:].startswith(kind):
                    content.seek(0)
                    yield content.read()


# Traces of Python functions into graphs: number, arguments that cause a retrace, floating-point operations


_LONGEST = 60


def traces(graphs: dict[str, Any]) -> Probe:
    """Count traces that are not nested in another trace: those of the first call, and later ones with their cause.

    ``graphs`` gets function -> its last graph of the first call.
    """
    first: list[str] = []
    later: list[str] = []
    signatures: dict[str, list[str]] = {}
    in_first = True

    def traced(name: str, graph: Any, seconds: float, function: object) -> None:
        signature = _signature(graph)
        before, signatures[name] = signatures.get(name), signature
        if in_first:
            first.append(name)
            graphs[name] = graph
        else:
            later.append(f"{name}: {_cause(before, signature)}")

    with tf_runtime.on_trace(traced):
        yield FIRST
        in_first = False
        yield RELEASED
    return {"first": first, "later": later}


def flops(graphs: dict[str, Any]) -> Probe:
    """Count the floating-point operations of the graphs that were traced in the first call.

    TensorFlow has statistics of its ops. Ops without them count as 0.
    """
    yield END
    if not graphs:
        raise MetricUnavailable("the first call traced no function")
    return {"flops": sum(map(tf_runtime.flops, graphs.values()))}


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
