"""Inputs of the benchmarks: the same numbers in every process, so that variants' results can be compared."""

from __future__ import annotations

import tensorflow as tf


def normal(*shape: int, seed: int = 1) -> tf.Tensor:
    """Normal numbers in float32; another seed gives other ones."""
    return tf.random.stateless_normal(shape, seed=[seed, 0])


def classes(count: int, below: int, seed: int = 1) -> tf.Tensor:
    """Class labels from 0 to ``below - 1``."""
    return tf.random.stateless_uniform([count], seed=[seed, 1], maxval=below, dtype=tf.int32)
