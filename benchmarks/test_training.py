"""Training steps: forward, backward and update, compiled as a whole."""

import tensorflow as tf

from benchmarks.axes import COMPILER, PRECISION
from benchmarks.inputs import classes, normal
from benchmarks.models import loss_scaled, mlp, mlp_flops, update
from tfbench import across

# So small that thousands of steps on one batch leave the weights, and with them the work, as they were.
LEARNING_RATE = 1e-6


@across(PRECISION, COMPILER)
def test_training_step(bench, variant):
    """An MLP on MNIST's shape, loss scaling included where float16 needs it."""
    batch, inputs, hidden, outputs = 64, 784, (256, 256), 10
    model = mlp(inputs, hidden, outputs)
    optimizer = tf.keras.optimizers.SGD(LEARNING_RATE)
    if variant["precision"] == "mixed_float16":
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)

    def training_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            scaled = loss_scaled(optimizer, loss)
        update(optimizer, tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    flops = 3 * mlp_flops(batch, inputs, *hidden, outputs)
    images, labels = normal(batch, inputs), classes(batch, outputs)
    bench(
        variant.compile(training_step), images, labels, flops=flops, items=batch,
        max_traces=1, parity=variant.parity(),
    )  # fmt: skip


@across(COMPILER)
def test_training_on_batch(bench, variant):
    """Keras' own train_on_batch of a small model: what the framework adds to the arithmetic."""
    batch, inputs, hidden, outputs = 32, 64, (32,), 10
    model = mlp(inputs, hidden, outputs)
    model.compile(
        optimizer=tf.keras.optimizers.SGD(LEARNING_RATE),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=variant["compiler"] == "xla",  # Keras' "auto" would choose XLA where it can
    )
    bench(model.train_on_batch, normal(batch, inputs), classes(batch, outputs), items=batch, max_traces=1, parity=1e-4)
