"""Normalization and softmax: few operations per number read, so memory passes are the bound."""

import tensorflow as tf

from benchmarks.axes import COMPILER, LAYOUT, LAYOUT_UNDER_XLA, NORMALIZATION, PRECISION, by_scale
from benchmarks.inputs import normal
from tfbench import across

EPSILON = 1e-3


def _images():
    return normal(*by_scale((4, 28, 28, 64), (128, 56, 56, 64), (6144, 56, 56, 64)))


@across(NORMALIZATION, COMPILER)
def test_batchnorm_training(bench, variant):
    """Batch normalization by the moments of the batch, as one kernel or composed of a dozen ops."""
    images = _images()
    scale, offset = normal(64, seed=2), normal(64, seed=3)
    elements = images.shape.num_elements()

    def batchnorm(images, scale, offset):
        return variant.normalize(images, scale, offset, EPSILON)

    bench(
        variant.compile(batchnorm),
        *(images, scale, offset),
        flops=8 * elements,
        bytes=3 * 4 * elements,
        parity=1e-4,
        max_traces=1,
        expect_ops=None
        if variant["compiler"] == "xla"
        else {"FusedBatchNormV3": int(variant["normalization"] == "fused")},
    )


@across(NORMALIZATION, LAYOUT)
def test_batchnorm_layout(bench, variant):
    """The same as one kernel or composed, channels last and first."""
    images = variant.layout(_images())
    scale, offset = normal(64, seed=2), normal(64, seed=3)
    elements = images.shape.num_elements()

    def batchnorm(images, scale, offset):
        normalized = variant.normalize(images, scale, offset, EPSILON, variant["layout"])
        return tf.reduce_max(normalized, axis=variant.pixels())

    work = {"flops": 8 * elements, "bytes": 2 * 4 * elements}
    bench(tf.function(batchnorm, jit_compile=False), images, scale, offset, parity=1e-4, max_traces=1, **work)


def _bench_inference(bench, variant, compiled):
    images = variant.layout(_images())
    scale, offset, mean = normal(64, seed=2), normal(64, seed=3), normal(64, seed=4)
    variance = 1.0 + tf.abs(normal(64, seed=5))
    elements = images.shape.num_elements()

    def batchnorm(images, *moments):
        layout = variant["layout"]
        normalized = tf.compat.v1.nn.fused_batch_norm(images, *moments, data_format=layout, is_training=False)[0]
        return tf.reduce_mean(normalized, axis=variant.pixels())

    bench(
        tf.function(batchnorm, jit_compile=compiled),
        *(images, scale, offset, mean, variance),
        flops=2 * elements,
        bytes=4 * elements,
        parity=1e-4,
        max_traces=1,
    )


@across(LAYOUT)
def test_batchnorm_inference(bench, variant):
    """Batch normalization by known moments: two operations per number, channels last and first."""
    _bench_inference(bench, variant, compiled=False)


@across(LAYOUT_UNDER_XLA)
def test_batchnorm_inference_xla(bench, variant):
    """The same, compiled by XLA."""
    _bench_inference(bench, variant, compiled=True)


@across(PRECISION, COMPILER)
def test_layer_norm(bench, variant):
    """Layer normalization by the moments of each row, composed of ops that XLA fuses."""
    rows, columns = by_scale((512, 256), (4096, 768), (3 * 2**19, 768))
    x = variant.cast(normal(rows, columns))
    scale, offset = variant.cast(normal(columns, seed=2)), variant.cast(normal(columns, seed=3))

    def layer_norm(x, scale, offset):
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, EPSILON)

    elements = rows * columns
    bench(
        variant.compile(layer_norm),
        *(x, scale, offset),
        flops=8 * elements,
        bytes=2 * elements * x.dtype.size,
        parity=4 * variant.parity(),
        max_traces=1,
    )


@across(PRECISION, COMPILER)
def test_softmax(bench, variant):
    """Softmax over rows: passes for the maximum, the sum of exponentials and the ratio, which XLA can fuse."""
    rows, columns = by_scale((256, 1024), (4096, 1024), (9 * 2**17, 1024))
    logits = variant.cast(normal(rows, columns))
    elements = rows * columns

    def softmax(logits):
        return tf.nn.softmax(logits)

    bench(
        variant.compile(softmax),
        logits,
        flops=5 * elements,
        bytes=2 * elements * logits.dtype.size,
        parity=2 * variant.parity(),
        max_traces=1,
    )
