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
    "ResourceApplyAdam AssignSubVariableOp": "adam",
    "MatMul": "aligned_product arithmetic large_product matmul product_by_library tall_product vector_matrix",
    "CollectiveReduceV2": "all_reduce",
    "BatchMatMulV2 Softmax": "attention",
    "BatchMatMulV2": "batched_product",
    "FusedBatchNormV3": "batchnorm_inference batchnorm_training",
    "Conv2D": "conv2d_1x1 conv2d_3x3 conv2d_stem image_inference",
    "_FusedConv2D": "conv2d_batchnorm_relu conv2d_bias_relu conv2d_squeeze_bias pruning clustering",
    "Conv2DBackpropFilter Conv2DBackpropInput": "conv2d_gradient",
    "_FusedConv2D Mean": "convolution_block",
    "Cumsum": "cumulative_sum",
    "_FusedMatMul": "dense_bias_relu inference training_on_batch training_step",
    "DepthwiseConv2dNative": "depthwise",
    "GatherV2": "embedding",
    "UnsortedSegmentSum": "embedding_gradient",
    "RFFT": "fft",
    "AddV2 Mul": "function_call",
    "MatMul Sum": "gram_sum",
    "LoopCond": "gru lstm",
    "Softmax": "keras_attention softmax transformer_step",
    "Mean SquaredDifference": "layer_norm",
    "DeepCopy": "memory",
    "ResizeBilinear": "resize",
    "Conv2DBackpropFilter": "resnet_step",
    "Sum": "row_sums",
    "AssignSubVariableOp ResourceApplyGradientDescent": "sgd",
    "TopKV2": "sort top_k",
}
"""Ops, of which the reference variants of these workloads have at least one in their optimized graphs."""
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
        compiled = {instruction.op for text in one.modules for instruction in graphs.instructions(text)}
        if "graph" in one.found and not ops:
            wrong.append(f"{case.name}: its graph is empty")
        if one.modules and not compiled & ARITHMETIC:
            wrong.append(f"{case.name}: XLA left nothing of it but {sorted(compiled)}")
        wanted = {op for ops, names in WORK.items() if case.workload[5:] in names.split() for op in ops.split()}
        if case.reference and wanted and not one.modules and not wanted & ops:
            wrong.append(f"{case.name}: none of {sorted(wanted)} among {sorted(ops)}")
        if metric_values.counts.get("nonfinite"):
            wrong.append(f"{case.name}: its result has {metric_values.counts['nonfinite']}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.tensorflow
def test_the_table_of_work_names_existing_workloads(probe_outputs):
    assert {f"test_{name}" for names in WORK.values() for name in names.split()} <= {
        one.workload for one in probe_outputs
    }
