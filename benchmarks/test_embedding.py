"""Embeddings: rows of a large table, whose access is bound by memory latency."""

import math

import pytest
import tensorflow as tf

from benchmarks.axes import COMPILER, by_scale
from benchmarks.inputs import ids, normal
from tfbench import across


def _table_and_ids(draw):
    rows, width, count = by_scale((50_000, 32, 4096), (1_000_000, 128, 65_536))
    return normal(rows, width), ids(draw, count, rows)


@pytest.mark.parametrize("draw", ["uniform", "skewed"])
@across(COMPILER)
def test_embedding(bench, variant, draw):
    """Look up rows. In a skewed draw, as of words, a few frequent rows stay in the cache."""
    table, rows = _table_and_ids(draw)
    width, count = table.shape[1], len(rows)

    def lookup(table, rows):
        return tf.reduce_sum(tf.gather(table, rows), axis=1)

    bench(variant.compile(lookup), table, rows, items=count, bytes=4 * count * width, parity=1e-5, max_traces=1)


@pytest.mark.parametrize("draw", ["uniform", "skewed"])
@across(COMPILER)
def test_embedding_gradient(bench, variant, draw):
    """Add errors to their rows. Repeated ids add to the same row."""
    table, rows = _table_and_ids(draw)
    width, count = table.shape[1], len(rows)
    errors = normal(count, width, seed=2)

    def gradient(rows, errors):
        return tf.math.unsorted_segment_sum(errors, rows, table.shape[0])

    bench(
        variant.compile(gradient),
        rows,
        errors,
        items=count,
        bytes=4 * (count + len(table)) * width,
        parity=1e-4,
        max_traces=1,
    )


@across(COMPILER)
def test_sparse_adam(bench, variant):
    """Adam with gradients for few rows, while the averages of every row decay (keras#19992)."""
    table, rows = _table_and_ids("uniform")
    weights, errors = tf.Variable(table), 0.001 * normal(len(rows), table.shape[1], seed=2)
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build([weights])
    shape = tf.constant(table.shape.as_list())

    def update(errors, rows):
        optimizer.apply_gradients([(tf.IndexedSlices(errors, rows, shape), weights)])
        return weights[0]

    words = 6 * math.prod(table.shape) + math.prod(errors.shape)
    bench(variant.compile(update), errors, rows, items=len(rows), bytes=4 * words, max_traces=1)
