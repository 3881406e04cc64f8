"""Input pipelines that became slower, as reported."""

import tensorflow as tf


def doubled(number):
    return tf.py_function(lambda value: value.numpy() * 2.0, [number], tf.float64)


def test_py_function_map(bench):
    """tensorflow#61344: training from tf.py_function in Dataset.map is slower in 2.17 than in 2.15.

    Claim: fewer than 1,800 steps an hour instead of 3,000, at least 1.67 times slower.
    """
    batches = iter(tf.data.Dataset.range(10**6).map(doubled).batch(64).repeat())
    next(batches)
    bench.once(lambda: [next(batches) for _ in range(40)])
