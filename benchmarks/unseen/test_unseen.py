"""Workloads of other kinds than the fixed ones, to measure how often intervals hold the true ratio on unseen code.

No threshold of a policy was chosen on them. A step takes 20 µs to 30 ms on one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

Step = tuple[Callable[..., Any], tuple[Any, ...]]

layers, normal = tf.keras.layers, tf.random.normal


def _words(count: int) -> Any:
    return tf.constant([f"word{number:05d} of some-text" for number in range(count)])


def _image(size: int, dtype: Any = tf.float32) -> Any:
    return tf.cast(tf.random.stateless_uniform([size, size, 3], [1, 2], maxval=256, dtype=tf.int32), dtype)


def _sparse(size: int = 512, step: int = 37) -> Any:
    places = np.stack(np.unravel_index(np.arange(0, size * size, step), (size, size)), axis=1)
    return tf.SparseTensor(places, normal([len(places)]), [size, size])


def _ragged_sum() -> Step:
    """Sum the rows of a ragged tensor, and pad it."""
    lengths = [row % 17 for row in range(500)]
    ragged = tf.RaggedTensor.from_row_lengths(normal([sum(lengths)]), tf.constant(lengths))
    return tf.function(lambda rows: (tf.reduce_sum(rows, axis=1), rows.to_tensor())), (ragged,)


def _sets_intersection() -> Step:
    """Intersect 100 pairs of sets of 16 numbers."""
    numbers = tf.range(1600, dtype=tf.int64)
    a, b = tf.reshape(numbers, [100, 16]), tf.reshape(numbers + 8, [100, 16])
    return tf.function(lambda a, b: tf.sets.intersection(a, b).values), (a, b)


def _crop_and_resize() -> Step:
    """Cut 16 boxes out of an image."""
    boxes = tf.constant([[0.02 * box, 0.01 * box, 0.5 + 0.02 * box, 0.6 + 0.02 * box] for box in range(16)])
    crop = tf.function(lambda image: tf.image.crop_and_resize(image, boxes, [0] * 16, [24, 24]))
    return crop, (_image(64)[tf.newaxis],)


def _adjust_color() -> Step:
    """Change hue and saturation of an image."""
    change = tf.function(lambda image: tf.image.adjust_saturation(tf.image.adjust_hue(image, 0.1), 0.7))
    return change, (_image(64) / 255,)


def _parse_example() -> Step:
    """Parse 64 records of a float vector and a label."""

    def record(label: int) -> bytes:
        floats = tf.train.Feature(float_list=tf.train.FloatList(value=[label / 7] * 16))
        number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
        example = tf.train.Example(features=tf.train.Features(feature={"x": floats, "y": number}))
        return bytes(example.SerializeToString())

    features = {"x": tf.io.FixedLenFeature([16], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    records = tf.constant([record(label) for label in range(64)])
    return tf.function(lambda records: tf.io.parse_example(records, features)), (records,)


def _decode_csv() -> Step:
    """Decode 200 rows of eight numbers."""
    rows = tf.constant([",".join(str(row + column / 8) for column in range(8)) for row in range(200)])
    return tf.function(lambda rows: tf.io.decode_csv(rows, [[0.0]] * 8)), (rows,)


def _decode_raw() -> Step:
    """Read 64 strings of 1,024 bytes as numbers."""
    strings = tf.constant([np.arange(512, dtype=np.int16).tobytes()] * 64)
    return tf.function(lambda strings: tf.cast(tf.io.decode_raw(strings, tf.int16), tf.float32)), (strings,)


def _lookup_table() -> Step:
    """Look 500 strings up in a table."""
    words = _words(500)
    pairs = tf.lookup.KeyValueTensorInitializer(words, tf.range(500))
    return tf.lookup.StaticHashTable(pairs, -1).lookup, (words,)


def _while_loop() -> Step:
    """Fill a TensorArray in a loop of 100 turns."""

    def loop(x: Any) -> Any:
        values = tf.TensorArray(tf.float32, 100)
        _, values = tf.while_loop(lambda i, _: i < 100, lambda i, v: (i + 1, v.write(i, tf.tanh(x))), (0, values))
        return values.stack()

    return tf.function(loop), (normal([32]),)


def _numpy() -> Step:
    """Standardize a matrix with TensorFlow's NumPy."""
    tnp = tf.experimental.numpy
    return lambda x: (x - tnp.mean(x, axis=0)) / tnp.sqrt(tnp.var(x, axis=0) + 1e-6), (tnp.ones([128, 256]),)


def _attention() -> Step:
    """Attention with two heads."""
    x = normal([4, 32, 32])
    return tf.function(layers.MultiHeadAttention(2, 16)), (x, x)


def _pipeline_batch() -> Step:
    """The next batch of a mapped dataset."""
    data = tf.data.Dataset.range(2**60).map(lambda number: tf.cast(number, tf.float32) * 0.5).batch(32)
    return iter(data).get_next, ()


def _pipeline_shuffle() -> Step:
    """The next batch of a shuffled dataset."""
    iterator = iter(tf.data.Dataset.range(2**60).shuffle(256).batch(64))
    return lambda: next(iterator), ()


def _gradient_tape() -> Step:
    """Gradients of an eager computation."""
    weight, x = tf.Variable(normal([64, 64])), normal([32, 64])

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ weight) ** 2)
        return tape.gradient(loss, weight)

    return step, ()


def _optimizer_step() -> Step:
    """Update two variables with Adam."""
    weights = [tf.Variable(normal([64, 64])) for _ in range(2)]
    gradients = [normal([64, 64]) for _ in weights]
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(weights)

    def step() -> Any:
        optimizer.apply_gradients(list(zip(gradients, weights, strict=True)))
        return weights[0].read_value()

    return tf.function(step), ()


def _sleep() -> Step:
    """Wait 4 ms, as for an answer from the network, and sum the answer."""
    x = normal([64, 64])

    def step() -> Any:
        time.sleep(0.004)
        return tf.reduce_sum(x)

    return step, ()


def _waits(number: Any) -> Any:
    time.sleep(0.003)
    return number


def _pipeline_waiting() -> Step:
    """The next batch of a dataset whose elements wait 3 ms, two at a time."""
    data = tf.data.Dataset.range(2**60).map(lambda number: tf.numpy_function(_waits, [number], tf.int64), 2)
    return iter(data.batch(4).prefetch(1)).get_next, ()


def _pipeline_generator() -> Step:
    """The next batch of a dataset from a Python generator."""

    def numbers() -> Iterator[int]:
        number = 0
        while True:
            yield (number := number + 1)

    data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64)).batch(8)
    return iter(data).get_next, ()


def _py_function() -> Step:
    """A graph that calls Python."""
    return tf.function(lambda x: tf.py_function(lambda value: value * 2.0, [x], tf.float32)), (normal([32, 32]),)


def _keras_fit() -> Step:
    """An epoch of four batches."""
    model = tf.keras.Sequential([layers.Dense(16), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = normal([64, 8]), normal([64, 1])
    return lambda: model.fit(x, y, batch_size=16, verbose=0).history["loss"], ()


STEPS: dict[str, Callable[[], Step]] = {
    # Strings
    "strings_join": lambda: (tf.strings.join, ([_words(2000)] * 2, "-")),
    "strings_split": lambda: (tf.strings.split, (_words(500),)),
    "strings_replace": lambda: (
        tf.function(lambda words: tf.strings.regex_replace(words, "[0-9]+", "#")),
        (_words(500),),
    ),
    # Ragged, sparse, sets
    "ragged_sum": _ragged_sum,
    "sparse_matmul": lambda: (tf.function(tf.sparse.sparse_dense_matmul), (_sparse(), normal([512, 16]))),
    "sparse_to_dense": lambda: (tf.sparse.to_dense, (_sparse(),)),
    "sets_intersection": _sets_intersection,
    # Random numbers
    "stateless_normal": lambda: (
        tf.function(lambda seed: tf.random.stateless_normal([20_000], seed)),
        (tf.constant([3, 4]),),
    ),
    "random_shuffle": lambda: (tf.random.shuffle, (tf.range(10_000),)),
    # Images and decoding
    "resize": lambda: (tf.function(lambda image: tf.image.resize(image, [120, 160])), (_image(128),)),
    "crop_and_resize": _crop_and_resize,
    "adjust_color": _adjust_color,
    "decode_png": lambda: (tf.io.decode_png, (tf.io.encode_png(_image(256, tf.uint8)),)),
    "decode_jpeg": lambda: (tf.io.decode_jpeg, (tf.io.encode_jpeg(_image(64, tf.uint8)),)),
    "parse_example": _parse_example,
    "decode_csv": _decode_csv,
    "decode_raw": _decode_raw,
    # Tables and loops
    "lookup_table": _lookup_table,
    "while_loop": _while_loop,
    # Linear algebra and signals
    "svd": lambda: (tf.linalg.svd, (normal([96, 96]),)),
    "qr": lambda: (tf.linalg.qr, (normal([64, 64]),)),
    "solve": lambda: (tf.function(tf.linalg.solve), (normal([8, 48, 48]), normal([8, 48, 4]))),
    "fft": lambda: (tf.signal.rfft, (normal([16, 2048]),)),
    "stft": lambda: (tf.function(lambda signal: tf.signal.stft(signal, 256, 128)), (normal([8192]),)),
    "numpy": _numpy,
    # Layers of Keras, called eagerly or in a function
    "keras_dense": lambda: (layers.Dense(128, activation="relu"), (normal([32, 128]),)),
    "keras_conv1d": lambda: (tf.function(layers.Conv1D(32, 5)), (normal([8, 128, 16]),)),
    "keras_depthwise": lambda: (tf.function(layers.DepthwiseConv2D(3)), (normal([4, 32, 32, 16]),)),
    "keras_lstm": lambda: (tf.function(layers.LSTM(32)), (normal([8, 50, 16]),)),
    "keras_attention": _attention,
    "keras_normalization": lambda: (layers.LayerNormalization(), (normal([64, 256]),)),
    "keras_embedding": lambda: (tf.function(layers.Embedding(5000, 64)), (tf.reshape(tf.range(1024) * 3, [16, 64]),)),
    "keras_pooling": lambda: (layers.MaxPooling2D(), (normal([4, 32, 32, 16]),)),
    # Input and training
    "pipeline_batch": _pipeline_batch,
    "pipeline_shuffle": _pipeline_shuffle,
    "gradient_tape": _gradient_tape,
    "optimizer_step": _optimizer_step,
    # Waits, Python and Keras' own loop
    "sleep": _sleep,
    "pipeline_waiting": _pipeline_waiting,
    "pipeline_generator": _pipeline_generator,
    "py_function": _py_function,
    "keras_fit": _keras_fit,
}


@pytest.mark.parametrize("name", STEPS)
def test_step(bench: Any, name: str) -> None:
    """One of the workloads."""
    step, arguments = STEPS[name]()
    bench(step, *arguments)
