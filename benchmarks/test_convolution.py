"""Convolutions, which do most of the arithmetic of image networks."""

import tensorflow as tf

from benchmarks.axes import COMPILER, LAYOUT, LAYOUT_UNDER_XLA, ONEDNN, PRECISION, by_scale, matmul_tolerance
from benchmarks.inputs import normal
from tfbench import across


def _bench_convolution(bench, variant, images, filters, strides=1):
    """Benchmark a convolution with "SAME" padding in the variant's precision and with its compiler."""
    batch, height, width, inputs = images.shape
    kernel, _, _, outputs = filters.shape
    pixels = batch * -(-height // strides) * -(-width // strides)
    images, filters = variant.cast(images), variant.cast(filters)

    def convolution(images, filters):
        return tf.nn.conv2d(images, filters, strides=strides, padding="SAME")

    elements = batch * height * width * inputs + kernel**2 * inputs * outputs + pixels * outputs
    bench(
        variant.compile(convolution),
        *(images, filters),
        flops=2 * pixels * outputs * kernel**2 * inputs,
        bytes=elements * images.dtype.size,
        parity=variant.parity(),
        max_traces=1,
    )


@across(PRECISION, COMPILER)
def test_conv2d_3x3(bench, variant):
    """The convolution of residual blocks, which uses every input nine times per output channel."""
    batch, side, channels = by_scale((2, 28, 32), (128, 56, 64), (256, 56, 384))
    images, filters = normal(batch, side, side, channels), normal(3, 3, channels, channels, seed=2)
    _bench_convolution(bench, variant, images, filters)


@across(PRECISION, COMPILER)
def test_conv2d_1x1(bench, variant):
    """A matrix product over pixels, as in bottlenecks and separable convolutions."""
    batch, side, channels = by_scale((2, 28, 96), (128, 28, 256), (1280, 14, 2048))
    images, filters = normal(batch, side, side, channels), normal(1, 1, channels, channels, seed=2)
    _bench_convolution(bench, variant, images, filters)


@across(PRECISION, COMPILER)
def test_conv2d_stem(bench, variant):
    """The first layer of a ResNet: large windows over three channels, which are too few to fill a vector register."""
    batch, side = by_scale((1, 96), (128, 224), (2560, 224))
    images, filters = normal(batch, side, side, 3), normal(7, 7, 3, by_scale(32, 64), seed=2)
    _bench_convolution(bench, variant, images, filters, strides=2)


@across(PRECISION, COMPILER)
def test_depthwise(bench, variant):
    """One filter per channel: at most a sixteenth of the arithmetic, but rarely a sixteenth of the time."""
    batch, side, channels = by_scale((2, 28, 64), (128, 56, 64), (1024, 56, 384))
    images = variant.cast(normal(batch, side, side, channels))
    filters = variant.cast(normal(3, 3, channels, 1, seed=2))
    pixels = batch * side * side

    def depthwise(images, filters):
        return tf.nn.depthwise_conv2d(images, filters, strides=[1, 1, 1, 1], padding="SAME")

    bench(
        variant.compile(depthwise),
        *(images, filters),
        flops=2 * pixels * channels * 9,
        bytes=(2 * pixels + 9) * channels * images.dtype.size,
        parity=variant.parity(),
        max_traces=1,
    )


@across(COMPILER)
def test_conv2d_gradient(bench, variant):
    """The gradients of filters and images, which training adds to a convolution."""
    batch, side, channels = by_scale((2, 28, 32), (128, 56, 64), (128, 56, 384))
    images, filters = normal(batch, side, side, channels), normal(3, 3, channels, channels, seed=2)
    errors = normal(batch, side, side, channels, seed=3)

    def gradient(images, filters, errors):
        with tf.GradientTape() as tape:
            tape.watch([images, filters])
            convolved = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
        return tape.gradient(convolved, [images, filters], errors)

    flops = 2 * 2 * batch * side * side * channels * 9 * channels
    bench(variant.compile(gradient), images, filters, errors, flops=flops, parity=matmul_tolerance(1e-5), max_traces=1)


# Channels last or first, in a block whose result has no layout.


def _bench_block(bench, variant, compiled):
    """Benchmark convolution, bias, relu and global average pooling."""
    batch, side, channels = by_scale((4, 28, 32), (128, 56, 64), (128, 56, 384))
    pixels = batch * side * side

    def block(images, filters, bias):
        layout = variant["layout"]
        convolved = tf.nn.conv2d(images, filters, strides=1, padding="SAME", data_format=layout)
        active = tf.nn.relu(tf.nn.bias_add(convolved, bias, data_format=layout))
        return tf.reduce_mean(active, axis=variant.pixels())

    images = variant.layout(normal(batch, side, side, channels))
    bench(
        tf.function(block, jit_compile=compiled),
        *(images, normal(3, 3, channels, channels, seed=2), normal(channels, seed=3)),
        flops=2 * pixels * channels * 9 * channels,
        bytes=4 * (pixels * channels + 9 * channels**2 + channels + batch * channels),
        parity=matmul_tolerance(1e-5),
        max_traces=1,
    )


@across(LAYOUT, ONEDNN)
def test_convolution_block(bench, variant):
    """TensorFlow's own kernels and oneDNN's, each of which was written for one layout."""
    _bench_block(bench, variant, compiled=False)


@across(LAYOUT_UNDER_XLA)
def test_convolution_block_xla(bench, variant):
    """XLA accepts both layouts, and transposes where its kernels need the other."""
    _bench_block(bench, variant, compiled=True)
