"""Inputs of the benchmarks: the same numbers in every process, so that variants' results can be compared."""

from __future__ import annotations

import tensorflow as tf


def normal(*shape: int, seed: int = 1) -> tf.Tensor:
    """Normal numbers in float32; another seed gives other ones."""
    return tf.random.stateless_normal(shape, seed=[seed, 0])


def classes(count: int, below: int, seed: int = 1) -> tf.Tensor:
    """Class labels from 0 to ``below - 1``."""
    return tf.random.stateless_uniform([count], seed=[seed, 1], maxval=below, dtype=tf.int32)


def ids(draw: str, count: int, below: int) -> tf.Tensor:
    """Row numbers from 0 to ``below - 1``: ``uniform``, or ``skewed`` as words are, the k-th about 1 / k of the time."""
    if draw == "uniform":
        return classes(count, below)
    uniform = tf.random.stateless_uniform([count], seed=[1, 2], minval=1e-6)
    return tf.cast(tf.pow(float(below), uniform), tf.int32) - 1
