"""The first line of a cause."""

from tfbench.metrics.exact import MetricChange
from tfbench.profiles.attribution import Attribution, Cause, TimeCategory
from tfbench.session.profiling import Explanation
from tfbench.versions.changes import op_lines, ops_changed, result_changed, traced_again, xla_changed


def explanation(*metrics):
    return Explanation([], [MetricChange(*metric) for metric in metrics], [])


def cause(share, kind="Sum", category=TimeCategory.HOST):
    return Cause(category, (kind,), (), 0.01 * share, share, (0.0, 1.0))


def attribution(*causes):
    return Attribution(0.001, 0.011, causes, 0.9, ())


def test_a_function_that_is_traced_in_every_call_is_a_retrace():
    line = traced_again(
        explanation(("graph_ops", "", 3, 4, {}), ("retraces_per_call", "", 0, 1, {"gained": {"step": 1}}))
    )
    assert line == ["retrace: 1 per call, 0 before; gained step"]
    assert traced_again(explanation(("retraces_per_call", "", 1, 0, {}))) == []


def test_an_op_is_named_beside_the_raced_slowdown_which_it_may_exceed():
    (line,) = op_lines(
        Attribution(0.0005, 0.000615, (Cause(TimeCategory.HOST, ("Conv2D",), (), 0.00012, 1.04),), 1, ()), 0.058
    )
    assert line == "op: Conv2D +120 µs per profiled step, 100% of its slowdown (+23%, raced: +5.8%)"


def test_ops_are_named_if_they_hold_half_of_the_slowdown():
    lines = op_lines(attribution(cause(0.7), cause(0.2, "BatchMatMulV2")))
    assert [line.split()[:2] for line in lines] == [["op:", "Sum"], ["op:", "BatchMatMulV2"]]
    assert op_lines(attribution(cause(0.3), cause(0.1, "Mul"))) == []
    assert op_lines(attribution(cause(0.9, "", TimeCategory.OTHER))) == []
    assert op_lines(None) == []
    assert op_lines(attribution(cause(0.9)), enough=20.0) == []


def test_a_module_of_xla_with_other_kernels_is_a_line():
    found = Explanation([("graph", "added", "Sum"), ("XLA softmax", "fused apart", "lost custom-call")], [], [])
    assert xla_changed(found) == ["XLA softmax: fused apart: lost custom-call"]


def test_lost_and_gained_ops_are_a_line():
    counts = {"lost": {"MatMul": 1}, "gained": {"Sum": 1}}
    assert ops_changed(explanation(("graph_ops", "", 10, 9, counts), ("casts", "", 0, 1, {"gained": {"x": 1}}))) == [
        "graph: 10 ops before, 9 now; lost MatMul; gained Sum"
    ]
    assert ops_changed(explanation(("graph_ops", "", 1, 2, {"gained": {"Sum": 1}}))) == [
        "graph: 1 op before, 2 now; gained Sum"
    ]
    counts = {"gained": {"Enter": 60, "NextIteration": 58}}
    assert ops_changed(explanation(("graph_ops", "", 53, 436, counts))) == [
        "while loop: 53 ops before, 436 now; gained 60 Enter, 58 NextIteration"
    ]


def test_a_result_of_another_type_is_a_line():
    found = Explanation(
        [("graph", "added", "Cast"), ("result", "other type", "array 1 is int64 instead of float32")], [], []
    )
    assert result_changed(found) == ["result: array 1 is int64 instead of float32"]
