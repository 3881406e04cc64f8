"""Attention: two batched products with a softmax between them. The scores cause most of the memory traffic."""

import tensorflow as tf

from benchmarks.axes import COMPILER, PRECISION, by_scale
from benchmarks.inputs import normal
from tfbench import across


def _work(batch, heads, length, depth, size):
    """Work of the two products. Queries, keys, values and the result are the least traffic."""
    return {"flops": 4 * batch * heads * length**2 * depth, "bytes": 4 * batch * heads * length * depth * size}


@across(PRECISION, COMPILER)
def test_attention(bench, variant):
    """Attention composed of ops, which write, normalize and read the scores of all pairs, unless XLA fuses them."""
    batch, heads, length, depth = by_scale((1, 4, 128, 32), (16, 8, 1024, 64), (16, 16, 2048, 256))
    query, key, value = (variant.cast(normal(batch, heads, length, depth, seed=seed)) for seed in (1, 2, 3))

    def attention(query, key, value):
        scores = tf.matmul(query, key, transpose_b=True) * depth**-0.5
        return tf.matmul(tf.nn.softmax(scores), value)

    work = _work(batch, heads, length, depth, query.dtype.size)
    bench(variant.compile(attention), query, key, value, parity=4 * variant.parity(), max_traces=1, **work)


@across(PRECISION.only("float32", "mixed_float16"), COMPILER)
def test_keras_attention(bench, variant):
    """Keras' MultiHeadAttention of a sequence with itself, including its four projections."""
    batch, heads, length, depth = by_scale((1, 4, 128, 32), (16, 8, 1024, 64), (16, 16, 2048, 256))
    tf.keras.utils.set_random_seed(1)
    layer = tf.keras.layers.MultiHeadAttention(heads, depth)
    width = heads * depth
    x = variant.cast(normal(batch, length, width))
    layer(x[:1, :1], x[:1, :1])  # creates its weights

    def self_attention(x):
        return layer(x, x, training=False)

    work = _work(batch, heads, length, depth, x.dtype.size)
    work["flops"] += 8 * batch * length * width**2
    work["bytes"] = 2 * batch * length * width * x.dtype.size + 4 * 4 * width**2
    bench(variant.compile(self_attention), x, parity=4 * variant.parity(), max_traces=1, **work)
