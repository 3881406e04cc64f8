"""The regressions that find.py looks for: what was reported, and between which sides it is raced."""

from __future__ import annotations

from dataclasses import dataclass

TIME, MEMORY, OPS = "time", "peak_host_memory", "graph_ops"
REPORTED = "benchmarks/reported"


@dataclass(frozen=True)
class Finding:
    """A reported regression, or a new one."""

    name: str
    threads: tuple[str, ...]
    """Such as ``keras#22823``; empty for a regression that had not been reported."""
    claim: str
    case: str
    """Selects the benchmark, as pytest's -k."""
    good: str
    bad: str
    named: str
    """The cause that the thread or the fix names, ``""`` if they name none."""
    metric: str = TIME
    path: str = REPORTED
    fixed: str = ""
    """A later side to look for the fix in. The releases between it and the bad side are bisected."""
    fixed_from: str = ""
    """The side from which that search starts, if it is not the bad one."""
    since: str = ""
    """What the bad side is, if the ends are no releases."""
    refuted: str = ""
    """What was measured besides, and shows that a difference is not the one that was reported."""
    limit: str = ""
    """Why this machine can only show a part of the claim."""


FINDINGS = (
    Finding(
        "dense_rank3", ("keras#22823", "keras#22832"), "an intermediate of 607 GiB in training on a GPU",
        "dense_rank3", "tensorflow==2.21.0+keras==3.15.0", "tensorflow==2.21.0+keras==3.14.1",
        "tensordot's MatMul became BatchMatMulV2 and Sum",
    ),
    Finding(
        "dense_rank3_since", ("keras#22823",), "good in 2.15.1, bad in Keras 3.0 to 3.14",
        "dense_rank3", "2.15.1", "2.16.2", "tensordot's MatMul became BatchMatMulV2 and Sum",
    ),
    Finding(
        "dense_rank3_memory", ("keras#22823", "keras#22832"), "an intermediate of 607 GiB in training on a GPU",
        "dense_rank3", "tensorflow==2.21.0+keras==3.15.0", "tensorflow==2.21.0+keras==3.14.1",
        "the gradient's BatchMatMulV2 keeps one product per row of the batch", metric=MEMORY,
    ),
    Finding(
        "embedding_optimizer", ("tf-keras#45", "keras#18279", "NVIDIA-Merlin/models#1098"),
        "severalfold; twice for Adagrad", "embedding_optimizer and current", "2.10.1", "2.11.1",
        "SGD assigns and adds its momentum to the whole table", fixed="2.16.2",
    ),
    Finding(
        "embedding_optimizer_legacy", ("tf-keras#45",), "the legacy optimizers of the same release are not slow",
        "embedding_optimizer and legacy", "2.10.1", "2.11.1", "",
    ),
    Finding(
        "sums_of_inputs", ("tensorflow#61363", "keras#18301", "tf-keras#155"), "4.5 times: 24 s instead of 5.3 s",
        "sums_of_inputs", "2.12.1", "2.13.1", "",
    ),
    Finding(
        "predict_memory", ("tensorflow#58676",), "grows to 15 GB in 2.10 and 2.11; flat up to 2.8",
        "predict_memory", "tensorflow==2.10.1+python==3.10+env:TF_RUN_EAGER_OP_AS_FUNCTION=false",
        "tensorflow==2.10.1+python==3.10",
        "eager ops run as functions (TF_RUN_EAGER_OP_AS_FUNCTION)",
        metric=MEMORY,
        since="the default of 2.10.1",
    ),
    Finding(
        "eager_zeros_memory", ("tensorflow#62551", "tensorflow#65675", "tensorflow#68196", "tensorflow#60131"),
        "grows without end on Python 3.11, not on 3.10", "eager_zeros_memory",
        "tensorflow==2.15.1+python==3.10", "tensorflow==2.15.1+python==3.11", "", since="Python 3.11",
        metric=MEMORY,
    ),
    Finding(
        "py_function_memory", ("tensorflow#61344",), "leaks without bound in 2.13, not in 2.15",
        "py_function_memory", "2.15.1", "2.13.1", "", refuted="the peak is 2 MiB higher in 2.13, and grows by 5 MiB per 100 batches in 2.13, 2.15 and on Python 3.10",
        metric=MEMORY,
    ),
    Finding(
        "py_function_map", ("tensorflow#61344",), "at least 1.67 times: fewer than 1,800 steps an hour, 3,000 before",
        "py_function_map", "2.15.1", "2.17.1", "",
    ),
    Finding(
        "augmentation_layer", ("tensorflow#58108", "tensorflow#56242", "keras-cv#291", "keras-cv#1480"),
        "7.41 s against 0.0042 s", "augmentation_layer", "2.12.1", "2.11.1",
        "vectorized_map falls back to a while loop over the images",
    ),
    Finding(
        "dropout_stack", ("keras#19953",), "slower in Keras 3 than in Keras 2", "dropout_stack", "2.15.1", "2.16.2",
        "suspected: Dropout draws stateless numbers and updates its seed's variable",
    ),
    Finding(
        "layer_normalization", ("keras#20003",), "no fused layer normalization in Keras 3",
        "layer_normalization", "2.15.1", "2.16.2", "FusedBatchNormV3 became moments, Rsqrt and Mul", metric=OPS,
    ),
    Finding(
        "eager_lstm", ("keras#18854", "keras#18859"), "`fit` is several times slower in Keras 3.0.0",
        "eager_lstm", "tensorflow==2.16.1+keras==3.0.1", "tensorflow==2.16.1+keras==3.0.0",
        "a tf.function around the layer is made and traced in every call",
    ),
    Finding(
        "compiled_fit_memory", ("tensorflow#64170", "NNPDF/nnpdf#2135"), "XLA leaks memory in 2.16.1, not in 2.15",
        "compiled_fit_memory", "2.15.1", "2.16.1", "", metric=MEMORY, limit="reported on a GPU",
    ),
    Finding(
        "bidirectional_lstm", ("keras#18971",), "70% slower in 2.15 than in 2.7", "bidirectional_lstm",
        "2.10.1", "2.15.1", "", limit="2.7 has no wheel for Python 3.10, so the race starts at 2.10",
    ),
    Finding(
        "repeated_fit_memory", ("tf-keras#286", "tensorflow#61791"), "flat in 2.9.2, grows in 2.11 to 2.13",
        "repeated_fit_memory", "2.10.1", "2.13.1", "", metric=MEMORY,
        limit="reported on a GPU machine; 2.10 is the oldest version that tfbench measures",
    ),
    Finding(
        "text_vectorization", ("keras#20249", "tensorflow#75423"), "training slower in 2.17 than in 2.15",
        "text_vectorization", "2.15.1", "2.17.1", "multi-hot output is int64 instead of float32",
        limit="reported on a GPU",
    ),
    Finding(
        "xla_softmax", (), "", "test_softmax and xla and float32", "2.17.1", "2.18.1", "",
        path="benchmarks/test_normalization.py", fixed="2.21.0", fixed_from="2.19.1",
    ),
    Finding(
        "xla_thunk_runtime",
        (),
        "",
        "test_softmax and xla and float32",
        "tensorflow==2.19.1+env:XLA_FLAGS=--xla_cpu_use_thunk_runtime=false",
        "tensorflow==2.19.1",
        "",
        path="benchmarks/test_normalization.py",
        since="the default of 2.19.1",
    ),
    Finding(
        "segment_sum", (), "", "test_embedding_gradient and none and uniform", "2.19.1", "2.21.0", "",
        path="benchmarks/test_embedding.py",
    ),
)  # fmt: skip
