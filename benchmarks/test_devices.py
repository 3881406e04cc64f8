"""GPU features, and the cost of transfers to GPUs. Without a GPU every case is skipped."""

import pytest
import tensorflow as tf

from benchmarks.axes import ALLOCATOR, AUTOTUNING, DEVICE, TF32, by_scale
from benchmarks.inputs import normal
from tfbench import across

GPU = DEVICE.only("gpu")


@across(GPU, TF32)
def test_tf32_product(bench, variant):
    """float32 products on Tensor Cores, with 10 of 23 fraction bits, or without Tensor Cores."""
    n = by_scale(256, 8192, 10_240)
    with variant.on_device():
        a, b = normal(n, n, seed=1), normal(n, n, seed=2)
    product = tf.function(lambda a, b: tf.matmul(a, b), jit_compile=False)
    bench(product, a, b, flops=2 * n**3, max_traces=1, parity=2e-3)


@across(AUTOTUNING, GPU)  # in this order, see the axis
def test_autotuned_layer(bench, variant):
    """XLA autotunes kernels in each process, takes the results from a cache on disk, or does not autotune."""
    batch, width = by_scale((64, 128), (4096, 4096))
    with variant.on_device():
        rows, weights = normal(batch, width), normal(width, width, seed=2)
    layer = tf.function(lambda x, w: tf.nn.gelu(tf.matmul(x, w)), jit_compile=True)
    bench(layer, rows, weights, flops=2 * batch * width**2, max_traces=1, parity=1e-2)


@across(GPU, ALLOCATOR)
def test_allocations(bench, variant):
    """Allocation of tensors of many sizes, one after the other, by TensorFlow's allocator or CUDA's."""
    sizes = [2**power + 64 * power for power in range(12, 24)]

    @tf.function(jit_compile=False)
    def passes():
        return tf.add_n([tf.reduce_sum(tf.sort(tf.random.uniform([size]))) for size in sizes])

    def step():
        with variant.on_device():
            return passes()

    bench(step, items=len(sizes))


@pytest.mark.parametrize("megabytes", [1, 64])
@across(GPU)
def test_copy_to_device(bench, variant, megabytes):
    """Copy from host memory, as for a batch of input."""
    size = megabytes * 2**18
    with tf.device("CPU:0"):
        batch = normal(size)

    def step():
        with variant.on_device():
            return tf.identity(batch)

    bench(step, bytes=4 * size)


@pytest.mark.parametrize("megabytes", [1, 64])
@across(GPU)
def test_all_reduce_over_gpus(bench, variant, megabytes):
    """Sum one gradient over all GPUs. The bandwidth is that of a ring, which moves 2 (n - 1) / n of the bytes."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus < 2:
        pytest.skip(f"this machine has {gpus} GPUs; run on a machine with at least two")
    size = megabytes * 2**18
    strategy = tf.distribute.MirroredStrategy()
    gradient = normal(size)

    @tf.function(jit_compile=False)
    def summed():
        def replica():
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient)

        return strategy.experimental_local_results(strategy.run(replica))

    bench(summed, bytes=4 * size * 2 * (gpus - 1) / gpus)
