"""TensorFlow: functions, eager ops as parameters, a Keras model, a pipeline."""

import pytest
import tensorflow as tf


@tf.function
def dense(x, w):
    return tf.nn.relu(tf.matmul(x, w))


def test_function(benchmark):
    x, w = tf.ones([64, 128]), tf.ones([128, 64])
    assert benchmark(dense, x, w).shape == (64, 64)


@pytest.mark.parametrize("op", [tf.nn.conv2d])  # its id is not known without TensorFlow
def test_op(benchmark, op):
    image, kernel = tf.ones([1, 24, 24, 8]), tf.ones([3, 3, 8, 8])
    benchmark(op, image, kernel, strides=1, padding="SAME")


class TestModel:
    @pytest.fixture(autouse=True)
    def _build(self):
        self.model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(8)])
        self.call = tf.function(self.model)

    def test_inference(self, benchmark):
        benchmark(self.call, tf.ones([32, 64]))
