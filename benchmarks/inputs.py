"""Create the inputs of benchmarks: the same numbers in every process, so that variants' results are comparable."""

from __future__ import annotations

import tensorflow as tf


def normal(*shape: int, seed: int = 1) -> tf.Tensor:
    """Return normally distributed float32 numbers. Another seed gives other numbers."""
    return tf.random.stateless_normal(shape, seed=[seed, 0])


def classes(count: int, below: int, seed: int = 1) -> tf.Tensor:
    """Return class labels from 0 to ``below - 1``, shape (count,)."""
    return tf.random.stateless_uniform([count], seed=[seed, 1], maxval=below, dtype=tf.int32)


def ids(draw: str, count: int, below: int) -> tf.Tensor:
    """Return row numbers from 0 to ``below - 1``: ``uniform``, or ``skewed`` with frequency 1 / k, as of words."""
    if draw == "uniform":
        return classes(count, below)
    uniform = tf.random.stateless_uniform([count], seed=[1, 2], minval=1e-6)
    return tf.cast(tf.pow(float(below), uniform), tf.int32) - 1
