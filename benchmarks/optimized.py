"""Train small models on synthetic images, optimize them with tensorflow-model-optimization, and convert them to TFLite.

Functions that fill a ``folder`` run through ``shared``, once for all launches. The networks are those of tf_keras, the
only ones that tensorflow-model-optimization supports.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

with contextlib.suppress(Exception):  # the requires= of an axis reports the error
    import tf_keras

SHAPES = {"mlp": (28, 28, 1), "cnn": (28, 28, 1), "mobilenet": (32, 32, 3)}
"""Network -> height, width and channels of its images."""
CLASSES = 10
_EPOCHS = 3
"""Epochs in which pruning adds zeros and the other weights adapt."""
_TRAINING, _TEST, _BATCH = 4000, 2000, 50
_WEIGHTS, _FACTS, _FILE = "weights.npz", "facts.json", "model.tflite"


# Images


def images(network: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 images of ten patterns, shifted, with random contrast and noise, and their classes."""
    height, width, channels = SHAPES[network]
    coarse = np.random.default_rng(0).normal(size=(CLASSES, height // 4, width // 4, channels))
    patterns = np.kron(coarse, np.ones((1, 4, 4, 1))).astype(np.float32)
    moved = np.array(
        [np.roll(patterns, (down, right), (1, 2)) for down, right in itertools.product(range(-3, 4), repeat=2)]
    )
    draw = np.random.default_rng(seed)
    labels = draw.integers(CLASSES, size=count, dtype=np.int32)
    clean = moved[draw.integers(len(moved), size=count), labels]
    contrast = draw.uniform(0.5, 1.2, (count, 1, 1, 1)).astype(np.float32)
    return clean * contrast + 1.25 * draw.standard_normal(clean.shape, np.float32), labels


# Networks


def _mlp(layers):
    return [layers.Flatten(), layers.Dense(256, "relu"), layers.Dense(128, "relu"), layers.Dense(CLASSES)]


def _cnn(layers):
    return [
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(64, "relu"),
        layers.Dense(CLASSES),
    ]


def _mobilenet(layers):
    """Use only layers with which XNNPACK's sparse kernels work: separate padding, and pooling that keeps its axes."""

    def normalized(convolution):
        return [convolution, layers.BatchNormalization(momentum=0.9), layers.ReLU()]

    def separable(channels, strides=1):
        padded = [layers.ZeroPadding2D(1)] if strides == 2 else []
        depthwise = layers.DepthwiseConv2D(3, strides, "valid" if padded else "same", use_bias=False)
        return [*padded, *normalized(depthwise), *normalized(layers.Conv2D(channels, 1, use_bias=False))]

    return [
        layers.ZeroPadding2D(1),
        *normalized(layers.Conv2D(16, 3, 2, "valid", use_bias=False)),
        *separable(64),
        *separable(128, strides=2),
        *separable(512, strides=2),
        layers.GlobalAveragePooling2D(keepdims=True),
        layers.Flatten(),
        layers.Dense(256, "relu"),
        layers.Dense(CLASSES),
    ]


_LAYERS = {"mlp": _mlp, "cnn": _cnn, "mobilenet": _mobilenet}


def network(name: str, weights: Path | None = None) -> tf_keras.Model:
    """Build the network, new or with the weights of a folder."""
    tf_keras.utils.set_random_seed(1)
    model = tf_keras.Sequential([tf_keras.Input(SHAPES[name]), *_LAYERS[name](tf_keras.layers)])
    if weights is not None:
        with np.load(weights / _WEIGHTS) as arrays:
            model.set_weights([arrays[key] for key in arrays.files])
    return model


def _fit(model: tf_keras.Model, name: str, epochs: int, rate: float, callbacks: Sequence[object] = ()) -> None:
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.Adam(rate), loss)
    model.fit(*images(name, _TRAINING, seed=1), batch_size=_BATCH, epochs=epochs, verbose=0, callbacks=list(callbacks))


def _keep(folder: Path, name: str, model: tf_keras.Model) -> None:
    """Save the weights, and their accuracy, sparsity and number of unique values."""
    np.savez(folder / _WEIGHTS, *model.get_weights())
    kernels = [weights for weights in model.get_weights() if weights.ndim > 1]
    pictures, labels = images(name, _TEST, seed=2)
    _write_facts(
        folder,
        accuracy=float(np.mean(np.argmax(model.predict(pictures, verbose=0), axis=1) == labels)),
        sparsity=float(np.mean(np.concatenate([kernel.ravel() for kernel in kernels]) == 0.0)),
        unique_weights=sum(np.unique(kernel).size for kernel in kernels),
    )


def _write_facts(folder: Path, **values: float) -> None:
    (folder / _FACTS).write_text(json.dumps(values), encoding="utf-8")


def facts(folder: Path) -> dict[str, float]:
    """Read the facts of the model in a folder, as keywords of ``bench``."""
    return json.loads((folder / _FACTS).read_text(encoding="utf-8"))


# Training and optimization: each gives the plain network other weights


def weights(shared: Callable[..., Path], name: str, training: str) -> Path:
    """Return the folder of a network's weights: ``dense``, ``pruned_80``, ``pruned_2of4`` or ``clustered_16``."""
    dense = shared(trained, name)
    kind, _, how = training.partition("_")
    if kind == "pruned":
        return shared(pruned, name, dense, how)
    return shared(clustered, name, dense, int(how)) if kind == "clustered" else dense


def trained(folder: Path, name: str) -> None:
    """Train a network from scratch."""
    model = network(name)
    _fit(model, name, epochs=2 if name == "mobilenet" else 3, rate=2e-3)
    _keep(folder, name, model)


def pruned(folder: Path, name: str, dense: Path, how: str) -> None:
    """Prune a network. ``how`` is the percentage of zeros, or ``2of4`` for two of four adjacent weights."""
    import tensorflow_model_optimization as tfmot

    sparsity = tfmot.sparsity.keras
    epochs = _EPOCHS
    steps = epochs * _TRAINING // _BATCH
    if how == "2of4":
        settings = {"pruning_schedule": sparsity.ConstantSparsity(0.5, 0, frequency=20), "sparsity_m_by_n": (2, 4)}
    else:
        # As in the guide, but the last third of the training adds no zeros.
        schedule = sparsity.PolynomialDecay(0.0, int(how) / 100, 0, steps * 2 // 3, frequency=10)
        settings = {"pruning_schedule": schedule}
    model = sparsity.prune_low_magnitude(network(name, dense), **settings)
    _fit(model, name, epochs, rate=1e-3, callbacks=[sparsity.UpdatePruningStep()])
    _keep(folder, name, sparsity.strip_pruning(model))


def clustered(folder: Path, name: str, dense: Path, clusters: int) -> None:
    """Cluster the weights: every layer has at most this many different ones."""
    import tensorflow_model_optimization as tfmot

    clustering = tfmot.clustering.keras
    start = clustering.CentroidInitialization.KMEANS_PLUS_PLUS
    model = clustering.cluster_weights(network(name, dense), clusters, start)
    _fit(model, name, epochs=1, rate=1e-4)
    _keep(folder, name, clustering.strip_clustering(model))


# Conversion


def deployed(shared: Callable[..., Path], name: str, training: str, precision: str) -> Path:
    """Return the folder of a network's TFLite file. ``training`` may also be ``aware`` of quantization."""
    if training == "aware":
        return shared(aware, name, shared(trained, name))
    return shared(converted, name, weights(shared, name, training), precision)


def _representative(name: str) -> Callable[[], object]:
    pictures, _ = images(name, 100, seed=3)
    return lambda: ([picture[np.newaxis]] for picture in pictures)


def converter(name: str, model: tf_keras.Model, precision: str) -> tf.lite.TFLiteConverter:
    """Configure a conversion. ``precision`` is ``float32``, ``dynamic``, ``float16``, ``int8`` or ``sparse``."""
    made = tf.lite.TFLiteConverter.from_keras_model(model)
    if precision == "float16":
        made.target_spec.supported_types = [tf.float16]
    if precision == "int8":
        made.representative_dataset = _representative(name)
        made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    if precision in ("dynamic", "float16", "int8"):
        made.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "sparse":
        made.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    return made


def convert(made: tf.lite.TFLiteConverter) -> bytes:
    """Return the bytes of the TFLite file.

    Raises:
        NotImplementedError: The model has an operation that TFLite lacks.
    """
    try:
        return made.convert()
    except Exception as error:
        if lacking := re.search(r"^(?:Custom|Flex) ops: (.*?)\s*$", str(error), re.MULTILINE):
            fix = "replace it in the model, or allow tf.lite.OpsSet.SELECT_TF_OPS"
            raise NotImplementedError(f"TFLite has no {lacking[1]}; {fix}") from None
        raise


def converted(folder: Path, name: str, source: Path, precision: str) -> None:
    """Convert the network with these weights to a TFLite file."""
    _deploy(folder, name, converter(name, network(name, source), precision), facts(source))


def aware(folder: Path, name: str, dense: Path) -> None:
    """Continue training with the rounding errors of int8, and convert."""
    import tensorflow_model_optimization as tfmot

    model = tfmot.quantization.keras.quantize_model(network(name, dense))
    _fit(model, name, epochs=1, rate=1e-4)
    _deploy(folder, name, converter(name, model, "dynamic"), facts(dense))


def _deploy(folder: Path, name: str, made: tf.lite.TFLiteConverter, reported: dict[str, float]) -> None:
    file = folder / _FILE
    file.write_bytes(convert(made))
    pictures, labels = images(name, _TEST, seed=2)
    answer = interpreter(folder)
    found = [int(np.argmax(answer(picture[np.newaxis]))) for picture in pictures]
    _write_facts(folder, **{**reported, "accuracy": float(np.mean(np.array(found) == labels))})


def interpreter(folder: Path, threads: int = 1) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that runs TFLite on one image."""
    made = tf.lite.Interpreter(str(folder / _FILE), num_threads=threads)
    made.allocate_tensors()
    (given,), (reported,) = made.get_input_details(), made.get_output_details()

    def answer(image):
        made.set_tensor(given["index"], image)
        made.invoke()
        return made.get_tensor(reported["index"])

    return answer


def file(folder: Path) -> Path:
    """Return the file of a folder: the TFLite file if there is one, and the weights otherwise."""
    return folder / _FILE if (folder / _FILE).exists() else folder / _WEIGHTS


@dataclass(frozen=True)
class Deployed:
    """Deploy one model in several ways, each a function of one image.

    Args:
        folder: Folder to write a SavedModel into.
    """

    model: tf_keras.Model
    file: Path
    folder: Path

    def function(self) -> Callable[[tf.Tensor], tf.Tensor]:
        return tf.function(lambda image: self.model(image, training=False), jit_compile=False)

    def saved_model(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return the function after saving and loading, which runs without Keras' code."""
        module = tf.Module()
        module.model = self.model
        image = tf.TensorSpec([1, *self.model.input_shape[1:]], tf.float32)
        module.answer = tf.function(
            lambda image: self.model(image, training=False), input_signature=[image], jit_compile=False
        )
        tf.saved_model.save(module, str(self.folder))
        loaded = tf.saved_model.load(str(self.folder))
        return lambda image: loaded.answer(image)  # the function alone does not keep its variables alive

    def tflite(self) -> Callable[[np.ndarray], np.ndarray]:
        return interpreter(self.file)
