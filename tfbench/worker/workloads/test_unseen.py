"""Workloads of other kinds than the fixed ones, to measure how often intervals hold the true ratio on unseen code.

No threshold of a policy was chosen on them. A step takes 20 µs to 5 ms on one core.
"""

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers


def _words(count: int) -> Any:
    return tf.constant([f"word{number:05d} of some-text" for number in range(count)])


def _image(size: int = 64) -> Any:
    return tf.random.stateless_uniform([size, size, 3], [1, 2], maxval=256, dtype=tf.int32)


# Strings


def test_strings_join(bench: Any) -> None:
    """Join 2,000 pairs of strings."""
    words = _words(2000)
    bench(tf.strings.join, [words, words], "-")


def test_strings_split(bench: Any) -> None:
    """Split 500 strings into a ragged tensor of words."""
    bench(tf.strings.split, _words(500))


def test_strings_replace(bench: Any) -> None:
    """Replace a regular expression in 500 strings."""
    bench(tf.function(lambda words: tf.strings.regex_replace(words, "[0-9]+", "#")), _words(500))


# Ragged, sparse, sets


def test_ragged_sum(bench: Any) -> None:
    """Sum the rows of a ragged tensor, and pad it."""
    lengths = tf.constant([row % 17 for row in range(500)])
    ragged = tf.RaggedTensor.from_row_lengths(tf.random.normal([sum(row % 17 for row in range(500))]), lengths)
    bench(tf.function(lambda rows: (tf.reduce_sum(rows, axis=1), rows.to_tensor())), ragged)


def _sparse(size: int = 512, step: int = 37) -> Any:
    places = np.stack(np.unravel_index(np.arange(0, size * size, step), (size, size)), axis=1)
    return tf.SparseTensor(places, tf.random.normal([len(places)]), [size, size])


def test_sparse_matmul(bench: Any) -> None:
    """Multiply a sparse by a dense matrix."""
    bench(tf.function(tf.sparse.sparse_dense_matmul), _sparse(), tf.random.normal([512, 16]))


def test_sparse_to_dense(bench: Any) -> None:
    """Turn a sparse matrix into a dense one."""
    bench(tf.sparse.to_dense, _sparse())


def test_sets_intersection(bench: Any) -> None:
    """Intersect 100 pairs of sets of 16 numbers."""
    numbers = tf.range(1600, dtype=tf.int64)
    a, b = tf.reshape(numbers, [100, 16]), tf.reshape(numbers + 8, [100, 16])
    bench(tf.function(lambda a, b: tf.sets.intersection(a, b).values), a, b)


# Random numbers


def test_stateless_normal(bench: Any) -> None:
    """Draw 20,000 normal numbers from a fixed seed."""
    bench(tf.function(lambda seed: tf.random.stateless_normal([20_000], seed)), tf.constant([3, 4]))


def test_random_shuffle(bench: Any) -> None:
    """Shuffle 10,000 numbers."""
    bench(tf.random.shuffle, tf.range(10_000))


# Images


def test_resize(bench: Any) -> None:
    """Resize an image bilinearly."""
    image = tf.cast(_image(128), tf.float32)
    bench(tf.function(lambda image: tf.image.resize(image, [120, 160])), image)


def test_crop_and_resize(bench: Any) -> None:
    """Cut 16 boxes out of an image."""
    boxes = tf.constant([[0.02 * box, 0.01 * box, 0.5 + 0.02 * box, 0.6 + 0.02 * box] for box in range(16)])
    image = tf.cast(_image(), tf.float32)[tf.newaxis]
    bench(tf.function(lambda image: tf.image.crop_and_resize(image, boxes, [0] * 16, [24, 24])), image)


def test_adjust_color(bench: Any) -> None:
    """Change hue and saturation of an image."""
    image = tf.cast(_image(), tf.float32) / 255
    bench(tf.function(lambda image: tf.image.adjust_saturation(tf.image.adjust_hue(image, 0.1), 0.7)), image)


# Decoding


def test_decode_png(bench: Any) -> None:
    """Decode a PNG."""
    bench(tf.io.decode_png, tf.io.encode_png(tf.cast(_image(256), tf.uint8)))


def test_decode_jpeg(bench: Any) -> None:
    """Decode a JPEG."""
    bench(tf.io.decode_jpeg, tf.io.encode_jpeg(tf.cast(_image(), tf.uint8)))


def test_parse_example(bench: Any) -> None:
    """Parse 64 records of a float vector and a label."""

    def record(label: int) -> bytes:
        floats = tf.train.Feature(float_list=tf.train.FloatList(value=[label / 7] * 16))
        number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
        example = tf.train.Example(features=tf.train.Features(feature={"x": floats, "y": number}))
        return bytes(example.SerializeToString())

    features = {"x": tf.io.FixedLenFeature([16], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    records = tf.constant([record(label) for label in range(64)])
    bench(tf.function(lambda records: tf.io.parse_example(records, features)), records)


def test_decode_csv(bench: Any) -> None:
    """Decode 200 rows of eight numbers."""
    rows = tf.constant([",".join(str(row + column / 8) for column in range(8)) for row in range(200)])
    bench(tf.function(lambda rows: tf.io.decode_csv(rows, [[0.0]] * 8)), rows)


def test_decode_raw(bench: Any) -> None:
    """Read 64 strings of 1,024 bytes as numbers."""
    strings = tf.constant([np.arange(512, dtype=np.int16).tobytes()] * 64)
    bench(tf.function(lambda strings: tf.cast(tf.io.decode_raw(strings, tf.int16), tf.float32)), strings)


# Tables and loops


def test_lookup_table(bench: Any) -> None:
    """Look 500 strings up in a table."""
    words = _words(500)
    pairs = tf.lookup.KeyValueTensorInitializer(words, tf.range(500))
    bench(tf.lookup.StaticHashTable(pairs, -1).lookup, words)


def test_while_loop(bench: Any) -> None:
    """Fill a TensorArray in a loop of 100 turns."""

    def loop(x: Any) -> Any:
        values = tf.TensorArray(tf.float32, 100)
        _, values = tf.while_loop(lambda i, _: i < 100, lambda i, v: (i + 1, v.write(i, tf.tanh(x))), (0, values))
        return values.stack()

    bench(tf.function(loop), tf.random.normal([32]))


# Linear algebra and signals


def test_svd(bench: Any) -> None:
    """Singular values and vectors of a matrix."""
    bench(tf.linalg.svd, tf.random.normal([96, 96]))


def test_qr(bench: Any) -> None:
    """QR decomposition of a matrix."""
    bench(tf.linalg.qr, tf.random.normal([64, 64]))


def test_solve(bench: Any) -> None:
    """Solve 8 systems of 48 equations."""
    bench(tf.function(tf.linalg.solve), tf.random.normal([8, 48, 48]), tf.random.normal([8, 48, 4]))


def test_fft(bench: Any) -> None:
    """Fourier transform of 16 signals."""
    bench(tf.signal.rfft, tf.random.normal([16, 2048]))


def test_stft(bench: Any) -> None:
    """Short-time Fourier transform of a signal."""
    bench(tf.function(lambda signal: tf.signal.stft(signal, 256, 128)), tf.random.normal([8192]))


def test_numpy(bench: Any) -> None:
    """Standardize a matrix with TensorFlow's NumPy."""
    tnp = tf.experimental.numpy
    bench(lambda x: (x - tnp.mean(x, axis=0)) / tnp.sqrt(tnp.var(x, axis=0) + 1e-6), tnp.ones([128, 256]))


# Layers of Keras, called eagerly or in a function


def test_keras_dense(bench: Any) -> None:
    """A dense layer, called eagerly."""
    bench(layers.Dense(128, activation="relu"), tf.random.normal([32, 128]))


def test_keras_conv1d(bench: Any) -> None:
    """A convolution over time."""
    bench(tf.function(layers.Conv1D(32, 5)), tf.random.normal([8, 128, 16]))


def test_keras_depthwise(bench: Any) -> None:
    """A depthwise convolution of images."""
    bench(tf.function(layers.DepthwiseConv2D(3)), tf.random.normal([4, 32, 32, 16]))


def test_keras_lstm(bench: Any) -> None:
    """An LSTM over 50 steps."""
    bench(tf.function(layers.LSTM(32)), tf.random.normal([8, 50, 16]))


def test_keras_attention(bench: Any) -> None:
    """Attention with two heads."""
    x = tf.random.normal([4, 32, 32])
    bench(tf.function(layers.MultiHeadAttention(2, 16)), x, x)


def test_keras_normalization(bench: Any) -> None:
    """Normalization of a layer, called eagerly."""
    bench(layers.LayerNormalization(), tf.random.normal([64, 256]))


def test_keras_embedding(bench: Any) -> None:
    """Embedding of 1,024 tokens."""
    bench(tf.function(layers.Embedding(5000, 64)), tf.reshape(tf.range(1024) * 3, [16, 64]))


def test_keras_pooling(bench: Any) -> None:
    """Pooling of images, called eagerly."""
    bench(layers.MaxPooling2D(), tf.random.normal([4, 32, 32, 16]))


# Input and training


def test_pipeline_batch(bench: Any) -> None:
    """The next batch of a mapped dataset."""
    data = tf.data.Dataset.range(2**60).map(lambda number: tf.cast(number, tf.float32) * 0.5).batch(32)
    bench(iter(data).get_next)


def test_pipeline_shuffle(bench: Any) -> None:
    """The next batch of a shuffled dataset."""
    iterator = iter(tf.data.Dataset.range(2**60).shuffle(256).batch(64))
    bench(lambda: next(iterator))


def test_gradient_tape(bench: Any) -> None:
    """Gradients of an eager computation."""
    weight, x = tf.Variable(tf.random.normal([64, 64])), tf.random.normal([32, 64])

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ weight) ** 2)
        return tape.gradient(loss, weight)

    bench(step)


def test_optimizer_step(bench: Any) -> None:
    """Update two variables with Adam."""
    weights = [tf.Variable(tf.random.normal([64, 64])) for _ in range(2)]
    gradients = [tf.random.normal([64, 64]) for _ in weights]
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(weights)

    def step() -> Any:
        optimizer.apply_gradients(list(zip(gradients, weights, strict=True)))
        return weights[0].read_value()

    bench(tf.function(step))
