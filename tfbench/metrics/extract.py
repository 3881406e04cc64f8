"""Extract the registered metrics from the evidence of a probing launch."""

from __future__ import annotations

from collections.abc import Mapping

from tfbench.metrics import catalog, graphs, parity
from tfbench.metrics.probe_output import ProbeOutput
from tfbench.model import MetricValues


def read(launch: ProbeOutput) -> MetricValues:
    """Extract every metric of `catalog.PROBED`; an absent one has its reason."""
    counts: dict[str, Mapping[str, int]] = {}
    numbers: dict[str, float] = {}
    absent: dict[str, str] = {}
    for metric in catalog.PROBED:
        value = metric.extract(launch) if not metric.probe or metric.probe in launch.found else None
        if value is None:
            absent[metric.name] = launch.absent.get(metric.probe, "the benchmark does not report it")
        elif isinstance(value, Mapping):
            counts[metric.name] = dict(sorted(value.items()))
        else:
            numbers[metric.name] = value
    setting = {}
    if "graph" in launch.found:
        # The contract expect_ops looks here for the names of fusions, which are the same on every device.
        counts["optimized_ops"] = dict(sorted(graphs.ops(launch.optimized).items()))
        setting["onednn"] = "on" if launch.found["graph"]["onednn"] else "off"
    return MetricValues(counts, numbers, absent, setting, parity.sketch(launch.outputs))
