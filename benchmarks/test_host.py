"""Host overhead: the cost of a call before any arithmetic."""

import tensorflow as tf

from benchmarks.axes import ARGUMENTS, INVOCATION, matmul_tolerance
from benchmarks.inputs import normal
from benchmarks.models import mlp
from tfbench import across


def test_eager_add(bench):
    """Add two scalars eagerly: the cost of one op from Python."""
    bench(tf.add, tf.constant(1.0), tf.constant(2.0), items=1)


@across(ARGUMENTS)
def test_function_call(bench, variant):
    """Call a nearly empty tf.function: the cost of its arguments."""
    scalars = [tf.constant(1.0) for _ in range(int(variant["arguments"]))]

    @tf.function(jit_compile=False)
    def first_plus_last(*scalars):
        return scalars[0] + scalars[-1]

    bench(first_plus_last, *scalars, items=len(scalars), parity=1e-6, max_traces=1)


@across(INVOCATION)
def test_keras_invocation(bench, variant):
    """Predict one batch with a small Keras model. predict() is designed for many batches."""
    batch, inputs = 8, 32
    bench(variant.invoke(mlp(inputs, (32,), 10)), normal(batch, inputs), items=batch, parity=matmul_tolerance(1e-5))


def test_tracing(bench):
    """Trace a Python function of twenty ops into a graph: the cost of every retrace."""
    x = tf.TensorSpec([16, 16], tf.float32)

    def trace():
        def chain(x):
            for _ in range(10):
                x = tf.nn.relu(tf.matmul(x, x))
            return x

        return tf.function(chain, jit_compile=False, autograph=False).get_concrete_function(x)

    bench(trace, items=20)


def test_while_loop(bench):
    """Run a compiled loop of 200 short iterations: the cost of an iteration."""

    @tf.function(jit_compile=True)
    def loop(x):
        return tf.while_loop(lambda i, x: i < 200, lambda i, x: (i + 1, tf.sin(x) + 1.0), (tf.constant(0), x))[1]

    bench(loop, normal(64), items=200, parity=1e-5, max_traces=1)


def test_functional_model(bench):
    """Call a Keras model of 30 inputs eagerly: the cost of its arguments."""
    inputs = [tf.keras.Input([4]) for _ in range(30)]
    model = tf.keras.Model(inputs, tf.keras.layers.Add()(inputs))
    bench(model, [normal(8, 4) for _ in inputs], items=len(inputs), parity=1e-5)
