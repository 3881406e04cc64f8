"""Steps that a harness changes most easily: they draw numbers eagerly, or write to a log."""

import logging

import tensorflow as tf


def test_uniform(bench):
    """Eager random numbers: a seed of TensorFlow's would make a kernel in each call."""
    bench(lambda: tf.random.uniform([8]))


def test_dropout(bench):
    """An eager layer that draws."""
    x = tf.ones([8, 64])
    bench(lambda: tf.nn.dropout(x, 0.5))


def test_log(bench):
    """A record of a log in each call, which pytest would keep."""
    logger = logging.getLogger("benchmarks.harness")
    bench(lambda x: logger.warning("%s", x) or x, 1)
