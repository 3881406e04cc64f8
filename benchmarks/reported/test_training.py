"""Optimizers and model building that became slower, as reported."""

import pytest
import tensorflow as tf

ROWS, WIDTH, LOOKUPS = 200_000, 64, 256


@pytest.mark.parametrize("optimizer", ["current", "legacy"])
def test_embedding_optimizer(bench, optimizer):
    """tf-keras#45, keras#18279: training an embedding is slow with the optimizers of 2.11 to 2.15, not of 2.10.

    Claim: severalfold; about twice for Adagrad (NVIDIA-Merlin/models#1098). SGD decays and adds its momentum to the
    whole table, even for a momentum of 0, instead of updating the rows of the gradient.
    """
    optimizers = tf.keras.optimizers
    if optimizer == "legacy":
        optimizers = getattr(optimizers, "legacy", None)
    if not hasattr(optimizers, "SGD") or not hasattr(optimizers.SGD, "apply_gradients"):
        pytest.skip("this version has no legacy optimizers")
    table = tf.Variable(tf.zeros((ROWS, WIDTH)))
    chosen = optimizers.SGD(0.1)
    if hasattr(chosen, "build"):
        chosen.build([table])
    values, rows = tf.ones((LOOKUPS, WIDTH)), tf.range(LOOKUPS)

    @tf.function
    def step(values, rows):
        chosen.apply_gradients([(tf.IndexedSlices(values, rows, (ROWS, WIDTH)), table)])
        return table[0]

    bench(step, values, rows)


def test_sums_of_inputs(bench):
    """tensorflow#61363, keras#18301, tf-keras#155: sums of Keras inputs take 4.5 times as long in 2.13 as in 2.12.

    Claim: 3,000 sums take 24 s instead of 5.3 s. PINTO0309/onnx2tf#365: a build of 40 minutes takes 150.
    Each sum takes longer than the one before, so the timed sums follow 400 others: the first 50 show no difference.
    """
    x, y = tf.keras.layers.Input((1,)), tf.keras.layers.Input((1,))
    for _ in range(400):
        x + y  # both inputs get a node more
    bench(lambda: [x + y for _ in range(5)])
