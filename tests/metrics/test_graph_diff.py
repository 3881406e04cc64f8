"""Descriptions of the changes between two graphs."""

from pathlib import Path

from tfbench.metrics.exact import metric_changes
from tfbench.metrics.graphs import Change, graph_changes, result_changes, xla_changes
from tfbench.model import MetricValues
from tfbench.policy import Policy

TEXT = (Path(__file__).parents[1] / "data" / "softmax_hlo.txt").read_text()


def node(name, op, *inputs, fused=(), **types):
    return {"name": name, "op": op, "inputs": list(inputs), "fused": list(fused), "types": types}


APART = [
    node("x", "_Arg"), node("Conv2D", "Conv2D", "x", "w"), node("BiasAdd", "BiasAdd", "Conv2D", "b"),
    node("Relu", "Relu", "BiasAdd"), node("out", "_Retval", "Relu"),
]  # fmt: skip
TOGETHER = [node("x", "_Arg"), node("Relu", "_FusedConv2D", "x", "w", "b", fused=["BiasAdd", "Relu"])]


def reported(before, now):
    return [(change.what, change.text) for change in graph_changes(before, now)]


def test_a_lost_fusion_is_reported_with_its_ops():
    assert reported(TOGETHER, APART) == [
        ("fused apart", "_FusedConv2D(BiasAdd, Relu) is now Conv2D, BiasAdd, Relu"),
    ]
    assert reported(APART, TOGETHER) == [
        ("fused together", "Conv2D, BiasAdd, Relu are now _FusedConv2D(BiasAdd, Relu)"),
    ]


def test_another_library_is_another_kernel():
    dnn = [node("Relu", "_MklNativeFusedConv2D", "x", fused=["BiasAdd", "Relu"])]
    assert reported(TOGETHER, dnn) == [
        (
            "other kernel",
            "_FusedConv2D(BiasAdd, Relu) is now _MklNativeFusedConv2D(BiasAdd, Relu), a kernel of oneDNN's",
        ),
    ]
    assert "a kernel of TensorFlow's own" in reported(dnn, TOGETHER)[0][1]


def test_added_and_removed_ops_are_counted():
    cast = node("Cast", "Cast", "x", SrcT="float32", DstT="float64")
    again = node("again/Cast", "Cast", "x", SrcT="float32", DstT="float64")
    assert reported(APART, [*APART, cast, again]) == [("added", "2 Cast float32 to float64")]
    assert reported([*APART, cast], APART) == [("removed", "Cast float32 to float64")]
    assert reported(APART, APART) == []


def test_an_op_that_vanished_is_no_fusion():
    cast = node("Cast", "Cast", "x", SrcT="float16", DstT="float32")
    before, now = [cast, node("Mul", "Mul", "Cast", "y")], [node("Mul", "_MklMul", "x", "y")]
    assert reported(before, now) == [("replaced", "Cast, Mul are now _MklMul")]
    assert reported(now, before) == [("replaced", "_MklMul is now Cast, Mul")]


def test_equal_changes_are_reported_once():
    def layer(name, op):
        return node(f"{name}/MatMul", op, "x")

    layers = ["one", "two", "three"]
    changes = reported([layer(name, "MatMul") for name in layers], [layer(name, "_MklMatMul") for name in layers])
    assert changes == [("other kernel", "MatMul is now _MklMatMul, a kernel of oneDNN's (3 times)")]


def test_a_folded_constant_is_not_a_fusion():
    before = [node("Shape", "Shape", "x"), node("Mul", "Mul", "Shape")]
    assert reported(before, [node("Mul", "Const")]) == [("folded", "Mul into constants"), ("removed", "Shape")]


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
