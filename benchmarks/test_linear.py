"""Linear algebra: square matrices are bound by arithmetic, thin ones by memory."""

import pytest
import tensorflow as tf

from benchmarks.axes import ALIGNMENT, COMPILER, DEVICE, ONEDNN, PRECISION, by_scale, matmul_tolerance
from benchmarks.inputs import normal
from tfbench import across


def product(a, b):
    """Call tf.matmul with its tensors only. Its other eight arguments cost a tf.function 0.3 ms per call."""
    return tf.matmul(a, b)


def _bench_product(bench, variant, a, b):
    """Benchmark the product of two matrices, or of batches of them, by the variant's precision and compiler."""
    *batch, m, k = a.shape
    n, batch = b.shape[-1], batch[0] if batch else 1
    a, b = variant.cast(a), variant.cast(b)
    bench(
        variant.compile(product),
        *(a, b),
        flops=2 * batch * m * k * n,
        bytes=batch * (m * k + k * n + m * n) * a.dtype.size,
        parity=variant.parity(),
        max_traces=1,
    )


@across(PRECISION, COMPILER)
def test_matmul(bench, variant):
    """Square matrix product, the compute-bound extreme, by precision and compiler."""
    n = by_scale(384, 4096, 10_240)
    _bench_product(bench, variant, normal(n, n, seed=1), normal(n, n, seed=2))


@across(PRECISION, COMPILER)
def test_tall_product(bench, variant):
    """A tall matrix times a narrow one, as in a dense layer with few units: less arithmetic per number read."""
    m, k, n = by_scale((4096, 256, 16), (65_536, 1024, 64), (3 * 2**20, 512, 256))
    _bench_product(bench, variant, normal(m, k, seed=1), normal(k, n, seed=2))


@across(PRECISION, COMPILER)
def test_batched_product(bench, variant):
    """Many small products in one op, as in attention."""
    batch, n = by_scale((16, 96), (256, 256), (4096, 512))
    _bench_product(bench, variant, normal(batch, n, n, seed=1), normal(batch, n, n, seed=2))


@across(PRECISION.only("float32", "mixed_float16"), ALIGNMENT)
def test_aligned_product(bench, variant):
    """Dimensions divisible by 16, and one less: Tensor Cores and vector registers need divisible ones."""
    n = by_scale(384, 4096, 10_240) - variant.off()
    a, b = variant.cast(normal(n, n, seed=1)), variant.cast(normal(n, n, seed=2))
    bench(
        tf.function(product, jit_compile=False),
        *(a, b),
        flops=2 * n**3,
        bytes=3 * n * n * a.dtype.size,
        max_traces=1,
    )


@across(COMPILER)
def test_vector_matrix(bench, variant):
    """A row times a square matrix: two operations per weight, so memory is the bound."""
    n = by_scale(1024, 8192)
    row, matrix = normal(1, n, seed=1), normal(n, n, seed=2)
    bench(
        variant.compile(product), row, matrix, flops=2 * n * n, bytes=4 * (n * n + 2 * n), parity=matmul_tolerance(1e-5)
    )


@across(ONEDNN)
@pytest.mark.parametrize("shape", [(256, 256, 256), (2048, 64, 64)], ids=["square", "tall"])
def test_product_by_library(bench, variant, shape):
    """TensorFlow's own matrix product (Eigen) and oneDNN's. Both run on the CPU, even if there is a GPU."""
    m, k, n = shape
    work = {"flops": 2 * m * k * n, "bytes": 4 * (m * k + k * n + m * n)}

    def on_processor(a, b):
        with tf.device("CPU:0"):
            return product(a, b)

    with tf.device("CPU:0"):
        a, b = normal(m, k, seed=1), normal(k, n, seed=2)
    bench(tf.function(on_processor, jit_compile=False), a, b, parity=1e-5, max_traces=1, **work)


@across(COMPILER)
def test_gram_sum(bench, variant):
    """Sum of a [5000, 5] matrix times its transpose. Fused, it never writes the product of 100 MB."""
    rows, columns = 5000, 5

    def gram_sum(x):
        return tf.reduce_sum(tf.matmul(x, x, transpose_b=True))

    x = normal(rows, columns)
    bench(
        variant.compile(gram_sum),
        x,
        flops=(2 * columns + 1) * rows**2,
        bytes=4 * rows * columns,
        parity=matmul_tolerance(1e-3),
    )


@across(DEVICE)
def test_large_product(bench, variant):
    """A product that occupies an accelerator, on each device. Larger ones take seconds on one processor."""
    n = by_scale(512, 2048)
    with variant.on_device():
        a, b = normal(n, n, seed=1), normal(n, n, seed=2)
        bench(
            tf.function(product, jit_compile=False),
            a,
            b,
            flops=2 * n**3,
            bytes=3 * 4 * n * n,
            parity=matmul_tolerance(1e-3),
        )
