"""Counts of TensorFlow's graphs, as they are extracted from a launch."""

from tfbench.metrics.catalog import read
from tfbench.metrics.parity import ProbeOutput

FUSED = {"name": "Relu", "op": "_FusedConv2D", "fused": ["BiasAdd", "Relu"], "types": {"T": "float32"}}
DNN = {**FUSED, "op": "_MklNativeFusedConv2D"}
ARGUMENT = {"name": "x", "op": "_Arg", "types": {"T": "float64"}}
CAST = {"name": "Cast", "op": "Cast", "types": {"SrcT": "float32", "DstT": "float64"}}


def counts(optimized, executed):
    return read(ProbeOutput({"graph": {"optimized": optimized, "executed": executed, "onednn": False}}, {})).counts


def test_fusions_have_their_common_names_and_graph_ops_those_of_the_device():
    found = counts([[ARGUMENT, FUSED]], [[ARGUMENT, DNN]])
    assert found["graph_ops"] == {"_MklNativeFusedConv2D": 1}
    assert found["optimized_ops"] == {"_FusedConv2D": 1}
    assert found["fused_ops"] == {"BiasAdd in _FusedConv2D": 1, "Relu in _FusedConv2D": 1}


def test_casts_doubles_transposes_copies_and_variables():
    nodes = [
        CAST, CAST, {"name": "Mul", "op": "Mul", "types": {"T": "float64"}}, {"name": "t", "op": "Transpose"},
        {"name": "s", "op": "_Send", "copy": "CPU:0 to GPU:0"}, {"name": "r", "op": "ReadVariableOp"},
    ]  # fmt: skip
    found = counts([nodes], [nodes])
    assert found["casts"] == {"float32 to float64": 2}
    assert found["float64_ops"] == {"Cast": 2, "Mul": 1}
    assert found["transposes"] == {"Transpose": 1}
    assert found["copies"] == {"CPU:0 to GPU:0": 1}
    assert found["variables_read"] == {"ReadVariableOp": 1}


def test_arguments_and_results_are_not_counted():
    assert counts([[ARGUMENT]], [[ARGUMENT]])["graph_ops"] == {}
    assert counts([[ARGUMENT]], [[ARGUMENT]])["float64_ops"] == {}
