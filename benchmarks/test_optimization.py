"""Model optimization: time, bytes and accuracy of pruned, clustered and quantized models.

The first launch that needs a model trains it for all launches. Training takes minutes, and `.tfbench` keeps the models.
"""

import pytest
import tensorflow as tf

from benchmarks import optimized
from benchmarks.axes import CLUSTERING, PRUNING, QUANTIZATION, SPARSE, TARGET, THREADS, matmul_tolerance
from tfbench import across, as_accurate, smaller

NETWORKS = pytest.mark.parametrize("network", ["mlp", "cnn", "mobilenet"])
BATCH = 32


def _bench_weights(bench, variant, shared, network):
    """Benchmark the plain network with the variant's weights in TensorFlow."""
    weights = optimized.weights(shared, network, variant.training())
    model = optimized.network(network, weights)
    pictures, _ = optimized.images(network, BATCH, seed=2)
    step = tf.function(lambda pictures: model(pictures, training=False), jit_compile=False)
    reported = optimized.facts(weights)
    bench(step, tf.constant(pictures), items=BATCH, artifact=optimized.file(weights), max_traces=1, **reported)


@NETWORKS
@smaller("pruning=80", than="pruning=none", by=2.5, zipped=True)
@as_accurate("pruning=50", like="pruning=none", within=0.01)
@as_accurate("pruning=2of4", like="pruning=none", within=0.01)
@as_accurate("pruning=80", like="pruning=none", within=0.01)
@as_accurate("pruning=90", like="pruning=none", within=0.02)
@across(PRUNING)
def test_pruning(bench, variant, shared, network):
    """Pruned weights: dense kernels multiply by the zeros anyway, but gzip removes them."""
    _bench_weights(bench, variant, shared, network)


@NETWORKS
@smaller("clustering=16", than="clustering=none", by=2.5, zipped=True)
@as_accurate("clustering=16", like="clustering=none", within=0.01)
@across(CLUSTERING)
def test_clustering(bench, variant, shared, network):
    """Sixteen different weights per layer, which only gzip exploits."""
    _bench_weights(bench, variant, shared, network)


def _bench_file(bench, variant, shared, network):
    """Benchmark the variant's TFLite file, one image at a time."""
    file = optimized.deployed(shared, network, variant.training(), variant.precision())
    pictures, _ = optimized.images(network, 1, seed=2)
    bench(optimized.interpreter(file), pictures, items=1, artifact=optimized.file(file), **optimized.facts(file))


@NETWORKS
@smaller("quantization=dynamic", than="quantization=none", by=3.33)
@smaller("quantization=float16", than="quantization=none", by=1.8)
@smaller("quantization=int8", than="quantization=none", by=3.33)
@smaller("quantization=aware", than="quantization=none", by=3.33)
@smaller("quantization=pruned_int8", than="quantization=int8", by=2.0, zipped=True)
@smaller("quantization=clustered_int8", than="quantization=int8", by=1.3, zipped=True)
@as_accurate("quantization=dynamic", like="quantization=none", within=0.01)
@as_accurate("quantization=float16", like="quantization=none", within=0.01)
@as_accurate("quantization=int8", like="quantization=none", within=0.01)
@as_accurate("quantization=aware", like="quantization=none", within=0.01)
@as_accurate("quantization=pruned_int8", like="quantization=none", within=0.01)
@as_accurate("quantization=clustered_int8", like="quantization=none", within=0.01)
@across(QUANTIZATION)
def test_quantization(bench, variant, shared, network):
    """Weights, or weights and activations, in fewer bits, with one TFLite thread."""
    _bench_file(bench, variant, shared, network)


@smaller("kernels=sparse", than="kernels=dense", by=3.0)
@across(SPARSE)
def test_pruned_kernels(bench, variant, shared):
    """1x1 convolutions with 90% zeros. XNNPACK has sparse kernels for them, if this build of TFLite uses them."""
    _bench_file(bench, variant, shared, "mobilenet")


@across(TARGET)
def test_pruned_target(bench, variant, shared, tmp_path):
    """The same pruned model and image as a tf.function, a SavedModel and in TFLite."""
    weights = optimized.weights(shared, "cnn", "pruned_80")
    file = optimized.deployed(shared, "cnn", "pruned_80", "float32")
    model = optimized.network("cnn", weights)
    pictures, _ = optimized.images("cnn", 1, seed=2)
    answer = variant.answer(optimized.Deployed(model, file, tmp_path / "saved"))
    bench(answer, pictures, items=1, parity=matmul_tolerance(1e-4))


@pytest.mark.tfbench(cpus=2)
@across(THREADS, QUANTIZATION.only("none", "int8"))
def test_quantization_threads(bench, variant, shared):
    """A second TFLite thread. Small number formats leave little work to share."""
    file = optimized.deployed(shared, "mobilenet", variant.training(), variant.precision())
    pictures, _ = optimized.images("mobilenet", 1, seed=2)
    bench(optimized.interpreter(file, int(variant["threads"])), pictures, items=1)


@across(QUANTIZATION.only("none", "int8"))
def test_quantization_conversion(bench, variant, shared):
    """Convert a model in memory to the bytes of its file. int8 runs a hundred images to find the ranges of values."""
    model = optimized.network("mlp", shared(optimized.trained, "mlp"))
    bench.once(lambda: optimized.convert(optimized.converter("mlp", model, variant.precision())), items=1)
