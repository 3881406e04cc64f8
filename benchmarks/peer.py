"""Run a second worker on this machine, which takes part in every step of the first one until it is killed.

It is forked, so that it need not import TensorFlow, which takes longer than all the steps of a launch.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.process import BaseProcess

import tensorflow as tf


def cluster(workers: int) -> list[str]:
    """Return the TF_CONFIG of each worker, on free ports of this machine."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(workers)]
        addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    return [
        json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
        for index in range(workers)
    ]


def start(settings: str, size: int) -> BaseProcess:
    """Start a peer, which ends when it is killed or its parent ends. No op may have run in this process before."""
    other = multiprocessing.get_context("fork").Process(target=_take_part, args=(settings, size), daemon=True)
    other.start()
    return other


def _take_part(settings: str, size: int) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TF_CONFIG"] = settings
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    step = reducing(size)
    while True:
        step()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(0)


def reducing(size: int) -> Callable[[], tf.Tensor]:
    """Return a step that sums a gradient over all workers of TF_CONFIG. It must be the first op of its process.

    The workers exchange it in a ring, as they do on a CPU: NCCL, the default on GPUs, refuses two workers on one GPU.
    """
    experimental = tf.distribute.experimental
    ring = experimental.CommunicationOptions(implementation=experimental.CommunicationImplementation.RING)
    reduced = summed(tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring))
    gradient = tf.random.stateless_normal([size], seed=[1, 0])
    return lambda: reduced(gradient)


def summed(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function that sums a gradient over all replicas."""

    @tf.function(jit_compile=False)
    def reduced(gradient):
        def replica(gradient):
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(gradient))

        return strategy.experimental_local_results(strategy.run(replica, args=(gradient,)))[0]

    return reduced
