"""Build the models that benchmarks share, and count their operations. Weights are the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import tensorflow as tf

from benchmarks.inputs import normal


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> tf.keras.Model:
    """Build a multilayer perceptron. Its logits are float32, which mixed precision requires of the last layer."""
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential(
        [
            tf.keras.Input([inputs]),
            *(tf.keras.layers.Dense(units, activation="relu") for units in hidden),
            tf.keras.layers.Dense(outputs, dtype="float32"),
        ]
    )


def mlp_flops(batch: int, *widths: int) -> int:
    """Count a forward pass' operations in dense layers of these widths."""
    return sum(2 * batch * before * after for before, after in pairwise(widths))


def mlp_training_flops(batch: int, *widths: int) -> int:
    """Count a training step's: each layer has gradients of its weights, and each but the first of its inputs."""
    return 3 * mlp_flops(batch, *widths) - mlp_flops(batch, *widths[:2])


def resnet(side: int, blocks: int, classes: int = 10) -> tf.keras.Model:
    """Build the network for small images of He et al. 2016, Deep residual learning, sec. 4.2: 6 blocks + 2 layers."""
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(1)

    def convolved(x, channels, strides=1, kernel=3):
        x = layers.Conv2D(channels, kernel, strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    images = tf.keras.Input([side, side, 3])
    x = layers.ReLU()(convolved(images, 16))
    for stage, channels in enumerate((16, 32, 64)):
        for block in range(blocks):
            strides = 2 if stage and not block else 1
            short = convolved(x, channels, strides, kernel=1) if strides == 2 else x
            x = layers.ReLU()(convolved(x, channels, strides))
            x = layers.ReLU()(layers.Add()([convolved(x, channels), short]))
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(images, layers.Dense(classes, dtype="float32")(x))


def resnet_flops(batch: int, side: int, blocks: int) -> int:
    """Count the operations of the convolutions of a forward pass."""
    flops = 2 * batch * side**2 * 9 * 3 * 16
    for stage, channels in enumerate((16, 32, 64)):
        pixels = batch * (side // 2**stage) ** 2
        for block in range(blocks):
            before = channels // 2 if stage and not block else channels
            flops += 2 * pixels * 9 * channels * (before + channels)
            flops += 2 * pixels * before * channels if before != channels else 0
    return flops


def resnet8() -> tf.keras.Model:
    """Build that network with 8 layers, for images of 32 pixels per side."""
    return resnet(32, blocks=1)


def resnet20() -> tf.keras.Model:
    """Build that network with 20 layers, the fewest of the paper, for images of 32 pixels per side."""
    return resnet(32, blocks=3)


def resnet50(classes: int = 1000) -> tf.keras.Model:
    """Build the untrained residual network for images of 224 pixels per side, with float32 logits."""
    tf.keras.utils.set_random_seed(1)
    trunk = tf.keras.applications.ResNet50(weights=None, include_top=False, input_shape=(224, 224, 3), pooling="avg")
    return tf.keras.Model(trunk.input, tf.keras.layers.Dense(classes, dtype="float32")(trunk.output))


RESNET50_FLOPS = 2 * 3_855_925_248
"""Counted operations of one image's convolutions, forward. He et al. 2016, table 1, has 3.8e9 multiplications."""


def transformer(length: int, width: int, heads: int) -> tf.keras.Model:
    """Build one encoder block: self-attention and a layer four times as wide, with residuals and normalization."""
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(1)
    x = tf.keras.Input([length, width])
    attended = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(x, x)]))
    wide = layers.Dense(width)(layers.Dense(4 * width, activation="relu")(attended))
    return tf.keras.Model(x, layers.LayerNormalization(dtype="float32")(layers.Add()([attended, wide])))


def transformer_flops(batch: int, length: int, width: int) -> int:
    """Count the operations of a forward pass."""
    return 24 * batch * length * width**2 + 4 * batch * length**2 * width


def crossentropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the loss of each example."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def trainer(model, optimizer, loss):
    """Return a step that trains a model on a batch and returns the loss. Loss scaling follows the optimizer."""
    optimizer.build(model.trainable_variables)

    def training_step(inputs, targets):
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(targets, model(inputs, training=True)))
            scaled = loss_scaled(optimizer, value)
        update(optimizer, tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return value

    return training_step


def scaled_for(precision: str, optimizer: tf.keras.optimizers.Optimizer) -> tf.keras.optimizers.Optimizer:
    """Return the optimizer, with loss scaling if the precision needs it."""
    return tf.keras.mixed_precision.LossScaleOptimizer(optimizer) if precision == "mixed_float16" else optimizer


def loss_scaled(optimizer: tf.keras.optimizers.Optimizer, loss: tf.Tensor) -> tf.Tensor:
    """Return the scaled loss, which keeps float16 gradients from underflow. Keras 2 and 3 differ in the method."""
    if hasattr(optimizer, "get_scaled_loss"):
        return optimizer.get_scaled_loss(loss)
    return optimizer.scale_loss(loss) if hasattr(optimizer, "scale_loss") else loss


def update(
    optimizer: tf.keras.optimizers.Optimizer, gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> None:
    """Apply the gradients of a scaled loss."""
    if hasattr(optimizer, "get_unscaled_gradients"):
        gradients = optimizer.get_unscaled_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def parameters(total: int, tensors: int) -> list[tf.Variable]:
    """Return the same numbers in this many variables of equal size."""
    return [tf.Variable(part) for part in tf.split(normal(total), tensors)]
