"""Steps of 0.3 to 5 s, as training steps, epochs and large products are. pytest collects it by its path alone."""

import numpy as np
import pytest
import tensorflow as tf

layers = tf.keras.layers


def noise(*shape):
    return tf.random.stateless_normal(shape, seed=(1, 2))


def images(count):
    """A convolutional model, and a batch for it."""
    model = tf.keras.Sequential([
        layers.Input((64, 64, 3)),
        layers.Conv2D(32, 3, padding="same", activation="relu"), layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(), layers.Conv2D(64, 3, padding="same", activation="relu"),
        layers.GlobalAveragePooling2D(), layers.Dense(10),
    ])  # fmt: skip
    return model, noise(count, 64, 64, 3)


def trained(model, inputs, targets, loss):
    """One step of gradient descent as a graph."""
    optimizer = tf.keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(value, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return value

    return step, inputs, targets


def test_training_of_a_convolutional_model(bench):
    model, batch = images(72)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    bench(*trained(model, batch, tf.zeros([72], tf.int32), loss))


def test_inference_of_a_convolutional_model(bench):
    model, batch = images(400)
    bench(tf.function(model), batch)


def test_training_of_a_recurrent_model(bench):
    model = tf.keras.Sequential([layers.Input((120, 64)), layers.LSTM(384), layers.Dense(1)])
    bench(*trained(model, noise(48, 120, 64), noise(48, 1), tf.keras.losses.MeanSquaredError()))


def test_training_of_attention(bench):
    inputs = layers.Input((256, 128))
    hidden = layers.MultiHeadAttention(4, 64)(inputs, inputs)
    model = tf.keras.Model(inputs, layers.Dense(1)(layers.LayerNormalization()(hidden)))
    bench(*trained(model, noise(56, 256, 128), noise(56, 256, 1), tf.keras.losses.MeanSquaredError()))


def test_an_epoch_of_fit(bench):
    model = tf.keras.Sequential([layers.Input((128,)), layers.Dense(256, activation="relu"), layers.Dense(10)])
    model.compile("adam", "mse")
    inputs, targets = np.ones((16384, 128), np.float32), np.ones((16384, 10), np.float32)

    def epoch():
        model.fit(inputs, targets, batch_size=64, verbose=0)
        return model.weights[0]

    bench(epoch)


def test_an_epoch_of_a_pipeline(bench):
    numbers = tf.data.Dataset.range(12_000).map(lambda n: tf.random.stateless_uniform([64, 32], [n, 1]))
    epoch = numbers.shuffle(500, seed=1).batch(32)
    bench(lambda: epoch.reduce(0.0, lambda total, batch: total + tf.reduce_mean(batch)))


@pytest.mark.parametrize("size", [2400, 5600])
def test_a_large_product(bench, size):
    bench(tf.function(tf.linalg.matmul), noise(size, size), noise(size, size))


def test_a_singular_value_decomposition(bench):
    bench(tf.function(lambda x: tf.linalg.svd(x, compute_uv=False)), noise(1100, 1100))


def test_a_fourier_transform(bench):
    bench(tf.function(lambda x: tf.abs(tf.signal.fft2d(x))), tf.complex(noise(3072, 3072), 0.0))
