"""Descriptions of the changes between two sides."""

import numpy as np

from tfbench.metrics.exact import metric_changes, result_changes
from tfbench.metrics.parity import Output, ProbeOutput
from tfbench.model import MetricValues
from tfbench.policy import Policy


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


def test_an_array_of_the_result_with_another_type_is_reported():
    def side(*dtypes):
        return ProbeOutput({}, {}, results=[Output(np.zeros(1), dtype=dtype) for dtype in dtypes])

    other = ["result: array 2 is float32 instead of int64"]
    assert result_changes(side("float32", "int64"), side("float32", "float32")) == other
    assert result_changes(side("float32"), side("float32", "int64")) == []
