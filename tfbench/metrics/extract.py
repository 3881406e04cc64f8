"""From what the probes of a launch found to its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from tfbench.metrics import graphs, hlo, parity
from tfbench.metrics.catalog import READ
from tfbench.model import JSON, QUALITIES, MetricValues


@dataclass(frozen=True)
class ProbeOutput:
    """What a probing launch left."""

    found: Mapping[str, JSON]
    """Probe -> what it found."""
    absent: Mapping[str, str]
    """Probe -> why it found nothing."""
    facts: JSON = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    """Module that XLA compiled -> its optimized text."""
    assignments: Sequence[str] = ()
    """Buffer assignments of the modules, where XLA wrote them."""
    outputs: Sequence[NDArray[Any]] = ()


def read(probe_output: ProbeOutput) -> MetricValues:
    """Every metric that the evidence gives."""
    found = probe_output.found
    counts: dict[str, dict[str, int]] = {}
    numbers: dict[str, float] = {}
    setting = {}
    if "graph" in found:
        counts |= graphs.counts(found["graph"]["optimized"], found["graph"]["executed"])
        setting["onednn"] = "on" if found["graph"]["onednn"] else "off"
    if "xla" in found:
        counts |= hlo.counts(probe_output.modules.values())
        if probe_output.assignments:
            numbers["xla_temporary_bytes"] = sum(map(hlo.temporary_bytes, probe_output.assignments))
    if "traces" in found:
        counts["traces"] = dict(Counter(found["traces"]["first"]))
        counts["retraces"] = dict(Counter(found["traces"]["later"]))
    if "live" in found:
        numbers |= {"live_tensors": found["live"]["tensors"], "live_bytes": found["live"]["bytes"]}
    if "flops" in found:
        numbers["flops"] = found["flops"]["flops"]
    if "device_memory" in found:
        numbers["peak_device_memory"] = max(found["device_memory"]["peak"].values())
    if "artifact" in found:
        numbers |= {
            "artifact_bytes": found["artifact"]["bytes"],
            "artifact_gzipped_bytes": found["artifact"]["gzipped"],
        }
    numbers |= probe_output.facts.get(QUALITIES, {})
    if "outputs" in found:
        counts["nonfinite"] = parity.nonfinite(probe_output.outputs)
    sketch = parity.sketch(probe_output.outputs)
    absent = {
        metric.name: probe_output.absent.get(metric.probe, "the benchmark does not tell it")
        for metric in READ
        if metric.name not in counts and metric.name not in numbers
    }
    return MetricValues(counts, numbers, absent, setting, sketch)
