"""The metrics other than time: what each counts, and which way is worse."""

from __future__ import annotations

from dataclasses import dataclass

from tfbench.model import TIME

MORE, FEWER, EITHER = "more", "fewer", "either"
BYTES = "B"


@dataclass(frozen=True)
class Metric:
    """One row of a report. ``worse`` says which change is a regression; with ``EITHER`` none is by itself."""

    name: str
    worse: str
    probe: str
    """What reads it, so that its absence can be explained."""
    unit: str = ""
    compiled: bool = False
    """Whether XLA decides it, which compiles for the processor at hand."""


EXACT = (
    Metric("graph_ops", MORE, "graph"),
    Metric("fused_ops", FEWER, "graph"),
    Metric("casts", MORE, "graph"),
    Metric("float64_ops", MORE, "graph"),
    Metric("transposes", MORE, "graph"),
    Metric("copies", MORE, "graph"),
    Metric("variables_read", MORE, "graph"),
    Metric("xla_kernels", MORE, "xla", compiled=True),
    Metric("xla_fusions", EITHER, "xla", compiled=True),
    Metric("xla_custom_calls", EITHER, "xla", compiled=True),
    Metric("xla_casts", MORE, "xla", compiled=True),
    Metric("xla_float64", MORE, "xla", compiled=True),
    Metric("traces", MORE, "traces"),
    Metric("retraces", MORE, "traces"),
    Metric("live_tensors", MORE, "live"),
    Metric("flops", MORE, "flops"),
    Metric("nonfinite", MORE, "outputs"),
)
"""The same in every launch of the same program: any difference is a change."""

ARTIFACT = (
    Metric("artifact_bytes", MORE, "artifact", BYTES),
    Metric("artifact_gzipped_bytes", MORE, "artifact", BYTES),
)
"""Of what a benchmark makes for deployment."""

SIZES = (
    Metric("xla_temporary_bytes", MORE, "xla", BYTES, compiled=True),
    Metric("live_bytes", MORE, "live", BYTES),
    Metric("peak_device_memory", MORE, "device_memory", BYTES),
    *ARTIFACT,
)
"""Sizes, of which a little more is no change."""

TOLD = (
    Metric("accuracy", FEWER, "told"),
    Metric("sparsity", FEWER, "told"),
    Metric("unique_weights", MORE, "told"),
)
"""What the benchmark itself says of its model; another machine trains it a little differently."""

OF_MODELS = (*TOLD, *ARTIFACT)
"""What a model is judged by beside its time."""

ROUGH = (*SIZES, *TOLD)
"""These have a tolerance."""

READ = (*EXACT, *ROUGH)
"""What a probing launch gives."""

PARITY = "parity"
"""Largest error of the result against the reference variant's, relative to the largest of its numbers."""
PEAK_HOST_MEMORY = "peak_host_memory"
FIRST_CALL = "first_call"
"""These three are judged by rules of their own."""

DISPATCH_TIME = "dispatch_time"
"""Seconds until a step has handed its work to an accelerator, where that is before the work is done."""
GPU_CLOCK = "gpu_clock"
"""MHz at which a GPU ran while a launch was timed."""
ENERGY = "energy"
"""Joules of a step that its GPUs took, idling included."""
DEVICE_TIME, COPY_TIME, DEVICE_SHARE = "device_time", "copy_time", "device_share"
"""Seconds of a profiled step in which kernels, and copies, ran on an accelerator; share of a step in which either did."""

SETTLED = frozenset({TIME})
"""Metrics that a run has to decide: what is open about another one is told and stops nobody."""
CONTRACT = "contract:"
"""Before the name of a contract, in the rows that say whether it holds."""
