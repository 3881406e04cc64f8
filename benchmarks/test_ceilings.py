"""Ceilings of this machine: its peak arithmetic rate and memory bandwidth.

A run that includes them reports the share of the ceiling for every benchmark with operations or bytes.
"""

import pytest
import tensorflow as tf

from benchmarks.axes import PRECISION, by_scale
from benchmarks.inputs import normal
from tfbench import across


@across(PRECISION)
def test_arithmetic(bench, variant):
    """A matrix product so large that multiplying and adding take nearly all of its time."""
    n = by_scale(768, 8192, 12_288)
    a, b = variant.cast(normal(n, n, seed=1)), variant.cast(normal(n, n, seed=2))
    product = tf.function(lambda a, b: tf.matmul(a, b), jit_compile=False)
    bench(product, a, b, flops=2 * n**3, bytes=3 * n * n * a.dtype.size, ceiling="flops", max_traces=1)


def _bench_copy(bench):
    n = by_scale(2**24, 2**28, 5 * 2**28)
    copy = tf.function(lambda x: tf.raw_ops.DeepCopy(x=x), jit_compile=False)
    bench(copy, normal(n), bytes=2 * 4 * n, ceiling="bytes", max_traces=1, expect_ops={"DeepCopy": 1})


def test_memory(bench):
    """Copy an array far larger than the caches."""
    _bench_copy(bench)


@pytest.mark.tfbench(cpus=2)
def test_memory_by_two_processors(bench):
    """The same on two processors: the ceiling of benchmarks that use two."""
    _bench_copy(bench)
