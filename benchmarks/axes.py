"""Declare what the benchmarks vary. The first level of an axis is its reference.

Every use of TensorFlow is inside a function, so that importing this module loads nothing.
"""

from __future__ import annotations

import math
import os

import tensorflow as tf

from benchmarks import levels
from tfbench import Axis, Level


def by_scale(small, large, huge=None):
    """Select shapes by the scale of the run. A GPU has the large ones, because the small ones would leave it idle.

    A medium number is the power of two next to the geometric mean. What is no number stays small. Huge shapes are large
    ones if there are no others. At the peak rates of an H200, they keep it busy for 2 ms a step in float32 and 1 ms in other
    types, or half of that where a step only reads an array. They take an estimated 32 GiB at most, for both sides of a race
    to fit on a GPU.
    """
    scale = os.environ.get("TFBENCH_SCALE", "small")
    if scale == "huge" and huge is not None:
        return huge
    if scale in ("large", "huge") or tf.config.list_physical_devices("GPU"):
        return large
    return _medium(small, large) if scale == "medium" else small


def _medium(small, large):
    if isinstance(small, tuple):
        if all(isinstance(one, (int, tuple)) for one in small):
            return tuple(_medium(*pair) for pair in zip(small, large, strict=True))
        return small  # a model: its numbers belong together
    return small if small == large else 2 ** round(math.log2(small * large) / 2)


def matmul_tolerance(error):
    """Return the error allowed in products of float32. On a GPU they use TF32 by default, which keeps 11 bits."""
    return max(error, 2e-3) if tf.config.list_physical_devices("GPU") else error


def _precision(name, dtype, parity):
    return Level(
        name, cast=lambda x: tf.cast(x, dtype), parity=lambda: matmul_tolerance(parity), setup=levels.keras_policy(name)
    )  # fmt: skip


# cast(tensor): casts to the type of this level. Keras layers follow the policy by themselves.
# parity(): the error that its precision (24, 11 and 8 bits) allows in a sum of a few hundred products.
PRECISION = Axis(
    "precision",
    _precision("float32", "float32", 1e-5),
    _precision("mixed_float16", "float16", 2e-3),
    _precision("mixed_bfloat16", "bfloat16", 2e-2),
)

# compile(step): returns a tf.function. jit_compile is always set, because its default may differ between versions.
COMPILER = Axis(
    "compiler",
    Level("none", compile=levels.without_xla),
    Level("xla", compile=levels.compiled_by_xla),
)

# What fuses a kernel with the ops after it: grappler's remapper, nothing, XLA as the compiler of the function, or XLA
# with clusters of its own choice. compile(step): as for COMPILER. proves(op): the contract that this happens.
FUSION = Axis(
    "fusion",
    Level(
        "fused",
        setup=levels.remapping(True),
        compile=levels.without_xla,
        proves=lambda op: levels.contract_on_cpu({op: 1}, compiled=False),
    ),
    Level(
        "unfused",
        setup=levels.remapping(False),
        compile=levels.without_xla,
        proves=lambda op: levels.contract_on_cpu({op: 0}, compiled=False),
    ),
    Level("xla", compile=levels.compiled_by_xla, proves=lambda op: {"compiled": True}),
    Level(
        "autocluster",
        setup=levels.autocluster,
        compile=lambda step: tf.function(step),
        proves=lambda op: levels.contract_on_cpu({"_XlaRun": 1}, compiled=True),
        env={"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1"},
    ),
)

# Chains of elementwise ops and reductions, which only XLA fuses. compile(step): as for COMPILER.
FUSION_BY_XLA = Axis(
    "fusion",
    Level("fused", compile=levels.compiled_by_xla, proves=lambda: {"compiled": True}),
    Level("unfused", compile=levels.without_xla, proves=lambda: {"compiled": False}),
)

# layout(images): converts from NHWC to this layout. pixels(): the axes of height and width.
_NHWC = {"layout": lambda images: images, "pixels": lambda: [1, 2]}
_NCHW = {"layout": lambda images: tf.transpose(images, [0, 3, 1, 2]), "pixels": lambda: [2, 3]}
LAYOUT = Axis("layout", Level("NHWC", **_NHWC), Level("NCHW", **_NCHW, requires=levels.needs_nchw_kernels))

# The same for steps that XLA compiles, which need no kernel of TensorFlow.
LAYOUT_UNDER_XLA = Axis("layout", Level("NHWC", **_NHWC), Level("NCHW", **_NCHW))

# off(): the difference of a dimension to a multiple of 16.
ALIGNMENT = Axis("alignment", Level("aligned", off=lambda: 0), Level("misaligned", off=lambda: 1))


# normalize(images, scale, offset, epsilon, layout): normalizes by the moments of the batch.
NORMALIZATION = Axis(
    "normalization",
    Level("fused", normalize=levels.fused_batchnorm),
    Level("composed", normalize=levels.composed_batchnorm),
)

# unrolled(): whether a recurrent layer is a chain in the graph instead of a loop.
ROLLING = Axis("rolling", Level("loop", unrolled=lambda: False), Level("unrolled", unrolled=lambda: True))

# TensorFlow reads the variable at import. Both levels set it, because the default depends on the processor.
ONEDNN = Axis(
    "onednn",
    Level("off", env={"TF_ENABLE_ONEDNN_OPTS": "0"}),
    Level("on", env={"TF_ENABLE_ONEDNN_OPTS": "1"}),
)

# feed(data, load, size): returns batches of loaded records. `load` takes a record or a batch of records.
# The degree of parallelism is fixed, because the choice of AUTOTUNE depends on the machine and the moment.
PIPELINE = Axis(
    "pipeline",
    Level("naive", feed=lambda data, load, size: data.map(load).batch(size)),
    Level("prefetch", feed=lambda data, load, size: data.map(load).batch(size).prefetch(2)),
    Level("parallel_map", feed=lambda data, load, size: data.map(load, num_parallel_calls=4).batch(size)),
    Level("cache", feed=lambda data, load, size: data.map(load).batch(size).cache()),
    Level("batch_then_map", feed=lambda data, load, size: data.batch(size).map(load)),
)

# read(paths, opened): returns the records of all files. `opened` returns the dataset of a file.
READING = Axis(
    "reading",
    Level("naive", read=lambda paths, opened: paths.flat_map(opened)),
    Level("interleave", read=lambda paths, opened: paths.interleave(opened, cycle_length=4)),
    Level("parallel", read=lambda paths, opened: paths.interleave(opened, cycle_length=4, num_parallel_calls=4)),
)

# keep(data, path): stores the records, so that a second epoch does not compute them again.
STORAGE = Axis(
    "storage",
    Level("naive", keep=lambda data, path: data),
    Level("memory", keep=lambda data, path: data.cache()),
    Level("disk", keep=lambda data, path: data.cache(path)),
    Level("snapshot", keep=lambda data, path: data.snapshot(path)),
)

# shuffle(data): shuffles in a buffer of this many records.
SHUFFLE = Axis(
    "shuffle",
    Level("none", shuffle=lambda data: data),
    Level("100", shuffle=lambda data: data.shuffle(100, seed=1)),
    Level("2000", shuffle=lambda data: data.shuffle(2000, seed=1)),
)

# feed(data, convert, size): returns batches from a buffer of eight, converted before or after it.
MEMORY = Axis(
    "converted",
    Level("early", feed=lambda data, convert, size: data.map(convert).batch(size).prefetch(8)),
    Level("late", feed=lambda data, convert, size: data.batch(size).prefetch(8).map(convert)),
)

# feed(images, labels, load, size): returns an epoch of batches of pairs. `load` loads each image.
FEED = Axis(
    "input",
    Level("synthetic", feed=lambda images, labels, load, size: levels.pairs(images, labels).batch(size)),
    Level("naive", feed=lambda images, labels, load, size: levels.pairs(images, labels).map(load).batch(size)),
    Level(
        "prefetch",
        feed=lambda images, labels, load, size: levels.pairs(images, labels).map(load).batch(size).prefetch(2),
    ),
    Level(
        "parallel",
        feed=lambda images, labels, load, size: (
            levels.pairs(images, labels).map(load, num_parallel_calls=8).batch(size).prefetch(2)
        ),
    ),
)


# serve(data): returns the dataset, and a function that stops its service.
SERVING = Axis(
    "serving",
    Level("local", serve=lambda data: (data, lambda: None)),
    Level("service", serve=levels.served),
)


# strategy(): returns a MirroredStrategy over this many devices.
REPLICAS = Axis("replicas", Level("1", **levels.replicas(1)), Level("2", **levels.replicas(2)))

# on_device(): returns a context that creates tensors and runs functions on the device.
DEVICE = Axis(
    "device",
    Level("cpu", on_device=lambda: tf.device("CPU:0")),
    Level("gpu", on_device=lambda: tf.device("GPU:0"), requires=levels.needs_gpu),
)

# Whether float32 products may use Tensor Cores, with lower precision.
TF32 = Axis(
    "tf32",
    Level("on", setup=levels.tf32(True), requires=levels.needs_gpu),
    Level("off", setup=levels.tf32(False), requires=levels.needs_gpu),
)

# How XLA selects kernels. Its flags are set before TensorFlow lists its GPUs, so this axis comes before others that do.
AUTOTUNING = Axis(
    "autotuning",
    Level("each", requires=levels.needs_gpu),
    Level("cached", requires=lambda: levels.cached_autotuning() or levels.needs_gpu()),
    Level("off", requires=lambda: levels.add_xla_flag("--xla_gpu_autotune_level=0") or levels.needs_gpu()),
)

# Whether a call finds its tensors in the cache: bench(..., cache=variant["cache"]).
CACHE = Axis("cache", Level("warm"), Level("cold"))

# The allocator of GPU memory.
ALLOCATOR = Axis(
    "allocator",
    Level("bfc", requires=levels.needs_gpu),
    Level("cuda_malloc_async", env={"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, requires=levels.needs_gpu),
)

# compile(step): returns the step for eager execution, as a graph, or compiled by XLA.
EXECUTION = Axis(
    "execution",
    Level("eager", compile=lambda step: step),
    Level("function", compile=levels.without_xla),
    Level("xla", compile=levels.compiled_by_xla),
)

# Batches per call from Python: int(variant["steps"]).
STEPS_PER_EXECUTION = Axis("steps", Level("1"), Level("10"), Level("100"))

# counts(number): whether metrics are updated after this step.
METRICS = Axis(
    "metrics",
    Level("every_step", counts=lambda number: True),
    Level("every_ten_steps", counts=lambda number: number % 10 == 9),
    Level("none", counts=lambda number: False),
)

# tensors(): the number of variables for the same parameters.
PARAMETERS = Axis("parameters", Level("few", tensors=lambda: 2), Level("many", tensors=lambda: 50))

# TensorFlow reads the variable at the first use of tf.keras.
KERAS = Axis(
    "keras",
    Level("3", env={"TF_USE_LEGACY_KERAS": "0"}),
    Level("2", env={"TF_USE_LEGACY_KERAS": "1"}, requires=levels.needs_tf_keras),
)

# Number of tensors that a function is called with: int(variant["arguments"]).
ARGUMENTS = Axis("arguments", Level("1"), Level("10"), Level("100"))

# invoke(model): returns a function of one batch that computes a Keras model's predictions.
INVOCATION = Axis(
    "invocation",
    Level("function", invoke=lambda model: levels.without_xla(lambda batch: model(batch, training=False))),
    Level("call", invoke=lambda model: lambda batch: model(batch, training=False)),
    Level("predict", invoke=levels.predicting),
)


# How a model was optimized. training(): its weights. precision(): the number format of its TFLite file.
def _optimized(name, training, precision="float32"):
    return Level(name, training=lambda: training, precision=lambda: precision, requires=levels.needs_optimization)


PRUNING = Axis(
    "pruning",
    _optimized("none", "dense"),
    _optimized("50", "pruned_50"),
    _optimized("80", "pruned_80"),
    _optimized("90", "pruned_90"),
    _optimized("2of4", "pruned_2of4"),
)
CLUSTERING = Axis("clustering", _optimized("none", "dense"), _optimized("16", "clustered_16"))
QUANTIZATION = Axis(
    "quantization",
    _optimized("none", "dense"),
    _optimized("dynamic", "dense", "dynamic"),
    _optimized("float16", "dense", "float16"),
    _optimized("int8", "dense", "int8"),
    _optimized("aware", "aware", "int8"),
    _optimized("pruned_int8", "pruned_80", "int8"),
    _optimized("clustered_int8", "clustered_16", "int8"),
)

# Whether the file leaves zeros out, and with them the products.
SPARSE = Axis(
    "kernels",
    _optimized("unpruned", "dense"),
    _optimized("dense", "pruned_90"),
    _optimized("sparse", "pruned_90", "sparse"),
)

# answer(deployed): returns a function of one image.
TARGET = Axis(
    "target",
    Level("function", answer=lambda deployed: deployed.function(), requires=levels.needs_optimization),
    Level("saved_model", answer=lambda deployed: deployed.saved_model(), requires=levels.needs_optimization),
    Level("tflite", answer=lambda deployed: deployed.tflite(), requires=levels.needs_optimization),
)

# Threads of TFLite: int(variant["threads"]).
THREADS = Axis("threads", Level("1"), Level("2"))
