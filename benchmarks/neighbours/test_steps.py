"""Steps for `python -m benchmarks.neighbours`. Each is one side of a pair."""

from __future__ import annotations

import pytest
import tensorflow as tf

from benchmarks.levels import untuned

LOOPS = (800, 816, 8_000, 8_800, 60_000, 80_000, 420_000, 441_000, 1_600_000, 8_000_000, 10_400_000)


def loop(turns: int) -> int:
    for _ in range(turns):
        pass
    return turns


@pytest.mark.parametrize("turns", LOOPS)
def test_loop(bench, turns):
    bench(loop, turns)


@pytest.mark.parametrize("times", [4, 20, 40, 60])
def test_matmul(bench, times):
    @tf.function
    def products(x):
        for _ in range(times):
            x = tf.linalg.matmul(x, x) * 0.01
        return x

    bench(products, tf.random.uniform((160, 160)))


@pytest.mark.parametrize("elements", [32, 160, 800, 960])
def test_dataset(bench, elements):
    data = tf.data.Dataset.range(elements).map(lambda i: tf.reduce_sum(tf.fill((32, 32), i)), num_parallel_calls=2)
    data = untuned(data.prefetch(2))  # the end of an iterator waits up to 40 ms for the thread that tunes
    bench(tf.function(lambda: data.reduce(tf.constant(0, tf.int64), lambda total, x: total + x)))


@pytest.mark.parametrize("window", [1, 256])
def test_first_element(bench, window):
    def resized(i):
        return tf.image.resize(tf.fill((256, 256, 3), tf.cast(i, tf.float32)), (224, 224))

    data = tf.data.Dataset.range(256).map(resized).shuffle(window)
    bench.once(lambda: next(iter(data)))
