"""Steps that need more memory with every call, as reported.

Each makes its calls in one `bench.once`, so that the peak of host memory is the sum of their growth.
"""

import numpy as np
import tensorflow as tf


def repeated(step, calls):
    """Call the step so often, and return its last result."""
    for _ in range(calls):
        result = step()
    return result


def dense():
    """Return a small compiled model and its batch."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
    x, y = tf.random.normal((256, 32)), tf.random.normal((256, 1))
    return model, x, y


def test_predict_memory(bench):
    """tensorflow#58676: `predict` with batches of unlike sizes needs more and more memory in 2.10 and 2.11, not in 2.8.

    Claim: up to 15 GB. TF_RUN_EAGER_OP_AS_FUNCTION=false cures 2.10.
    """
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
    draw = np.random.default_rng(1)

    def step():
        return model.predict(draw.random((int(draw.integers(1, 5000)), 34)), verbose=0)

    bench.once(repeated, step, 60)


def test_eager_zeros_memory(bench):
    """tensorflow#62551: eager ops leak memory on Python 3.11, not on Python 3.10, in TensorFlow 2.15.

    Claim: growth without end. Similar: tensorflow#65675, tensorflow#68196, tensorflow#60131.
    """
    bench.once(repeated, lambda: tf.zeros((1,)), 80_000)


def test_py_function_memory(bench):
    """tensorflow#61344: tf.py_function in Dataset.map leaks memory without bound in 2.13, not in 2.15."""

    def doubled(number):
        return tf.py_function(lambda value: value.numpy() * 2.0, [number], tf.float64)

    batches = iter(tf.data.Dataset.range(10**6).map(doubled).batch(64).repeat())
    bench.once(repeated, lambda: next(batches), 300)


def test_compiled_fit_memory(bench):
    """tensorflow#64170: XLA leaks memory in training in 2.16.1, not in 2.15. Similar: NNPDF/nnpdf#2135.

    The report is of a GPU. Here, `fit` compiles with XLA for the CPU.
    """
    model, x, y = dense()
    model.compile(loss="mse", jit_compile=True)
    bench.once(repeated, lambda: model.fit(x, y, verbose=0), 40)


def test_repeated_fit_memory(bench):
    """tf-keras#286, tensorflow#61791: repeated `fit` needs more and more memory in 2.11 to 2.13, not in 2.9."""
    model, x, y = dense()
    model.compile(loss="mse", jit_compile=False)
    bench.once(repeated, lambda: model.fit(x, y, verbose=0), 40)
