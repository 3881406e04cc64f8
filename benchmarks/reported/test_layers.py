"""Layers that became slower, as reported."""

import tensorflow as tf


def test_dense_rank3(bench):
    """keras#22823: a Dense layer on a rank-3 input runs out of memory in training. Keras 3.0 to 3.14, not 2.15.1.

    Claim: an intermediate of 607 GiB. Its fix, keras#22832, names BatchMatMulV2 and Sum in place of MatMul.
    """
    layer = tf.keras.layers.Dense(256)
    x = tf.random.normal((256, 10, 256))
    layer(x)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        return tape.gradient(loss, layer.trainable_variables)

    bench(step, x)


def test_augmentation_layer(bench):
    """tensorflow#58108, tensorflow#56242: augmentation layers are slow in 2.9 to 2.11, not in 2.8 and from 2.12.

    Claim: 7.41 s against 0.0042 s for another layer (keras-cv#1480); vectorized_map falls back to a loop.
    """
    layer = tf.keras.Sequential([tf.keras.layers.RandomTranslation(0.2, 0.2)])
    images = tf.random.uniform((64, 64, 64, 3))
    bench(tf.function(lambda images: layer(images, training=True)), images)


def test_dropout_stack(bench):
    """keras#19953: models take longer in Keras 3 (TensorFlow 2.16) than in Keras 2 (2.15).

    Claim: without a number here. Suspected: Dropout draws stateless numbers and updates its seed's variable.
    A batch of 8, because the matrix products of larger ones take most of the time: with 500 rows, no difference shows.
    """
    layers = [layer for _ in range(10) for layer in (tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dropout(0.1))]
    model = tf.keras.Sequential([tf.keras.layers.Input((32,)), *layers])
    x = tf.random.normal((8, 32))
    bench(tf.function(lambda x: model(x, training=True)), x)


def test_layer_normalization(bench):
    """keras#20003: Keras 3 (TensorFlow 2.16) has no fused layer normalization, as Keras 2 (2.15) has.

    Claim: without a number. Keras 2 calls FusedBatchNormV3, Keras 3 the moments and their arithmetic.
    The step trains, as the forward step alone is not slower.
    """
    layer = tf.keras.layers.LayerNormalization()
    x = tf.random.normal((8, 16, 64))
    layer(x)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    bench(step, x)


def test_eager_lstm(bench):
    """keras#18854: recurrent layers are slow in Keras 3.0.0, on TensorFlow 2.16.1. keras#18859 fixes 3.0.1.

    Claim: `fit` takes several times as long. A tf.function is made and traced anew in every eager call.
    Four time steps, because the cost of tracing does not grow with them.
    """
    layer = tf.keras.layers.LSTM(32)
    x = tf.random.normal((8, 4, 16))
    layer(x)
    bench(layer, x)


def test_bidirectional_lstm(bench):
    """keras#18971: inference of a bidirectional LSTM on a CPU takes 70% longer in 2.15 than in 2.7."""
    layer = tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(64))
    x = tf.random.normal((1, 100, 32))
    layer(x)
    bench(tf.function(lambda x: layer(x)), x)


def test_text_vectorization(bench):
    """keras#20249, tensorflow#75423: training with multi-hot text is slower in 2.17 than in 2.15.

    Claim: without a number. The layer's output is int64 in Keras 3, and float32 in Keras 2.
    The step includes a Dense layer, which needs float32, and also returns what the layer made.
    """
    words = [f"word{number}" for number in range(5000)]
    texts = tf.constant([" ".join(words[start : start + 40]) for start in range(0, 4960, 20)])
    layer = tf.keras.layers.TextVectorization(20_000, output_mode="multi_hot")
    layer.adapt(texts)
    dense = tf.keras.layers.Dense(16)
    batch = texts[:64]

    def step(batch):
        multi_hot = layer(batch)
        return multi_hot, dense(tf.cast(multi_hot, tf.float32))

    bench(step, batch)
