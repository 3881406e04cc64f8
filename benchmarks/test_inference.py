"""Inference: small and large batches."""

import pytest
import tensorflow as tf

from benchmarks.axes import COMPILER, PRECISION, matmul_tolerance
from benchmarks.inputs import normal
from benchmarks.models import mlp, mlp_flops, resnet20, resnet_flops
from tfbench import across

WIDTHS = (784, 256, 256, 10)


def _classifier():
    return mlp(WIDTHS[0], WIDTHS[1:-1], WIDTHS[-1])


@pytest.mark.parametrize("batch", [1, 8, 32, 128])
@across(PRECISION.only("float32", "mixed_bfloat16"), COMPILER)
def test_inference(bench, variant, batch):
    """An MLP on MNIST's shape. A batch of one costs the call and one read of the weights."""
    model = _classifier()

    def predict(images):
        return model(images, training=False)

    step = variant.compile(predict)
    flops = mlp_flops(batch, *WIDTHS)
    bench(step, normal(batch, WIDTHS[0]), flops=flops, items=batch, parity=10 * variant.parity(), max_traces=1)


@pytest.mark.parametrize("batch", [1, 8])
@across(COMPILER)
def test_image_inference(bench, variant, batch):
    """ResNet-20: convolutions, which use their weights for every pixel."""
    side, blocks = 32, 3
    model = resnet20()

    def predict(images):
        return model(images, training=False)

    flops = resnet_flops(batch, side, blocks)
    step = variant.compile(predict)
    bench(step, normal(batch, side, side, 3), flops=flops, items=batch, parity=matmul_tolerance(1e-4), max_traces=1)


def _exported(path):
    """Save the classifier as a SavedModel with one function for any batch size, and return its path."""
    model = _classifier()
    module = tf.Module()
    module.model = model
    module.predict = tf.function(
        lambda images: model(images, training=False),
        input_signature=[tf.TensorSpec([None, WIDTHS[0]], tf.float32)],
        jit_compile=False,
    )
    tf.saved_model.save(module, str(path))
    return str(path)


def test_saved_model_load(bench, tmp_path):
    """Load a SavedModel, as a server does before its first answer."""
    path = _exported(tmp_path / "model")
    bench(lambda: tf.saved_model.load(path), items=1, artifact=path)


def test_saved_model_inference(bench, tmp_path):
    """The loaded function, which runs without the model's Python code."""
    batch = 8
    loaded = tf.saved_model.load(_exported(tmp_path / "model"))
    bench(loaded.predict, normal(batch, WIDTHS[0]), flops=mlp_flops(batch, *WIDTHS), items=batch, max_traces=1)
