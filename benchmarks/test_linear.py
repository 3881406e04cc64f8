"""Linear algebra: bound by arithmetic where matrices are square, by memory where they are thin."""

import tensorflow as tf

from benchmarks.axes import COMPILER, DEVICE, PRECISION
from benchmarks.inputs import normal
from tfbench import across


def product(a, b):
    """tf.matmul with its tensors alone: its other eight arguments cost a tf.function 0.3 ms a call."""
    return tf.matmul(a, b)


@across(PRECISION, COMPILER)
def test_matmul(bench, variant):
    """Square matrix product: what precision and compiler do to the compute-bound extreme."""
    n = 384
    a, b = variant.cast(normal(n, n, seed=1)), variant.cast(normal(n, n, seed=2))
    bench(
        variant.compile(product), a, b, flops=2 * n**3, bytes=3 * n * n * a.dtype.size,
        parity=variant.parity(), max_traces=1,
    )  # fmt: skip


@across(COMPILER)
def test_vector_matrix(bench, variant):
    """A row times a square matrix: each weight is read for two operations, so memory is the bound."""
    n = 1024
    row, matrix = normal(1, n, seed=1), normal(n, n, seed=2)
    bench(variant.compile(product), row, matrix, flops=2 * n * n, bytes=4 * (n * n + 2 * n), parity=1e-5)


@across(COMPILER)
def test_gram_sum(bench, variant):
    """Product of a random [5000, 5] matrix with its transpose, summed: 100 MB that need not be written."""
    rows, columns = 5000, 5

    def gram_sum(x):
        return tf.reduce_sum(tf.matmul(x, x, transpose_b=True))

    x = normal(rows, columns)
    bench(variant.compile(gram_sum), x, flops=(2 * columns + 1) * rows**2, bytes=4 * rows * columns, parity=1e-3)


@across(DEVICE)
def test_large_product(bench, variant):
    """A product large enough to fill an accelerator, on each device."""
    n = 512
    with variant.on_device():
        a, b = normal(n, n, seed=1), normal(n, n, seed=2)
        bench(tf.function(product, jit_compile=False), a, b, flops=2 * n**3, bytes=3 * 4 * n * n)
