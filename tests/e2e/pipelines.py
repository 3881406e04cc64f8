"""Profile pipelines of random stages, one of them slow, while each feeds ten steps.

``python -m tests.e2e.pipelines FOLDER COUNT`` writes a profile per pipeline and ``expected.json``: folder
of the profile -> long name of the slow stage, without the root.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import tensorflow as tf

from tfbench.worker import profiler

SLEEP = 0.002
STEPS = 10
FILLED = 25
"""Elements after which every buffer is drained of elements from before the profile."""
D = tf.data.Dataset


def doze(value):
    time.sleep(SLEEP)
    return value


def slowly(value):
    return tf.ensure_shape(tf.numpy_function(doze, [value], tf.int64), value.shape)


def busily(value):
    """Take time by computing instead of waiting."""
    matrix = tf.random.stateless_normal([400, 400], [1, 2])
    return value + tf.cast(tf.reduce_sum(matrix @ matrix @ matrix) * 0.0, tf.int64)


def awake(value):
    return tf.ensure_shape(slowly(value), value.shape) >= 0


def numbers():
    number = 0
    while True:
        time.sleep(SLEEP)
        yield number
        number += 1


# Stage -> the function that adds it, and its name in a profile
LIGHT = {
    "map": (lambda data: data.map(lambda value: value + 1), "Map"),
    "parallel map": (lambda data: data.map(lambda value: value + 1, num_parallel_calls=2), "ParallelMapV2"),
    "shuffle": (lambda data: data.shuffle(8), "Shuffle"),
    "filter": (lambda data: data.filter(lambda value: tf.reduce_all(value >= 0)), "Filter"),
    "prefetch": (lambda data: data.prefetch(2), "Prefetch"),
    "take": (lambda data: data.take(10**6), "FiniteTake"),
}
SLOW = {
    "map": (lambda data: data.map(slowly), "Map"),
    "busy map": (lambda data: data.map(busily), "Map"),
    "parallel map": (lambda data: data.map(slowly, num_parallel_calls=2), "ParallelMapV2"),
    "filter": (lambda data: data.filter(lambda value: tf.reduce_all(awake(value))), "Filter"),
    "scan": (lambda data: data.scan(tf.constant(0, tf.int64), lambda state, value: (state, slowly(value))), "Scan"),
    "interleave": (
        lambda data: data.interleave(lambda value: D.from_tensors(value).map(slowly), cycle_length=2),
        "Interleave::Map",
    ),
    "parallel interleave": (
        lambda data: data.interleave(
            lambda value: D.from_tensors(value).repeat(4).map(slowly), cycle_length=2, num_parallel_calls=2
        ),
        "ParallelInterleaveV4::Map",
    ),
    "flat map": (lambda data: data.flat_map(lambda value: D.from_tensors(value).map(slowly)), "FlatMap::Map"),
}
SOURCES = {
    "range": (lambda: D.range(10**9), "Range"),
    "slices": (lambda: D.from_tensor_slices(tf.range(10**5, dtype=tf.int64)), "TensorSlice"),
}
GENERATOR = (
    lambda: D.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64)),
    "FlatMap::Generator",
)


def pipeline(rng: random.Random, slow: str):
    """Return a dataset, and the long name of its slow stage, starting at the root."""
    light = [LIGHT[name] for name in rng.sample(sorted(LIGHT), rng.randint(1, 3))]
    place = rng.randint(0, len(light))
    make, source = GENERATOR if slow == "generator" else SOURCES[rng.choice(sorted(SOURCES))]
    stages = list(light)
    if slow != "generator":
        stages.insert(place, SLOW[slow])
    if rng.random() < 0.5:
        size = rng.randint(2, 3)
        stages.append((lambda data: data.batch(size), "BatchV2"))
    data = make()
    for stage, _ in stages:
        data = stage(data)
    names = [name for _, name in reversed(stages)]
    wanted = [*names, source] if slow == "generator" else names[: len(stages) - place]
    return data, "::".join(wanted)


def main(folder: Path, count: int) -> None:
    rng = random.Random(20261121)
    matrix = tf.random.normal([64, 64])
    expected = {}
    kinds = [*SLOW, "generator"]
    for number in range(count):
        slow = kinds[number % len(kinds)]
        data, wanted = pipeline(rng, slow)
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        elements = iter(data.with_options(options))
        for _ in range(FILLED):
            next(elements)
        name = f"{number:02}-{slow.replace(' ', '-')}"
        with profiler.profiled(str(folder / name)):
            for step in range(STEPS):
                with tf.profiler.experimental.Trace("step", step_num=step, _r=1):
                    tf.linalg.matmul(matrix, matrix) + tf.cast(tf.reduce_sum(next(elements)), tf.float32)
        expected[name] = wanted
    (folder / "expected.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
