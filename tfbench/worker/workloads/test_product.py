"""The benchmarks of the GPU check: a product that keeps a GPU busy, or a small one on a CPU, and a light step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

LARGE, SMALL = 4096, 256


def test_product(bench: Any) -> None:
    """A matrix product in float32."""
    size = LARGE if tf.config.list_physical_devices("GPU") else SMALL
    matrix = tf.random.normal([size, size])
    bench(tf.function(lambda a, b: tf.matmul(a, b), jit_compile=False), matrix, matrix, flops=2 * size**3)


def test_sum(bench: Any) -> None:
    """A sum that leaves a GPU almost idle."""
    numbers = tf.random.normal([SMALL])
    bench(tf.function(lambda a: tf.reduce_sum(a), jit_compile=False), numbers)
