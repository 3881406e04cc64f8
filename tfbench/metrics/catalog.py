"""The registry of metrics other than time: what each counts, which direction is worse, and how to extract it.

To add a metric, add a `Metric` to `PROBED`. `read` then extracts it, `tfbench.metrics.exact` compares it, and the
report has a row for it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tfbench.metrics import graphs, parity
from tfbench.metrics.parity import ProbeOutput
from tfbench.model import LEAKS, QUALITIES, TIME, MetricValues
from tfbench.model.words import BYTES, JOULES, SECONDS


class Worse(enum.Enum):
    """The direction of change that is a regression."""

    MORE = "more"
    FEWER = "fewer"
    NEITHER = "neither"
    """A change alone is neither better nor worse."""


Extract = Callable[[ProbeOutput], Mapping[str, int] | float | None]
"""Returns what is counted with its frequency, or a number, or ``None`` if the launch does not have it."""


@dataclass(frozen=True)
class Metric:
    """One row of a report, read in a probing launch."""

    name: str
    worse: Worse
    probe: str
    """The probe that must have succeeded; its error explains an absent metric. Empty: `bench` receives the value."""
    extract: Extract
    unit: str = ""
    exact: bool = True
    """Whether any difference is a change; otherwise ``policy.memory_tolerance`` applies."""
    slack: float = 0.0
    """The difference that is none."""
    absent: str = "the benchmark does not report it"
    """Why a launch whose probe succeeded does not have it."""
    timed: bool = False
    """Whether its absence is no fault, since the time of a step decides if it is read, or the device if it exists."""
    compiled: bool = False
    """Whether XLA decides the value: it compiles for the processor of the machine."""
    scatters: bool = False
    """Whether launches of one side may differ, as long as all of them differ from all of the other side."""


def _size(name: str, probe: str, extract: Extract, *, compiled: bool = False) -> Metric:
    return Metric(name, Worse.MORE, probe, extract, BYTES, exact=False, compiled=compiled)


_UNKNOWN = "the system does not report it"
LEAK_BYTES = 256.0
"""Bytes per call that are none: caches of allocators and of Python grow by some bytes in every window."""
LEAK_RESIDENT_BYTES = 16384.0
"""The same for resident memory, which grows in pages and in arenas of up to 1 MiB."""
LEAK_OBJECTS = 1.5
"""Python objects per call that are none. `Model.fit` keeps about one of its own per call (TensorFlow 2.21)."""
LEAK_EVENTS = 0.01
"""Threads, open files and traces per call that are none: one in a hundred calls."""

LEAK_SITES = "leak_sites"
"""The count with the lines of code whose memory grows most -> bytes per call."""

LEAK_CALLS = "leak_calls"
"""The count of the calls over which the growth was measured."""


MANY_CALLS = "many_calls"
"""The count of the calls that `slowing` compares."""


def _leak(kind: str, slack: float, unit: str = "") -> Metric:
    """Growth per call, which is slightly more or less in each launch."""
    name, key = f"leaked_{kind}", kind.removesuffix("_bytes")
    extract: Extract = lambda launch: launch.found[LEAKS].get(key)  # noqa: E731
    return Metric(name, Worse.MORE, LEAKS, extract, unit, exact=False, slack=slack, absent=_UNKNOWN, timed=True)


def _quality(name: str, worse: Worse) -> Metric:
    """A value of a model that the benchmark reports. Training on another machine changes it slightly."""
    return Metric(name, worse, "", lambda launch: launch.facts.get(QUALITIES, {}).get(name), exact=False)


SLOWER_LATER = 0.5
"""Growth of a call's time after thousands of calls that is none. Eleven products of matrices reach 1.03 without other
programs. Beside these, their caches and memory are shared."""
REST_SLACK = 0.05
"""Seconds of processor time in a rest that are none: what a pool of threads uses to look for work and to end."""


def _xla(name: str, worse: Worse, extract: Extract) -> Metric:
    return Metric(name, worse, "xla", extract, compiled=True)


def _scattered(name: str, extract: Extract, slack: float, unit: str = "", timed: bool = False) -> Metric:
    return Metric(name, Worse.MORE, name, extract, unit, exact=False, scatters=True, slack=slack, timed=timed)


ALGORITHMS = "xla_algorithms"
"""What XLA's autotuning chose on a GPU, by kernel."""

PROBED: tuple[Metric, ...] = (
    Metric("graph_ops", Worse.MORE, "graph", lambda launch: graphs.ops(launch.executed)),
    Metric("fused_ops", Worse.FEWER, "graph", lambda launch: graphs.fused_ops(launch.optimized)),
    Metric("casts", Worse.MORE, "graph", lambda launch: graphs.casts(launch.executed)),
    Metric("float64_ops", Worse.MORE, "graph", lambda launch: graphs.float64_ops(launch.executed)),
    Metric("transposes", Worse.MORE, "graph", lambda launch: graphs.ops(launch.executed, graphs.TRANSPOSES)),
    Metric("copies", Worse.MORE, "graph", lambda launch: graphs.copies(launch.executed)),
    Metric("lite_ops", Worse.MORE, "lite", lambda launch: Counter(launch.found["lite"]["ops"])),
    Metric("variables_read", Worse.MORE, "graph", lambda launch: graphs.ops(launch.executed, graphs.READS)),
    _xla("xla_kernels", Worse.MORE, lambda launch: Counter(kernel.description for kernel in launch.xla_kernels)),
    replace(_xla(ALGORITHMS, Worse.NEITHER, lambda launch: graphs.algorithms(launch.xla_kernels) or None), timed=True),
    _xla("xla_casts", Worse.MORE, lambda launch: graphs.xla_casts(launch.xla_instructions)),
    _xla("xla_float64", Worse.MORE, lambda launch: graphs.xla_float64(launch.xla_instructions)),
    Metric("traces", Worse.MORE, "traces", lambda launch: Counter(launch.found["traces"]["first"])),
    Metric("retraces", Worse.MORE, "traces", lambda launch: Counter(launch.found["traces"]["later"])),
    Metric("live_tensors", Worse.MORE, "live", lambda launch: launch.found["live"]["tensors"]),
    _leak("bytes", LEAK_BYTES, BYTES),
    _leak("resident_bytes", LEAK_RESIDENT_BYTES, BYTES),
    _leak("objects", LEAK_OBJECTS),
    _leak("threads", LEAK_EVENTS),
    _leak("files", LEAK_EVENTS),
    replace(_leak("traces", LEAK_EVENTS), name="retraces_per_call"),
    _scattered("slowing", lambda launch: launch.found["slowing"]["ratio"], SLOWER_LATER, timed=True),
    _scattered("afterwork", lambda launch: launch.found["afterwork"]["seconds"], REST_SLACK, SECONDS),
    Metric("flops", Worse.MORE, "flops", lambda launch: launch.found["flops"]["flops"]),
    Metric("nonfinite", Worse.MORE, "outputs", lambda launch: parity.nonfinite(launch.results)),
    _size("xla_temporary_bytes", "xla", lambda launch: graphs.temporary_bytes(launch.assignments), compiled=True),
    _size("live_bytes", "live", lambda launch: launch.found["live"]["bytes"]),
    _size("peak_device_memory", "device_memory", lambda launch: max(launch.found["device_memory"]["peak"].values())),
    _size("artifact_bytes", "artifact", lambda launch: launch.found["artifact"]["bytes"]),
    _size("artifact_gzipped_bytes", "artifact", lambda launch: launch.found["artifact"]["gzipped"]),
    _quality("accuracy", Worse.FEWER),
    _quality("sparsity", Worse.FEWER),
    _quality("unique_weights", Worse.MORE),
)
"""Metrics of a probing launch, in the order of the report's rows."""


def read(launch: ProbeOutput) -> MetricValues:
    """Extract every metric of `PROBED`; an absent one has its reason."""
    counts: dict[str, Mapping[str, int]] = {}
    numbers: dict[str, float] = {}
    absent: dict[str, str] = {}
    for metric in PROBED:
        value = metric.extract(launch) if not metric.probe or metric.probe in launch.found else None
        if value is None:
            absent[metric.name] = launch.absent.get(metric.probe, metric.absent)
        elif isinstance(value, Mapping):
            counts[metric.name] = dict(sorted(value.items()))
        else:
            numbers[metric.name] = value
    setting = {}
    if "graph" in launch.found:
        # The contract expect_ops looks here for the names of fusions, which are the same on every device.
        counts["optimized_ops"] = dict(sorted(graphs.ops(launch.optimized).items()))
        setting["onednn"] = "on" if launch.found["graph"]["onednn"] else "off"
    if sites := launch.found.get(LEAKS, {}).get("sites"):
        counts[LEAK_SITES] = {place: round(size) for place, size in sites.items()}
    for name, probe in ((MANY_CALLS, "slowing"), (LEAK_CALLS, LEAKS)):
        if calls := launch.found.get(probe, {}).get("calls"):
            counts[name] = {"calls": calls}
    return MetricValues(counts, numbers, absent, setting, parity.sketch(launch.results))


LEAK_METRICS = tuple(metric for metric in PROBED if metric.probe == LEAKS)
"""What a process may gain with every call."""
MODEL_METRICS = tuple(metric.name for metric in PROBED if metric.probe in ("", "artifact"))
"""Names of the metrics that judge a model besides its time."""

PARITY = parity.PARITY
IMPORT, IMPORT_MEMORY = "import", "import_memory"
"""Seconds and resident bytes of what a zygote imports for a benchmark file that no earlier file has imported."""
FIRST_CALL_DOUBT = "first_call_doubt"
"""By how much the time of a first call that neighbours have blurred may be too short, as a log-ratio."""

DISPATCH_TIME = "dispatch_time"
"""Seconds until a step has handed its work to an accelerator, if that is before the work is done."""
GPU_CLOCK = "gpu_clock"
"""Clock of a GPU during a timed launch, MHz."""
DEVICE_TIME, COPY_TIME, DEVICE_SHARE = "device_time", "copy_time", "device_share"
"""Seconds of a profiled step in which kernels, and copies, ran on an accelerator; share of a step in which either did."""

ENERGY = "energy"
"""Energy of a step on all GPUs of the run, idling included, joules."""
ON_DEVICE = {DEVICE_TIME: SECONDS, ENERGY: JOULES}
"""Metrics of profiled launches on a GPU, with their units."""

DECISIVE = frozenset({TIME})
"""Metrics that a run has to decide: an inconclusive verdict on another metric does not fail the gate."""
CONTRACT = "contract:"
"""Prefix of the metric name in a contract's row."""
