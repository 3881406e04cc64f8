"""Floating-point operations of the traced graphs, by TensorFlow's own statistics of its ops."""

from __future__ import annotations

from tfbench.model import JSON
from tfbench.worker import tf_internals
from tfbench.worker.probes import MetricUnavailable, Probe
from tfbench.worker.probes.traces import Traces


class Flops(Probe):
    """Counts those of the graphs that were traced in the first call; ops without statistics count nothing."""

    name = "flops"

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def found(self) -> JSON:
        graphs = list(self._traces.graphs.values())
        if not graphs:
            raise MetricUnavailable("nothing was traced in the first call")
        return {"flops": sum(map(tf_internals.flops, graphs))}
