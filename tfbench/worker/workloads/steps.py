"""The steps: name -> a function that returns a step and its arguments. No op runs before the function is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Step = tuple[Callable[..., Any], tuple[Any, ...]]


def identity() -> Step:
    """The cheapest eager op."""
    return tf.identity, (tf.constant(1.0),)


def eager_add() -> Step:
    """Host overhead of an eager op."""
    return tf.add, (tf.constant(1.0), tf.constant(2.0))


def function_call() -> Step:
    """Host overhead of a tf.function."""
    return tf.function(lambda a, b: a + b), (tf.constant(1.0), tf.constant(2.0))


def softmax() -> Step:
    return tf.function(lambda x: tf.nn.softmax(x)), (tf.random.normal([64, 1024]),)


def einsum() -> Step:
    x = tf.random.normal([8, 64, 64])
    return tf.function(lambda a, b: tf.einsum("bij,bjk->bik", a, b)), (x, x)


def cumsum() -> Step:
    return tf.function(lambda x: tf.cumsum(x, axis=1)), (tf.random.normal([128, 1024]),)


def matmul() -> Step:
    x = tf.random.normal([384, 384])
    return tf.function(lambda a, b: tf.matmul(a, b)), (x, x)


def convolution() -> Step:
    image, kernel = tf.random.normal([4, 56, 56, 32]), tf.random.normal([3, 3, 32, 32])
    return tf.function(lambda x, k: tf.nn.conv2d(x, k, 1, "SAME")), (image, kernel)


def xla_layer() -> Step:
    x, w = tf.random.normal([128, 256]), tf.random.normal([256, 256])
    return tf.function(lambda a, b: tf.nn.gelu(tf.matmul(a, b)), jit_compile=True), (x, w)


def training_step() -> Step:
    """Forward, backward and update of a small network."""
    weights = [tf.Variable(tf.random.normal([256, 256])) for _ in range(2)]
    x = tf.random.normal([64, 256])

    @tf.function
    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = batch
            for weight in weights:
                hidden = tf.nn.relu(tf.matmul(hidden, weight)) * 0.1
            loss = tf.reduce_mean(hidden * hidden)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(1e-3 * gradient)
        return loss

    return step, (x,)


def elementwise() -> Step:
    """A million elements, bound by memory."""
    x = tf.random.normal([1 << 20])
    return tf.function(lambda a, b: a + b), (x, x)


def sort() -> Step:
    return tf.function(lambda x: tf.sort(x)), (tf.random.normal([100_000]),)


def large_matmul() -> Step:
    """Tens of milliseconds per step, so few rounds per launch."""
    x = tf.random.normal([1280, 1280])
    return tf.function(lambda a, b: tf.matmul(a, b)), (x, x)


STEPS: dict[str, Callable[[], Step]] = {
    step.__name__: step
    for step in (
        identity, eager_add, function_call, softmax, einsum, cumsum, matmul, convolution, xla_layer, training_step,
        elementwise, sort, large_matmul,
    )
}  # fmt: skip
