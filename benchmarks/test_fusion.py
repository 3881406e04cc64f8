"""Fusion: the saving of memory passes by fusing an op with the ops after it, by grappler or XLA.

Filters, biases and moments are arguments, because captured constants would prevent grappler's fusion.
"""

import tensorflow as tf

from benchmarks.axes import FUSION, FUSION_BY_XLA, by_scale, matmul_tolerance
from benchmarks.inputs import normal
from tfbench import across

PARITY = 1e-5
"""Error allowed in fused ops: fusion changes only the order of the arithmetic."""


def _bench_convolution(bench, variant, step, moments):
    """Benchmark a step on images, filters and this many vectors of moments. The fourth is a variance."""
    shapes = (2, 112, 8, 32, 3), (64, 112, 64, 64, 3), (320, 112, 128, 128, 3)
    batch, side, inputs, outputs, kernel = by_scale(*shapes)
    pixels = batch * side * side
    vectors = [normal(outputs, seed=3 + number) for number in range(moments)]
    vectors[3:] = [1.0 + tf.abs(variance) for variance in vectors[3:]]
    bench(
        variant.compile(step),
        *(normal(batch, side, side, inputs), normal(kernel, kernel, inputs, outputs, seed=2), *vectors),
        flops=2 * pixels * outputs * kernel**2 * inputs,
        bytes=4 * (pixels * (inputs + outputs) + kernel**2 * inputs * outputs + moments * outputs),
        parity=matmul_tolerance(PARITY),
        max_traces=1,
        **variant.proves("_FusedConv2D"),
    )


@across(FUSION)
def test_conv2d_bias_relu(bench, variant):
    """Conv2D, BiasAdd and Relu as one _FusedConv2D or as three ops."""

    def conv2d_bias_relu(images, filters, bias):
        convolved = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
        return tf.nn.relu(tf.nn.bias_add(convolved, bias))

    _bench_convolution(bench, variant, conv2d_bias_relu, moments=1)


@across(FUSION)
def test_conv2d_batchnorm_relu(bench, variant):
    """Conv2D, batch normalization for inference and Relu as one _FusedConv2D or as three ops."""

    def conv2d_batchnorm_relu(images, filters, *moments):
        convolved = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
        return tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(convolved, *moments, is_training=False)[0])

    _bench_convolution(bench, variant, conv2d_batchnorm_relu, moments=4)


@across(FUSION)
def test_conv2d_squeeze_bias(bench, variant):
    """Conv2D over one row, Squeeze and BiasAdd as one _FusedConv2D or as three ops. A Keras Conv1D is built so."""
    shapes = (8, 1024, 16, 32, 5), (256, 4096, 64, 64, 5), (768, 8192, 128, 128, 5)
    batch, length, inputs, outputs, kernel = by_scale(*shapes)
    rows = normal(batch, 1, length, inputs)
    filters, bias = normal(1, kernel, inputs, outputs, seed=2), normal(outputs, seed=3)

    def conv2d_squeeze_bias(rows, filters, bias):
        convolved = tf.nn.conv2d(rows, filters, strides=1, padding="SAME")
        return tf.nn.bias_add(tf.squeeze(convolved, [1]), bias)

    bench(
        variant.compile(conv2d_squeeze_bias),
        *(rows, filters, bias),
        flops=2 * batch * length * outputs * kernel * inputs,
        bytes=4 * (batch * length * (inputs + outputs) + kernel * inputs * outputs + outputs),
        parity=matmul_tolerance(PARITY),
        max_traces=1,
        **variant.proves("_FusedConv2D"),
    )


@across(FUSION)
def test_dense_bias_relu(bench, variant):
    """MatMul, BiasAdd and Relu as one _FusedMatMul or as three ops."""
    batch, inputs, outputs = by_scale((2048, 16, 512), (8192, 1024, 4096), (131_072, 1024, 4096))
    rows, weights, bias = normal(batch, inputs), normal(inputs, outputs, seed=2), normal(outputs, seed=3)

    def dense_bias_relu(rows, weights, bias):
        return tf.nn.relu(tf.nn.bias_add(tf.matmul(rows, weights), bias))

    bench(
        variant.compile(dense_bias_relu),
        *(rows, weights, bias),
        flops=2 * batch * inputs * outputs,
        bytes=4 * (batch * inputs + inputs * outputs + outputs + batch * outputs),
        parity=matmul_tolerance(PARITY),
        max_traces=1,
        **variant.proves("_FusedMatMul"),
    )


@across(FUSION_BY_XLA)
def test_multiply_add_sum(bench, variant):
    """reduce_sum(x + y * z): one pass over three arrays with XLA, the traffic of seven passes without XLA."""
    n = by_scale(2**22, 2**26, 3 * 2**28)
    x, y, z = normal(n, seed=1), normal(n, seed=2), normal(n, seed=3)

    def multiply_add_sum(x, y, z):
        return tf.reduce_sum(x + y * z)

    step = variant.compile(multiply_add_sum)
    bench(step, x, y, z, flops=3 * n, bytes=3 * 4 * n, parity=1e-4, **variant.proves())


@across(FUSION_BY_XLA)
def test_gelu(bench, variant):
    """A chain of nine elementwise ops over one array: nine passes, or one if fused."""
    n = by_scale(2**18, 2**26, 9 * 2**27)

    def gelu(x):
        return 0.5 * x * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    bench(variant.compile(gelu), normal(n), flops=9 * n, bytes=2 * 4 * n, parity=1e-5, **variant.proves())
