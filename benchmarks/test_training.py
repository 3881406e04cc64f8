"""Training steps: forward, backward and update, and the overhead of Keras."""

import pytest
import tensorflow as tf

from benchmarks.axes import (
    COMPILER,
    EXECUTION,
    KERAS,
    METRICS,
    PARAMETERS,
    PRECISION,
    STEPS_PER_EXECUTION,
    by_scale,
    matmul_tolerance,
)  # fmt: skip
from benchmarks.inputs import classes, normal
from benchmarks.levels import untuned
from benchmarks.models import (
    RESNET50_FLOPS,
    crossentropy,
    mlp,
    mlp_training_flops,
    parameters,
    resnet8,
    resnet50,
    resnet_flops,
    scaled_for,
    trainer,
    transformer,
    transformer_flops,
)  # fmt: skip
from tfbench import across, faster

# So small that thousands of steps on one batch change neither the weights nor the work.
LEARNING_RATE = 1e-6
# Batch, inputs, hidden units and outputs of each scale.
_MLPS = (64, 784, (256, 256), 10), (1024, 784, (4096, 4096), 10), (8192, 784, (8192, 8192), 10)
# Model, batch, pixels per side, classes, and operations per image.
_RESNET50 = (resnet50, 128, 224, 1000, RESNET50_FLOPS)


def squared(targets, outputs):
    return tf.math.squared_difference(targets, outputs)


def _optimizer(variant):
    return scaled_for(variant["precision"], tf.keras.optimizers.SGD(LEARNING_RATE))


@across(PRECISION, COMPILER)
def test_training_step(bench, variant):
    """An MLP on MNIST's shape, including the loss scaling that float16 needs."""
    batch, inputs, hidden, outputs = by_scale(*_MLPS)
    step = trainer(mlp(inputs, hidden, outputs), _optimizer(variant), crossentropy)
    bench(
        variant.compile(step),
        *(normal(batch, inputs), classes(batch, outputs)),
        flops=mlp_training_flops(batch, inputs, *hidden, outputs),
        items=batch,
        parity=variant.parity(),
        max_traces=1,
    )


@across(PRECISION.only("float32", "mixed_float16"), COMPILER)
def test_resnet_step(bench, variant):
    """ResNet-8 on four small images, or ResNet-50 on a GPU: convolutions and batch normalization, forward and backward."""
    model, batch, side, labels, flops = by_scale((resnet8, 4, 32, 10, resnet_flops(1, 32, 1)), _RESNET50)
    bench(
        variant.compile(trainer(model(), _optimizer(variant), crossentropy)),
        *(normal(batch, side, side, 3), classes(batch, labels)),
        flops=3 * batch * flops,
        items=batch,
        parity=10 * variant.parity(),
    )


@across(PRECISION.only("float32", "mixed_float16"), COMPILER)
def test_transformer_step(bench, variant):
    """One encoder block: large products with normalization and softmax between them."""
    batch, length, width, heads = by_scale((2, 64, 64, 4), (16, 512, 768, 12), (64, 512, 1024, 16))
    step = trainer(transformer(length, width, heads), _optimizer(variant), squared)
    x = normal(batch, length, width)
    bench(
        variant.compile(step),
        *(x, normal(batch, length, width, seed=2)),
        flops=3 * transformer_flops(batch, length, width),
        items=batch * length,
        parity=10 * variant.parity(),
    )


@faster("execution=function", than="execution=eager", by=2.0)
@faster("execution=xla", than="execution=eager", by=2.0)
@across(EXECUTION)
def test_execution(bench, variant):
    """The same step eagerly, as a graph, and compiled: the cost of Python between the ops."""
    batch, inputs, hidden, outputs = by_scale((32, 64, (64, 64), 10), (256, 1024, (1024, 1024), 10))
    step = trainer(mlp(inputs, hidden, outputs), tf.keras.optimizers.SGD(LEARNING_RATE), crossentropy)
    bench(
        variant.compile(step),
        *(normal(batch, inputs), classes(batch, outputs)),
        flops=mlp_training_flops(batch, inputs, *hidden, outputs),
        items=batch,
        parity=matmul_tolerance(1e-5),
    )


@pytest.mark.parametrize("batch", [16, 256])
@across(COMPILER)
def test_batch_size(bench, variant, batch):
    """A step of the MLP by batch size. A larger batch uses each read of the weights for more images."""
    inputs, hidden, outputs = 784, (128, 128), 10
    step = trainer(mlp(inputs, hidden, outputs), tf.keras.optimizers.SGD(LEARNING_RATE), crossentropy)
    flops = mlp_training_flops(batch, inputs, *hidden, outputs)
    data = normal(batch, inputs), classes(batch, outputs)
    bench(variant.compile(step), *data, flops=flops, items=batch, parity=matmul_tolerance(1e-5), max_traces=1)


# Overhead of Keras' own loop


def _compiled(variant, batch, inputs=32, outputs=10, metrics=(), **settings):
    """Return a small compiled model and one batch of data. jit_compile is set, because Keras' "auto" prefers XLA."""
    model = mlp(inputs, (32,), outputs)
    model.compile(
        optimizer=tf.keras.optimizers.SGD(LEARNING_RATE),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=list(metrics),
        **{"jit_compile": False, **settings},
    )
    return model, normal(batch, inputs), classes(batch, outputs)


@across(COMPILER)
def test_training_on_batch(bench, variant):
    """Keras' train_on_batch of a small model: the framework's overhead on top of the arithmetic."""
    batch = 32
    model, images, labels = _compiled(variant, batch, inputs=64, jit_compile=variant["compiler"] == "xla")
    bench(model.train_on_batch, images, labels, items=batch, max_traces=1, parity=matmul_tolerance(1e-4))


@across(KERAS)
def test_keras_generations(bench, variant):
    """train_on_batch of Keras 3, and of tf_keras, which continues Keras 2."""
    batch = 32
    model, images, labels = _compiled(variant, batch)
    # Each generation draws different weights from the same seed.
    model.set_weights([0.1 * normal(*weights.shape) for weights in model.get_weights()])
    # Keras 2 traces its loop once to create the optimizer's variables, and once more without creating any.
    traces = 2 if variant["keras"] == "2" else 1
    bench(model.train_on_batch, images, labels, items=batch, max_traces=traces, parity=matmul_tolerance(1e-5))


@faster("steps=10", than="steps=1", by=1.3)
@faster("steps=100", than="steps=1", by=1.3)
@across(STEPS_PER_EXECUTION)
def test_epoch(bench, variant):
    """fit() over 100 small batches, which returns to Python after every batch or after many."""
    batch, batches = 8, 100
    model, images, labels = _compiled(variant, batch * batches, steps_per_execution=int(variant["steps"]))
    data = untuned(tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch, drop_remainder=True))

    def epoch():
        return model.fit(data, epochs=1, verbose=0).history["loss"][-1]

    bench(epoch, items=batch * batches, parity=1e-4)


@across(METRICS)
def test_metrics(bench, variant):
    """Accuracy and the mean loss, updated after every step, once in ten steps, or never."""
    batch, every = 32, 10
    step = trainer(mlp(32, (32,), 10), tf.keras.optimizers.SGD(LEARNING_RATE), crossentropy)
    train = tf.function(step, jit_compile=False)
    mean, accuracy = tf.keras.metrics.Mean(), tf.keras.metrics.SparseCategoricalAccuracy()
    images, labels, logits = normal(batch, 32), classes(batch, 10), normal(batch, 10, seed=2)

    def steps():
        for number in range(every):
            loss = train(images, labels)
            if variant.counts(number):
                mean.update_state(loss)
                accuracy.update_state(labels, logits)
        return loss

    bench(steps, items=batch * every, parity=1e-4)


# The update alone, at rates whose first update changes more than `parity` allows


@across(PARAMETERS, COMPILER)
def test_sgd(bench, variant):
    """Two operations per parameter, in two large variables or fifty small ones."""
    _bench_update(bench, variant, tf.keras.optimizers.SGD(0.1), flops=2, words=3)


@across(PARAMETERS, COMPILER)
def test_adam(bench, variant):
    """A dozen operations per parameter, with two averages to read and write."""
    _bench_update(bench, variant, tf.keras.optimizers.Adam(1e-3), flops=12, words=7)


def _bench_update(bench, variant, optimizer, flops, words):
    total = by_scale(200_000, 10_000_000)
    variables = parameters(total, variant.tensors())
    gradients = tf.split(0.001 * normal(total, seed=2), len(variables))
    optimizer.build(variables)

    def update(*gradients):
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return variables[0][0]

    step = variant.compile(update)
    work = {"flops": flops * total, "bytes": 4 * words * total, "items": total}
    bench(step, *gradients, parity=1e-5, max_traces=1, **work)
