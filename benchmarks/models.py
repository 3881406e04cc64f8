"""Models that several benchmarks use, and what they cost. Weights are the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import tensorflow as tf


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> tf.keras.Model:
    """A multilayer perceptron that gives logits in float32, as mixed precision wants its last layer."""
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential(
        [
            tf.keras.Input([inputs]),
            *(tf.keras.layers.Dense(units, activation="relu") for units in hidden),
            tf.keras.layers.Dense(outputs, dtype="float32"),
        ]
    )


def mlp_flops(batch: int, *widths: int) -> int:
    """Of one forward pass through dense layers of these widths; a training step takes three times as many."""
    return sum(2 * batch * before * after for before, after in pairwise(widths))


def loss_scaled(optimizer: tf.keras.optimizers.Optimizer, loss: tf.Tensor) -> tf.Tensor:
    """The loss to differentiate, which float16 wants large. Keras 3 says it otherwise than Keras 2."""
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
