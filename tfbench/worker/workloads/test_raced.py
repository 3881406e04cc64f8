"""The fixed workloads, measured by tfbench. No op runs before a function of `STEPS` is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

Step = tuple[Callable[..., Any], tuple[Any, ...]]


def _twice(function: Callable[..., Any], *shape: int) -> Step:
    """Return a tf.function that is called with the same random tensor twice."""
    x = tf.random.normal(shape)
    return tf.function(function), (x, x)


def _training_step() -> Step:
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


STEPS: dict[str, Callable[[], Step]] = {
    # Host overhead: the cheapest eager op, another eager op, a tf.function.
    "identity": lambda: (tf.identity, (tf.constant(1.0),)),
    "eager_add": lambda: (tf.add, (tf.constant(1.0), tf.constant(2.0))),
    "function_call": lambda: (tf.function(lambda a, b: a + b), (tf.constant(1.0), tf.constant(2.0))),
    "softmax": lambda: (tf.function(lambda x: tf.nn.softmax(x)), (tf.random.normal([64, 1024]),)),
    "einsum": lambda: _twice(lambda a, b: tf.einsum("bij,bjk->bik", a, b), 8, 64, 64),
    "cumsum": lambda: (tf.function(lambda x: tf.cumsum(x, axis=1)), (tf.random.normal([128, 1024]),)),
    "matmul": lambda: _twice(lambda a, b: tf.matmul(a, b), 384, 384),
    "convolution": lambda: (
        tf.function(lambda x, k: tf.nn.conv2d(x, k, 1, "SAME")),
        (tf.random.normal([4, 56, 56, 32]), tf.random.normal([3, 3, 32, 32])),
    ),
    "xla_layer": lambda: (
        tf.function(lambda a, b: tf.nn.gelu(tf.matmul(a, b)), jit_compile=True),
        (tf.random.normal([128, 256]), tf.random.normal([256, 256])),
    ),
    "training_step": _training_step,
    # A million elements, bound by memory.
    "elementwise": lambda: _twice(lambda a, b: a + b, 1 << 20),
    "sort": lambda: (tf.function(lambda x: tf.sort(x)), (tf.random.normal([100_000]),)),
    # Tens of milliseconds per step, so few rounds per launch.
    "large_matmul": lambda: _twice(lambda a, b: tf.matmul(a, b), 1280, 1280),
}
"""Name -> a function that returns a step and its arguments."""


@pytest.mark.parametrize("name", STEPS)
def test_step(bench: Any, name: str) -> None:
    """One of the fixed workloads."""
    step, arguments = STEPS[name]()
    bench(step, *arguments)
