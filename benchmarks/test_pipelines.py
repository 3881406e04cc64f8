"""Input pipelines: a step consumes one epoch of a small dataset, from its first record to its end.

tf.data's rewrites are off, because they would turn a naive map into a parallel one. Its autotuning is off as well,
because the end of an iterator waits for its thread.
"""

import itertools
import time

import pytest
import tensorflow as tf

from benchmarks.axes import FEED, MEMORY, PIPELINE, READING, SERVING, SHUFFLE, STORAGE, matmul_tolerance
from benchmarks.inputs import classes, normal
from benchmarks.levels import untuned
from benchmarks.models import crossentropy, mlp, trainer
from tfbench import across, faster


def _as_written(data, threads=0):
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = threads
    return untuned(data).with_options(options)


def _epochs(batches, threads=0):
    """Return a step that computes the sums of all batches of the next epoch, without a loop in Python.

    One iterator serves all epochs, because a new one instantiates the pipeline's functions again, which takes 5 ms.
    Nothing runs between two steps: a batch larger than the epoch requests its end. By then the prefetching stages have
    stopped and a cache is complete.
    """
    epoch = batches.map(tf.reduce_sum).batch(1_000_000)
    return iter(_as_written(tf.data.Dataset.range(2**62).flat_map(lambda _: epoch), threads)).get_next


def _waiting(seconds):
    """Return a stage that delays its input, and holds neither a core nor Python's global lock meanwhile."""

    def wait(values):
        time.sleep(seconds)
        return values

    return lambda values: tf.ensure_shape(tf.numpy_function(wait, [values], values.dtype), values.shape)


# Processing of records


@faster("pipeline=prefetch", than="pipeline=naive", by=1.1)
@faster("pipeline=parallel_map", than="pipeline=naive", by=1.3)
@across(PIPELINE)
def test_pipeline_waiting(bench, variant):
    """A disk with 1.5 ms per request feeds an accelerator with 2 ms per batch. Waiting can overlap on one core."""
    records, size = 8, 2
    source = tf.data.Dataset.range(records, output_type=tf.float32)
    batches = variant.feed(source, _waiting(0.0015), size).map(_waiting(0.002))
    bench(_epochs(batches, threads=4), items=records, parity=1e-6)


@faster("pipeline=cache", than="pipeline=naive", by=1.3)
@faster("pipeline=batch_then_map", than="pipeline=naive", by=1.3)
@across(PIPELINE.only("naive", "cache", "batch_then_map"))
def test_pipeline_small_records(bench, variant):
    """A few operations on each of many small records. The call of the stage costs more than its arithmetic."""
    records, size = 256, 64
    source = tf.data.Dataset.from_tensor_slices(normal(records, 32))
    step = _epochs(variant.feed(source, lambda values: (values * 2.0 + 1.0) / 3.0, size))
    bench(step, items=records, parity=1e-5)


@pytest.mark.tfbench(cpus="all")
@across(PIPELINE.only("naive", "parallel_map"))
def test_pipeline_jpeg(bench, variant):
    """JPEG decoding keeps a core busy, so a parallel map gains with the number of cores."""
    records, size, side = 16, 4, 128
    pixels = tf.cast(tf.clip_by_value(normal(records, side, side, 3) * 40.0 + 128.0, 0.0, 255.0), tf.uint8)
    source = tf.data.Dataset.from_tensor_slices([tf.io.encode_jpeg(image).numpy() for image in pixels])

    def decode(image):
        decoded = tf.cast(tf.io.decode_jpeg(image, channels=3), tf.float32) / 255.0
        return tf.ensure_shape(decoded, [side, side, 3])

    bench(_epochs(variant.feed(source, decode, size)), items=records, parity=1e-6)


@across(MEMORY)
def test_pipeline_memory(bench, variant):
    """Images are converted to float32 before or after a buffer. Before it, the buffer takes four times the memory."""
    records, size, side = 64, 8, 64
    images = tf.cast(tf.abs(normal(records, side, side, 3)) * 80.0, tf.uint8)
    source = tf.data.Dataset.from_tensor_slices(images)
    bench(
        _epochs(variant.feed(source, lambda image: tf.cast(image, tf.float32) / 255.0, size)),
        items=records,
        parity=1e-5,
    )


# Sources of records


@faster("reading=parallel", than="reading=naive", by=1.5)
@across(READING)
def test_reading(bench, variant, tmp_path):
    """TFRecord files with 0.5 ms per record, as from a network: sequential, interleaved, or interleaved in parallel."""
    files, records = 6, 8
    paths = [str(tmp_path / f"{number}.tfrecord") for number in range(files)]
    for number, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(records):
                writer.write(tf.io.serialize_tensor(tf.fill([16], float(number * records + record))).numpy())

    def opened(path):
        return tf.data.TFRecordDataset(path).map(_waiting(0.0005))

    source = tf.data.Dataset.from_tensor_slices(paths)
    parsed = variant.read(source, opened).map(lambda text: tf.ensure_shape(tf.io.parse_tensor(text, tf.float32), [16]))
    total = parsed.batch(files * records).map(lambda values: tf.sort(tf.reduce_sum(values, axis=1)))
    bench(_epochs(total, threads=8), items=files * records, parity=1e-5)


def _costly(records=64):
    """Return batches of records that are expensive to compute: a product of small matrices each."""
    source = tf.data.Dataset.from_tensor_slices(normal(records, 64, 64))
    return source.map(lambda matrix: tf.reduce_sum(tf.matmul(matrix, matrix), axis=0)).batch(16)


@across(STORAGE)
def test_first_epoch(bench, variant, tmp_path):
    """The epoch that fills a cache: it computes and stores every record."""
    numbers, source = itertools.count(), _costly()

    def epoch():
        kept = variant.keep(source, str(tmp_path / str(next(numbers))))
        return iter(_as_written(kept.map(tf.reduce_sum).batch(1_000_000))).get_next()

    bench(epoch, items=64, parity=1e-5)


@faster("storage=memory", than="storage=naive", by=1.3)
@across(STORAGE)
def test_second_epoch(bench, variant, tmp_path):
    """The later epochs, which only read the stored records."""
    bench(_epochs(variant.keep(_costly(), str(tmp_path / "kept"))), items=64, parity=1e-5)


@across(SHUFFLE)
def test_shuffle(bench, variant):
    """Draw records in random order from a buffer that must fill first."""
    records = 2000
    batches = _epochs(variant.shuffle(tf.data.Dataset.from_tensor_slices(tf.abs(normal(records, 16)))).batch(100))
    bench(lambda: tf.reduce_sum(batches()), items=records, parity=1e-4)


@across(SERVING)
def test_service(bench, variant):
    """Batches from this process, or from a tf.data service behind a socket of this machine, one request at a time.

    The data is endless, because the service needs a second to notice an end. At most one batch is computed between
    two steps.
    """
    data, stop = variant.serve(_as_written(_costly().repeat()))
    batches = iter(data)
    bench(lambda: sum(tf.reduce_sum(next(batches)) for _ in range(4)), items=64, parity=1e-4)
    stop()


# Effect on training


@faster("input=parallel", than="input=naive", by=1.3)
@across(FEED)
def test_fed_training(bench, variant):
    """An epoch of training steps that wait for their batches. Synthetic data is the ceiling: a slower level is bound by
    input."""
    size, batches, inputs = 32, 4, 64
    train = trainer(mlp(inputs, (64,), 10), tf.keras.optimizers.SGD(1e-6), crossentropy)
    images, labels = normal(size * batches, inputs), classes(size * batches, 10)

    def load(image, label):
        return tf.ensure_shape(_waiting(0.0001)(image), [inputs]), label

    data = _as_written(variant.feed(images, labels, load, size), threads=8)

    @tf.function(jit_compile=False)
    def epoch():
        loss = 0.0
        for images, labels in data:
            loss = train(images, labels)
        return loss

    bench(epoch, items=size * batches, parity=matmul_tolerance(1e-4))
