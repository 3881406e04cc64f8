"""Fusion: whether merging an op with those after it saves passes over memory.

Filters, biases and moments are arguments: as captured constants they would keep grappler from fusing.
"""

import tensorflow as tf

from benchmarks.axes import FUSION, FUSION_BY_XLA
from benchmarks.inputs import normal
from tfbench import across

PARITY = 1e-5
"""Merging saves passes over memory and changes no arithmetic beyond its order."""


def merged(variant, op):
    """What grappler must have made of it, or left alone; on a GPU it merges other patterns than on a CPU."""
    return None if tf.config.list_physical_devices("GPU") else {op: int(variant["fusion"] == "fused")}


@across(FUSION)
def test_conv2d_bias_relu(bench, variant):
    """Conv2D, BiasAdd and Relu as one _FusedConv2D or as three ops."""
    batch, side, inputs, outputs, kernel = 2, 112, 8, 32, 3
    pixels = batch * side * side
    images = normal(batch, side, side, inputs)
    filters = normal(kernel, kernel, inputs, outputs, seed=2)
    bias = normal(outputs, seed=3)

    def conv2d_bias_relu(images, filters, bias):
        convolved = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
        return tf.nn.relu(tf.nn.bias_add(convolved, bias))

    bench(
        tf.function(conv2d_bias_relu, jit_compile=False),
        *(images, filters, bias),
        flops=2 * pixels * outputs * kernel**2 * inputs,
        bytes=4 * (pixels * (inputs + outputs) + kernel**2 * inputs * outputs + outputs),
        expect_ops=merged(variant, "_FusedConv2D"),
        max_traces=1,
        parity=PARITY,
    )


@across(FUSION)
def test_conv2d_batchnorm_relu(bench, variant):
    """Conv2D, batch normalisation for inference and Relu as one _FusedConv2D or as three ops."""
    batch, side, inputs, outputs, kernel = 2, 112, 8, 32, 3
    pixels = batch * side * side
    images = normal(batch, side, side, inputs)
    filters = normal(kernel, kernel, inputs, outputs, seed=2)
    scale, offset, mean = normal(outputs, seed=3), normal(outputs, seed=4), normal(outputs, seed=5)
    variance = 1.0 + tf.abs(normal(outputs, seed=6))

    def conv2d_batchnorm_relu(images, filters, *moments):
        convolved = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
        return tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(convolved, *moments, is_training=False)[0])

    bench(
        tf.function(conv2d_batchnorm_relu, jit_compile=False),
        *(images, filters, scale, offset, mean, variance),
        flops=2 * pixels * outputs * kernel**2 * inputs,
        bytes=4 * (pixels * (inputs + outputs) + kernel**2 * inputs * outputs + 4 * outputs),
        expect_ops=merged(variant, "_FusedConv2D"),
        max_traces=1,
        parity=PARITY,
    )


@across(FUSION)
def test_dense_bias_relu(bench, variant):
    """MatMul, BiasAdd and Relu as one _FusedMatMul or as three ops."""
    batch, inputs, outputs = 2048, 16, 512
    rows, weights, bias = normal(batch, inputs), normal(inputs, outputs, seed=2), normal(outputs, seed=3)

    def dense_bias_relu(rows, weights, bias):
        return tf.nn.relu(tf.nn.bias_add(tf.matmul(rows, weights), bias))

    bench(
        tf.function(dense_bias_relu, jit_compile=False),
        *(rows, weights, bias),
        flops=2 * batch * inputs * outputs,
        bytes=4 * (batch * inputs + inputs * outputs + outputs + batch * outputs),
        expect_ops=merged(variant, "_FusedMatMul"),
        max_traces=1,
        parity=PARITY,
    )


@across(FUSION_BY_XLA)
def test_multiply_add_sum(bench, variant):
    """reduce_sum(x + y * z): one pass over three arrays under XLA, seven passes' worth of traffic without."""
    n = 2**22
    x, y, z = normal(n, seed=1), normal(n, seed=2), normal(n, seed=3)

    def multiply_add_sum(x, y, z):
        return tf.reduce_sum(x + y * z)

    bench(variant.compile(multiply_add_sum), x, y, z, flops=3 * n, bytes=3 * 4 * n, parity=1e-4)
