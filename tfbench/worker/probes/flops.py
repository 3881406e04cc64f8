"""Floating-point operations of the traced graphs, from TensorFlow's statistics of its ops."""

from __future__ import annotations

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe
from tfbench.worker.probes.traces import Traces


class Flops(Probe):
    """Counts the graphs that were traced in the first call. Ops without statistics count as 0."""

    name = "flops"

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def found(self) -> JSON:
        graphs = list(self._traces.graphs.values())
        if not graphs:
            raise MetricUnavailable("the first call traced no function")
        return {"flops": sum(map(tf_internals.flops, graphs))}
