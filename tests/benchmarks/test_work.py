"""The graphs that TensorFlow runs contain the work of each benchmark."""

import re
import sys
from dataclasses import replace

import pytest

from tfbench.errors import BenchmarkSkipped
from tfbench.metrics import graphs
from tfbench.metrics.catalog import read
from tfbench.metrics.parity import ProbeOutput
from tfbench.plugin.collect import collect
from tfbench.plugin.options import available_cpus
from tfbench.policy import preset
from tfbench.race.lanes import processors
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.sides.spec import Side

WORK = {
    "test_adam": "ResourceApplyAdam AssignSubVariableOp",
    "test_aligned_product": "MatMul",
    "test_all_reduce": "CollectiveReduceV2",
    "test_arithmetic": "MatMul",
    "test_attention": "BatchMatMulV2 Softmax",
    "test_batched_product": "BatchMatMulV2",
    "test_batchnorm_inference": "FusedBatchNormV3",
    "test_batchnorm_training": "FusedBatchNormV3",
    "test_conv2d_1x1": "Conv2D",
    "test_conv2d_3x3": "Conv2D",
    "test_conv2d_batchnorm_relu": "_FusedConv2D",
    "test_conv2d_bias_relu": "_FusedConv2D",
    "test_conv2d_gradient": "Conv2DBackpropFilter Conv2DBackpropInput",
    "test_conv2d_squeeze_bias": "_FusedConv2D",
    "test_conv2d_stem": "Conv2D",
    "test_convolution_block": "_FusedConv2D Mean",
    "test_cumulative_sum": "Cumsum",
    "test_dense_bias_relu": "_FusedMatMul",
    "test_depthwise": "DepthwiseConv2dNative",
    "test_embedding": "GatherV2",
    "test_embedding_gradient": "UnsortedSegmentSum",
    "test_fft": "RFFT",
    "test_function_call": "AddV2 Mul",
    "test_gram_sum": "MatMul Sum",
    "test_gru": "LoopCond",
    "test_image_inference": "Conv2D",
    "test_inference": "_FusedMatMul",
    "test_keras_attention": "Softmax",
    "test_large_product": "MatMul",
    "test_layer_norm": "Mean SquaredDifference",
    "test_lstm": "LoopCond",
    "test_matmul": "MatMul",
    "test_memory": "DeepCopy",
    "test_product_by_library": "MatMul",
    "test_resize": "ResizeBilinear",
    "test_resnet_step": "Conv2DBackpropFilter",
    "test_pruning": "_FusedConv2D",
    "test_clustering": "_FusedConv2D",
    "test_row_sums": "Sum",
    "test_sgd": "AssignSubVariableOp ResourceApplyGradientDescent",
    "test_softmax": "Softmax",
    "test_sort": "TopKV2",
    "test_tall_product": "MatMul",
    "test_top_k": "TopKV2",
    "test_training_on_batch": "_FusedMatMul",
    "test_training_step": "_FusedMatMul",
    "test_transformer_step": "Softmax",
    "test_vector_matrix": "MatMul",
}
"""Workload -> ops, of which the reference variant has at least one in its optimized graph."""
IDLE = {"Const", "Placeholder", "VarHandleOp"}
ARITHMETIC = {
    "dot", "convolution", "reduce", "sort", "fft", "gather", "scatter", "add", "multiply", "custom-call", "reduce-window",
    "exponential", "topk", "subtract", "dynamic-update-slice", "tanh",
}  # fmt: skip


def _some(cases):
    """Select the reference variant of each workload, and one that XLA compiles, which may fold the work away."""
    kinds = {(case.workload, case.reference, "xla" in case.levels.values()): case for case in cases}
    return [
        case
        for (_, reference, compiled), case in kinds.items()
        if reference or (compiled and not re.search("training|recurrent|inference", case.name))
    ]


@pytest.fixture(scope="module")
def probe_outputs():
    """Case -> output of its probing launch, for cases that can run on this machine."""
    collected = collect()
    side = Side("contender", sys.executable, collected.root)
    policy = replace(preset("quick"), probe_calls=1, leak_windows=(2, 2, 2))  # the first call has the graph
    launcher = ProcessLauncher(collected.suite, policy, processors(None, available_cpus()))
    try:
        cases = _some(collected.cases.values())
        found = list(Prober(launcher, policy).probe([Entrant(case, side) for case in cases]))
    finally:
        launcher.close()
    broken = [one for one in found if isinstance(one, Exception) and not isinstance(one, BenchmarkSkipped)]
    assert not broken, broken
    return {case: one for case, one in zip(cases, found, strict=True) if isinstance(one, ProbeOutput)}


@pytest.mark.tensorflow
def test_every_benchmark_does_its_work(probe_outputs):
    """One test covers all benchmarks, because their zygotes take seconds to start."""
    assert len({case.workload for case in probe_outputs}) >= 60
    wrong = []
    for case, one in probe_outputs.items():
        metric_values = read(one)
        ops = set(metric_values.counts.get("optimized_ops", {})) - IDLE
        compiled = {instruction.op for text in one.modules.values() for instruction in graphs.instructions(text)}
        if "graph" in one.found and not ops:
            wrong.append(f"{case.name}: its graph is empty")
        if one.modules and not compiled & ARITHMETIC:
            wrong.append(f"{case.name}: XLA left nothing of it but {sorted(compiled)}")
        wanted = set(WORK.get(case.workload, "").split())
        if case.reference and wanted and not one.modules and not wanted & ops:
            wrong.append(f"{case.name}: none of {sorted(wanted)} among {sorted(ops)}")
        if metric_values.counts.get("nonfinite"):
            wrong.append(f"{case.name}: its result has {metric_values.counts['nonfinite']}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.tensorflow
def test_the_table_of_work_names_existing_workloads(probe_outputs):
    assert set(WORK) <= {case.workload for case in probe_outputs}
