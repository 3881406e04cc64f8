"""Single kernels that networks are made of."""

import tensorflow as tf

from benchmarks.axes import COMPILER
from benchmarks.inputs import normal
from tfbench import across


@across(COMPILER)
def test_softmax(bench, variant):
    """Softmax over rows: passes for the maximum, the sum of exponentials and the ratio, to be merged."""
    rows, columns = 512, 1024
    logits = normal(rows, columns)
    elements = rows * columns

    def softmax(logits):
        return tf.nn.softmax(logits)

    bench(variant.compile(softmax), logits, flops=5 * elements, bytes=2 * 4 * elements, parity=1e-5)
