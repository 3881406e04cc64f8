"""Recurrent layers: sequential steps, so small products and the overhead between them take the time."""

import tensorflow as tf

from benchmarks.axes import COMPILER, ROLLING, by_scale, matmul_tolerance
from benchmarks.inputs import normal
from tfbench import across


def _bench_layer(bench, variant, make, gates):
    """Benchmark a Keras layer over sequences, with ``gates`` products of inputs and of states per step."""
    batch, length, width = by_scale((4, 16, 32), (32, 64, 128))
    tf.keras.utils.set_random_seed(1)
    layer = make(width, unroll=variant.unrolled())
    if variant["compiler"] == "xla":
        layer.use_cudnn = False  # Keras takes cuDNN's kernel on a GPU, which XLA cannot compile
    x = normal(batch, length, width)
    layer(x)  # creates its weights

    def run(x):
        return layer(x, training=False)

    flops = 2 * gates * batch * length * width * (width + width)
    bench(variant.compile(run), x, flops=flops, items=batch * length, parity=matmul_tolerance(1e-4), max_traces=1)


@across(COMPILER, ROLLING)
def test_lstm(bench, variant):
    """Four gates per step, in a loop of the graph or unrolled."""
    _bench_layer(bench, variant, tf.keras.layers.LSTM, gates=4)


@across(COMPILER, ROLLING)
def test_gru(bench, variant):
    """Three gates per step, in a loop of the graph or unrolled."""
    _bench_layer(bench, variant, tf.keras.layers.GRU, gates=3)
