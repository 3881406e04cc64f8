"""Layout: channels last or channels first, in a block that ends in an answer without layout."""

import tensorflow as tf

from benchmarks.axes import LAYOUT, LAYOUT_UNDER_XLA, ONEDNN
from benchmarks.inputs import normal
from tfbench import across

BATCH, SIDE, CHANNELS, KERNEL = 8, 28, 32, 3
PIXELS = BATCH * SIDE * SIDE
WORK = {
    "flops": 2 * PIXELS * CHANNELS * KERNEL**2 * CHANNELS,
    "bytes": 4 * (PIXELS * CHANNELS + KERNEL**2 * CHANNELS**2 + CHANNELS + BATCH * CHANNELS),
    "parity": 1e-5,
}


def _convolution_block(variant):
    """Convolution, bias, relu and global average pooling, with its arguments."""

    def block(images, filters, bias):
        layout = variant["layout"]
        convolved = tf.nn.conv2d(images, filters, strides=1, padding="SAME", data_format=layout)
        active = tf.nn.relu(tf.nn.bias_add(convolved, bias, data_format=layout))
        return tf.reduce_mean(active, axis=variant.pixels())

    images = variant.layout(normal(BATCH, SIDE, SIDE, CHANNELS))
    filters, bias = normal(KERNEL, KERNEL, CHANNELS, CHANNELS, seed=2), normal(CHANNELS, seed=3)
    return block, images, filters, bias


@across(LAYOUT, ONEDNN)
def test_convolution_block(bench, variant):
    """TensorFlow's own kernels and oneDNN's: each has a layout that it was written for."""
    block, *arguments = _convolution_block(variant)
    bench(tf.function(block, jit_compile=False), *arguments, **WORK)


@across(LAYOUT_UNDER_XLA)
def test_convolution_block_xla(bench, variant):
    """XLA takes either layout and transposes where its kernels want the other."""
    block, *arguments = _convolution_block(variant)
    bench(tf.function(block, jit_compile=True), *arguments, **WORK)
