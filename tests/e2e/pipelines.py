"""Profile a pipeline for each kind of slow stage, while it feeds ten steps: ``python -m tests.e2e.pipelines FOLDER``.

``expected.json`` maps the folder of each profile to the long name of the slow stage, without the root.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import tensorflow as tf

from tfbench.worker import profiler

STEPS = 10
FILLED = 25
"""Elements after which every buffer is drained of elements from before the profile."""
D = tf.data.Dataset


def slowly(value):
    def doze(value):
        time.sleep(0.002)
        return value

    return tf.ensure_shape(tf.numpy_function(doze, [value], tf.int64), value.shape)


def busily(value):
    """Take time by computing instead of waiting."""
    matrix = tf.random.stateless_normal([400, 400], [1, 2])
    return value + tf.cast(tf.reduce_sum(matrix @ matrix @ matrix) * 0.0, tf.int64)


def numbers():
    for number in range(10**6):
        time.sleep(0.002)
        yield number


def of_one(value):
    return D.from_tensors(value).map(slowly)


def of_four(value):
    return D.from_tensors(value).repeat(4).map(slowly)


RANGE = D.range(10**9)
PIPELINES = {
    "Prefetch::Map": RANGE.map(slowly).prefetch(2),
    "BatchV2::Map": RANGE.shuffle(8).map(busily).batch(2),
    "ParallelMapV2": RANGE.map(lambda value: value + 1).map(slowly, num_parallel_calls=2),
    "Map::Filter": RANGE.filter(lambda value: slowly(value) >= 0).map(lambda value: value + 1),
    "Scan": RANGE.take(10**6).scan(tf.constant(0, tf.int64), lambda state, value: (state, slowly(value))),
    "BatchV2::Interleave::Map": RANGE.interleave(of_one, cycle_length=2).batch(3),
    "ParallelInterleaveV4::Map": RANGE.interleave(of_four, cycle_length=2, num_parallel_calls=2),
    "Prefetch::FlatMap::Map": RANGE.flat_map(of_one).prefetch(2),
    "BatchV2::FlatMap::Generator": D.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64)).batch(2),
}
"""Long name of the slow stage -> pipeline."""


def main(folder: Path) -> None:
    matrix = tf.random.normal([64, 64])
    for slow, data in PIPELINES.items():
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        elements = iter(data.with_options(options))
        for _ in range(FILLED):
            next(elements)
        with profiler.profiled(str(folder / slow.replace("::", "-"))):
            for step in range(STEPS):
                with tf.profiler.experimental.Trace("step", step_num=step, _r=1):
                    tf.linalg.matmul(matrix, matrix) + tf.cast(tf.reduce_sum(next(elements)), tf.float32)
    (folder / "expected.json").write_text(json.dumps({slow.replace("::", "-"): slow for slow in PIPELINES}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
