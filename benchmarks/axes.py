"""What the benchmarks vary, each declared once. The first level of an axis is its reference.

Anything of TensorFlow stands inside a function here, so that importing this module loads nothing.
"""

from __future__ import annotations

import tensorflow as tf

from tfbench import Axis, Level


def _needs_gpu() -> str | None:
    if tf.config.list_physical_devices("GPU"):
        return None
    if not tf.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA; install tensorflow[and-cuda] where there is a GPU"
    return "TensorFlow sees no GPU; run on a machine with one and its driver, with tensorflow[and-cuda]"


def _needs_nchw_kernels() -> str | None:
    pixel = tf.ones([1, 1, 1, 1])
    try:
        tf.nn.conv2d(pixel, pixel, strides=1, padding="SAME", data_format="NCHW")
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
        return "no NCHW kernel of Conv2D here; set TF_ENABLE_ONEDNN_OPTS=1, compile with XLA or run on a GPU"
    return None


def _keras_policy(name):
    return lambda: tf.keras.mixed_precision.set_global_policy(name)


def _remapping(on):
    return lambda: tf.config.optimizer.set_experimental_options({"remapping": on})


def _step_compiled_by_xla(step):
    return tf.function(step, jit_compile=True)


def _step_without_xla(step):
    return tf.function(step, jit_compile=False)


def _precision(name, dtype, parity):
    return Level(
        name, cast=lambda x: tf.cast(x, dtype), parity=lambda: parity, setup=_keras_policy(name)
    )  # fmt: skip


# cast(tensor): to the type that this level computes in. Keras layers follow the policy by themselves.
# parity(): the error that its digits (24, 11 and 8 bits) allow in a sum of a few hundred products.
PRECISION = Axis(
    "precision",
    _precision("float32", "float32", 1e-5),
    _precision("mixed_float16", "float16", 2e-3),
    _precision("mixed_bfloat16", "bfloat16", 2e-2),
)

# compile(step): a tf.function. jit_compile is always pinned, since a default may differ between versions.
COMPILER = Axis(
    "compiler",
    Level("none", compile=_step_without_xla),
    Level("xla", compile=_step_compiled_by_xla),
)

# Grappler's remapper, which merges a convolution or a product with what follows it. To be taken by
# functions that XLA does not compile.
FUSION = Axis(
    "fusion",
    Level("fused", setup=_remapping(True)),
    Level("unfused", setup=_remapping(False)),
)

# Chains of elementwise ops and reductions, which only XLA merges. compile(step), as COMPILER gives it.
FUSION_BY_XLA = Axis(
    "fusion",
    Level("fused", compile=_step_compiled_by_xla),
    Level("unfused", compile=_step_without_xla),
)

# layout(images): from NHWC to this layout. pixels(): its axes of height and width.
_NHWC = {"layout": lambda images: images, "pixels": lambda: [1, 2]}
_NCHW = {"layout": lambda images: tf.transpose(images, [0, 3, 1, 2]), "pixels": lambda: [2, 3]}
LAYOUT = Axis("layout", Level("NHWC", **_NHWC), Level("NCHW", **_NCHW, requires=_needs_nchw_kernels))

# The same for what XLA compiles, which needs no kernel of TensorFlow's.
LAYOUT_UNDER_XLA = Axis("layout", Level("NHWC", **_NHWC), Level("NCHW", **_NCHW))

# Read when TensorFlow is imported. Both levels say it, since the default depends on the processor.
ONEDNN = Axis(
    "onednn",
    Level("off", env={"TF_ENABLE_ONEDNN_OPTS": "0"}),
    Level("on", env={"TF_ENABLE_ONEDNN_OPTS": "1"}),
)

# feed(data, load, size): batches of what `load` makes of a record; it takes a batch of records as well.
# The degree of parallelism is fixed, since what AUTOTUNE chooses depends on the machine and the moment.
PIPELINE = Axis(
    "pipeline",
    Level("naive", feed=lambda data, load, size: data.map(load).batch(size)),
    Level("prefetch", feed=lambda data, load, size: data.map(load).batch(size).prefetch(2)),
    Level("parallel_map", feed=lambda data, load, size: data.map(load, num_parallel_calls=4).batch(size)),
    Level("cache", feed=lambda data, load, size: data.map(load).batch(size).cache()),
    Level("batch_then_map", feed=lambda data, load, size: data.batch(size).map(load)),
)

# on_device(): a context in which tensors are made and functions run.
DEVICE = Axis(
    "device",
    Level("cpu", on_device=lambda: tf.device("CPU:0")),
    Level("gpu", on_device=lambda: tf.device("GPU:0"), requires=_needs_gpu),
)

# How many tensors a function is called with: int(variant["arguments"]).
ARGUMENTS = Axis("arguments", Level("1"), Level("10"), Level("100"))

# invoke(model): a function of one batch that asks a Keras model for its predictions in this way.
INVOCATION = Axis(
    "invocation",
    Level("function", invoke=lambda model: _step_without_xla(lambda batch: model(batch, training=False))),
    Level("call", invoke=lambda model: lambda batch: model(batch, training=False)),
    Level("predict", invoke=lambda model: lambda batch: model.predict(batch, verbose=0)),
)
