"""Distribution: one training step over several replicas, and the cost of reducing their gradients."""

import os

import pytest
import tensorflow as tf

from benchmarks import peer
from benchmarks.axes import REPLICAS, by_scale, matmul_tolerance
from benchmarks.inputs import normal
from tfbench import across


@pytest.mark.tfbench(cpus=2)
@pytest.mark.parametrize("size", [10_000, 1_000_000], ids=["40kB", "4MB"])
@across(REPLICAS.only("2"))
def test_all_reduce(bench, variant, size):
    """Sum one gradient of this size over two replicas. A single replica has nothing to sum."""
    bench(peer.summed(variant.strategy()), normal(size), bytes=2 * 4 * size, max_traces=1)


@pytest.mark.tfbench(cpus=2)
@across(REPLICAS)
def test_mirrored_step(bench, variant):
    """A training step on one batch, split over the replicas. Its efficiency is the ratio to one replica."""
    batch, width = by_scale((128, 256), (4096, 4096))
    strategy = variant.strategy()
    with strategy.scope():
        weights = tf.Variable(normal(width, width) * 0.01)
    images = normal(batch, width)

    @tf.function(jit_compile=False)
    def training_step(images):
        def replica(images):
            context = tf.distribute.get_replica_context()
            share = batch // strategy.num_replicas_in_sync
            number = context.replica_id_in_sync_group
            mine = images[number * share : (number + 1) * share]
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(tf.matmul(mine, weights)))
            gradient = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, weights))
            weights.assign_sub(1e-12 * gradient)
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(images,)), axis=None)

    bench(training_step, images, flops=4 * batch * width * width, items=batch, parity=matmul_tolerance(1e-4))


@pytest.mark.tfbench(cpus=2)
@pytest.mark.parametrize("size", [10_000, 1_000_000], ids=["40kB", "4MB"])
def test_workers_all_reduce(bench, size):
    """Sum one gradient of this size over two processes, through sockets of this machine."""
    first, second = peer.cluster(2)
    other = peer.start(second, size)
    try:
        os.environ["TF_CONFIG"] = first
        bench(peer.reducing(size), bytes=2 * 4 * size, max_traces=1)
    finally:
        other.kill()
