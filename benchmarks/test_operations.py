"""Operations around networks: selecting, sorting, resizing, transforming, reducing."""

import tensorflow as tf

from benchmarks.axes import CACHE, COMPILER, PRECISION, by_scale
from benchmarks.inputs import normal
from tfbench import across


@across(COMPILER)
def test_top_k(bench, variant):
    """The ten largest values of each row, as for a classifier or a search over words."""
    rows, columns = by_scale((32, 4096), (256, 32_768))
    bench(
        variant.compile(lambda scores: tf.math.top_k(scores, k=10, sorted=True)),
        normal(rows, columns),
        items=rows * columns,
        bytes=4 * rows * columns,
        parity=1e-6,
        max_traces=1,
    )


@across(COMPILER)
def test_sort(bench, variant):
    """Sort each row."""
    rows, columns = by_scale((16, 2048), (256, 16_384))
    size = rows * columns
    step = variant.compile(lambda x: tf.sort(x, axis=-1))
    bench(step, normal(rows, columns), items=size, bytes=8 * size, parity=1e-6, max_traces=1)


@across(COMPILER)
def test_resize(bench, variant):
    """Resize images by bilinear interpolation, as in image pipelines."""
    batch, side, target = by_scale((2, 96, 128), (64, 256, 224))
    pixels = batch * target**2 * 3
    step = variant.compile(lambda images: tf.image.resize(images, [target, target]))
    bench(step, normal(batch, side, side, 3), items=batch, flops=7 * pixels, parity=1e-4, max_traces=1)


@across(COMPILER)
def test_fft(bench, variant):
    """Spectra of real signals, with 2.5 n log2 n operations each."""
    rows, n = by_scale((64, 1024), (4096, 4096))
    flops = int(2.5 * rows * n * (n.bit_length() - 1))
    step = variant.compile(lambda x: tf.math.real(tf.signal.rfft(x)))
    bench(step, normal(rows, n), flops=flops, parity=1e-4, max_traces=1)


@across(COMPILER)
def test_cumulative_sum(bench, variant):
    """Cumulative sums, in which every result needs the previous one."""
    rows, columns = by_scale((64, 2048), (1024, 16_384))
    size = rows * columns
    step = variant.compile(lambda x: tf.cumsum(x, axis=1))
    bench(step, normal(rows, columns), flops=size, bytes=8 * size, parity=1e-4, max_traces=1)


@across(PRECISION, COMPILER)
def test_row_sums(bench, variant):
    """Sums of rows: one operation per number read."""
    rows, columns = by_scale((512, 1024), (8192, 8192), (32_768, 32_768))
    x = variant.cast(tf.abs(normal(rows, columns)))
    step = variant.compile(lambda x: tf.reduce_sum(x, axis=1))
    work = {"flops": rows * columns, "bytes": rows * columns * x.dtype.size}
    bench(step, x, parity=4 * variant.parity(), max_traces=1, **work)


@across(CACHE)
def test_sum_in_cache(bench, variant):
    """The sum of an array that fits into the last cache: its numbers come from there, or from memory."""
    n = by_scale(2**20, 2**22)
    step = tf.function(lambda x: tf.reduce_sum(x), jit_compile=False)
    bench(step, tf.abs(normal(n)), flops=n, bytes=4 * n, cache=variant["cache"], parity=1e-4, max_traces=1)
