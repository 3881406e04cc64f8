"""Input pipelines: a step consumes one epoch of a small dataset, from its first record to its end.

The pipelines run as they are written: tf.data's own rewrites are off, as they would turn a naive map into
a parallel one, and so is its tuning, whose thread needs 20 ms to stop.
"""

import time

import pytest
import tensorflow as tf

from benchmarks.axes import PIPELINE
from benchmarks.inputs import normal
from tfbench import across


def _epochs(batches, threads=0):
    """A step that draws the sums of all batches of the next epoch, gathered without a loop in Python.

    One iterator serves all epochs, as a new one instantiates the pipeline's functions again, for 5 ms.
    Nothing runs between two steps: a batch larger than the epoch asks for its end, at which the stages
    that work ahead have stopped and a cache is complete.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = threads
    epoch = batches.map(tf.reduce_sum).batch(1_000_000)
    return iter(tf.data.Dataset.range(2**62).flat_map(lambda _: epoch).with_options(options)).get_next


def _waiting(seconds):
    """A stage that passes its input on after a while, holding neither a core nor Python's lock."""

    def wait(values):
        time.sleep(seconds)
        return values

    return lambda values: tf.ensure_shape(tf.numpy_function(wait, [values], values.dtype), values.shape)


def _faster(variant, **factors):
    """The contract of a variant that has one: so many times as fast as the naive pipeline."""
    factor = factors.get(variant["pipeline"])
    return {"pipeline=naive": factor} if factor else None


@across(PIPELINE)
def test_pipeline_waiting(bench, variant):
    """A disk of 1.5 ms a request feeds an accelerator of 2 ms a batch: waiting can overlap on one core."""
    records, size = 8, 2
    source = tf.data.Dataset.range(records, output_type=tf.float32)
    batches = variant.feed(source, _waiting(0.0015), size).map(_waiting(0.002))
    bench(
        _epochs(batches, threads=4),
        items=records,
        parity=1e-6,
        faster_than=_faster(variant, prefetch=1.1, parallel_map=1.3),
    )


@across(PIPELINE.only("naive", "cache", "batch_then_map"))
def test_pipeline_small_records(bench, variant):
    """A few operations on each of many small records: calling the stage costs more than its arithmetic."""
    records, size = 256, 64
    source = tf.data.Dataset.from_tensor_slices(normal(records, 32))
    step = _epochs(variant.feed(source, lambda values: (values * 2.0 + 1.0) / 3.0, size))
    bench(step, items=records, parity=1e-5, faster_than=_faster(variant, cache=1.3, batch_then_map=1.3))


@pytest.mark.tfbench(cpus="all")
@across(PIPELINE.only("naive", "parallel_map"))
def test_pipeline_jpeg(bench, variant):
    """Decoding JPEG keeps a core busy, so a parallel map gains as much as there are cores."""
    records, size, side = 16, 4, 128
    pixels = tf.cast(tf.clip_by_value(normal(records, side, side, 3) * 40.0 + 128.0, 0.0, 255.0), tf.uint8)
    source = tf.data.Dataset.from_tensor_slices([tf.io.encode_jpeg(image).numpy() for image in pixels])

    def decode(image):
        decoded = tf.cast(tf.io.decode_jpeg(image, channels=3), tf.float32) / 255.0
        return tf.ensure_shape(decoded, [side, side, 3])

    bench(_epochs(variant.feed(source, decode, size)), items=records, parity=1e-6)
