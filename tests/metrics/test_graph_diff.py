"""Descriptions of the changes between two sides."""

from pathlib import Path

import numpy as np

from tfbench.metrics.exact import explain, metric_changes
from tfbench.metrics.graphs import Change, result_changes, xla_changes
from tfbench.metrics.parity import Output, ProbeOutput
from tfbench.model import MetricValues
from tfbench.policy import Policy

TEXT = (Path(__file__).parents[1] / "data" / "softmax_hlo.txt").read_text()


def test_kernels_of_xla_are_reported_with_their_instructions():
    alone = TEXT.replace("kind=kLoop, calls=%fused_computation,", "kind=kInput, calls=%fused_computation,")
    (change,) = xla_changes({"softmax": TEXT}, {"softmax": alone})
    assert change == Change(
        "XLA softmax", "other kernel",
        "5 kernels before, 5 now: lost fusion Loop of exponential, subtract; gained fusion Input of exponential, subtract",
    )  # fmt: skip
    (added,) = xla_changes({}, {"softmax": TEXT})
    assert added.what == "added"
    assert xla_changes({"softmax": TEXT}, {"softmax": TEXT}) == []


def test_changes_of_modules_and_results_are_reported_together():
    before, now = (
        ProbeOutput({}, {}, modules=modules, results=[Output(np.zeros(1), dtype=dtype)])
        for modules, dtype in (({"f": TEXT}, "float32"), ({}, "float64"))
    )
    assert [change.where for change in explain(before, now)] == ["XLA f", "result"]


def test_only_differing_metrics_are_listed():
    before = MetricValues(counts={"casts": {}, "fused_ops": {"_F": 1}}, numbers={"artifact_bytes": 2048})
    now = MetricValues(counts={"casts": {}, "fused_ops": {}}, numbers={"artifact_bytes": 1024})
    assert [change.cells for change in metric_changes(before, now, Policy())] == [
        ("fused_ops", "1", "0", "lost _F"),
        ("artifact_bytes", "2.00 KiB", "1.00 KiB", ""),
    ]
    gone = MetricValues(counts={"fused_ops": {"_F": 1}})
    # An absent metric equals 0.
    assert [change.metric for change in metric_changes(before, gone, Policy())] == ["artifact_bytes"]


def test_a_difference_within_the_tolerance_is_not_listed():
    before, now = (MetricValues(numbers={"leaked_objects": value}) for value in (0.0, 0.3))
    assert metric_changes(before, now, Policy()) == []
    assert metric_changes(before, MetricValues(numbers={"leaked_objects": 5.0}), Policy())


def test_kernels_that_only_vanished_are_no_fusion():
    kernels = "ENTRY %main (x: f32[2]) -> f32[2] {{\n  %x = f32[2] parameter(0)\n{}  ROOT %c = f32[2] copy(%x)\n}}\n"
    before, now = kernels.format("  %d = f32[2] convert(%x)\n"), kernels.format("")
    assert [change.what for change in xla_changes({"f": before}, {"f": now})] == ["removed"]


def test_an_array_of_the_result_with_another_type_is_reported():
    assert result_changes(["float32", "int64"], ["float32", "float32"]) == [
        Change("result", "other type", "array 2 is float32 instead of int64")
    ]
    assert result_changes(["float32"], ["float32", "int64"]) == []
