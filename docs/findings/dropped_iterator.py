"""Time how long it takes to drop an iterator of tf.data, after it has been read for a while, and a call of predict().

    python docs/findings/dropped_iterator.py

It needs TensorFlow and Linux. The first half runs on one processor, and the second half on all.
"""

import os
import statistics
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf

READING = (0.02, 0.1, 0.4, 1.0)
"""Seconds for which an iterator is read."""
TIMES = 10


def seconds_to_drop(data: tf.data.Dataset, reading: float) -> float:
    """Return how long the end of an iterator takes."""
    began = time.perf_counter()
    iterator = iter(data)
    while time.perf_counter() - began < reading:
        next(iterator)
    dropped = time.perf_counter()
    del iterator
    return time.perf_counter() - dropped


def seconds_to_predict(data: tf.data.Dataset, model: tf.keras.Model) -> float:
    """Return how long a call of predict() takes."""
    began = time.perf_counter()
    model.predict(data, verbose=0)
    return time.perf_counter() - began


def main() -> None:
    options = tf.data.Options()
    options.autotune.enabled = False
    plain = tf.data.Dataset.range(10**7)
    batch = tf.data.Dataset.from_tensors(tf.zeros([8, 32]))
    model = tf.keras.Sequential([tf.keras.Input((32,)), tf.keras.layers.Dense(10)])
    model.predict(batch, verbose=0)
    every = os.sched_getaffinity(0)
    print(f"TensorFlow {tf.__version__}: milliseconds to drop an iterator, sorted")
    for cpus in ({max(every)}, every):
        os.sched_setaffinity(0, cpus)
        on = f"{len(cpus)} processor{'s' * (len(cpus) > 1)}"
        for name, data in (("autotuned", plain), ("not autotuned", plain.with_options(options))):
            for reading in READING:
                found = sorted(1e3 * seconds_to_drop(data, reading) for _ in range(TIMES))
                what = f"{on}, {name}, read for {1e3 * reading:4.0f} ms:"
                print(f"{what:45}", " ".join(f"{one:4.0f}" for one in found))
        for name, data in (("autotuned", batch), ("not autotuned", batch.with_options(options))):
            found = [1e3 * seconds_to_predict(data, model) for _ in range(TIMES)]
            print(f"{on}, {name}, predict() of one batch, median: {statistics.median(found):.1f} ms")


if __name__ == "__main__":
    main()
