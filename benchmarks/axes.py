"""What the benchmarks vary, each declared once. The first level of an axis is its reference.

Anything of TensorFlow stands inside a function here, so that importing this module loads nothing.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from importlib import metadata

import tensorflow as tf

from tfbench import Axis, Level


def by_device(cpu, gpu):
    """Shapes for the processor, or where TensorFlow sees one for a GPU, which smaller work leaves idle."""
    return gpu if tf.config.list_physical_devices("GPU") else cpu


def matmul_tolerance(error):
    """The error that products of float32 may have: on a GPU they are of TF32, which keeps 11 bits, unless somebody says no."""
    return by_device(error, max(error, 2e-3))


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


def _needs_tf_keras() -> str | None:
    """Its minor version must be TensorFlow's."""
    minor = ".".join(tf.__version__.split(".")[:2])
    fix = f"pip install 'tf-keras~={minor}.0'"
    try:
        found = metadata.version("tf-keras")
    except metadata.PackageNotFoundError:
        return f"tf_keras is not installed; {fix}"
    if not f"{found}.".startswith(f"{minor}."):
        return f"tf_keras {found} is not for TensorFlow {tf.__version__}; {fix}"
    return None


def _needs_optimization() -> str | None:
    if importlib.util.find_spec("tensorflow_model_optimization") is None:
        return "tensorflow-model-optimization is not installed; pip install tensorflow-model-optimization"
    return _needs_tf_keras()


def _keras_policy(name):
    return lambda: tf.keras.mixed_precision.set_global_policy(name)


def _add_xla_flag(flag):
    """Flags are read when XLA is first used, which is after this."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()


def _kept_autotuning():
    """In a folder that must exist, and which no other version of XLA may see."""
    folder = os.path.join(tempfile.gettempdir(), f"tfbench-autotuning-{os.getuid()}", tf.__version__)
    os.makedirs(folder, exist_ok=True)
    _add_xla_flag(f"--xla_gpu_per_fusion_autotune_cache_dir={folder}")


def _tf32(on):
    return lambda: tf.config.experimental.enable_tensor_float_32_execution(on)


def _remapping(on):
    return lambda: tf.config.optimizer.set_experimental_options({"remapping": on})


def _autocluster():
    tf.config.optimizer.set_jit(True)
    _remapping(False)()  # what grappler has merged, XLA cannot compile


def _grappler_leaves(op, count):
    """On a GPU grappler merges other patterns than on a CPU."""
    return {} if tf.config.list_physical_devices("GPU") else {"expect_ops": {op: count}, "compiled": False}


def _step_compiled_by_xla(step):
    return tf.function(step, jit_compile=True)


def _step_without_xla(step):
    return tf.function(step, jit_compile=False)


def _precision(name, dtype, parity):
    return Level(
        name, cast=lambda x: tf.cast(x, dtype), parity=lambda: matmul_tolerance(parity), setup=_keras_policy(name)
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

# Who merges a kernel with what follows it: grappler's remapper, nobody, XLA where it is told to compile the function, or XLA
# where it is left to find clusters. compile(step), as COMPILER gives it. proves(op): the contract that it is so.
FUSION = Axis(
    "fusion",
    Level("fused", setup=_remapping(True), compile=_step_without_xla, proves=lambda op: _grappler_leaves(op, 1)),
    Level("unfused", setup=_remapping(False), compile=_step_without_xla, proves=lambda op: _grappler_leaves(op, 0)),
    Level("xla", compile=_step_compiled_by_xla, proves=lambda op: {"compiled": True}),
    Level(
        "autocluster",
        setup=_autocluster,
        compile=lambda step: tf.function(step),
        proves=lambda op: {"compiled": True, "expect_ops": {"_XlaRun": 1}},
        env={"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1"},
    ),
)

# Chains of elementwise ops and reductions, which only XLA merges. compile(step), as COMPILER gives it.
FUSION_BY_XLA = Axis(
    "fusion",
    Level("fused", compile=_step_compiled_by_xla, proves=lambda: {"compiled": True}),
    Level("unfused", compile=_step_without_xla, proves=lambda: {"compiled": False}),
)

# layout(images): from NHWC to this layout. pixels(): its axes of height and width.
_NHWC = {"layout": lambda images: images, "pixels": lambda: [1, 2]}
_NCHW = {"layout": lambda images: tf.transpose(images, [0, 3, 1, 2]), "pixels": lambda: [2, 3]}
LAYOUT = Axis("layout", Level("NHWC", **_NHWC), Level("NCHW", **_NCHW, requires=_needs_nchw_kernels))

# The same for what XLA compiles, which needs no kernel of TensorFlow's.
LAYOUT_UNDER_XLA = Axis("layout", Level("NHWC", **_NHWC), Level("NCHW", **_NCHW))

# off(): what a dimension is less than a multiple of 16.
ALIGNMENT = Axis("alignment", Level("aligned", off=lambda: 0), Level("misaligned", off=lambda: 1))


def _fused(images, scale, offset, epsilon, layout="NHWC"):
    return tf.compat.v1.nn.fused_batch_norm(
        images, scale, offset, epsilon=epsilon, data_format=layout, is_training=True
    )[0]


def _composed(images, scale, offset, epsilon, layout="NHWC"):
    axes, shape = ([0, 1, 2], [-1]) if layout == "NHWC" else ([0, 2, 3], [1, -1, 1, 1])
    mean, variance = tf.nn.moments(images, axes=axes, keepdims=True)
    return tf.nn.batch_normalization(
        images, mean, variance, tf.reshape(offset, shape), tf.reshape(scale, shape), epsilon
    )


# normalize(images, scale, offset, epsilon, layout): by the moments of the batch.
NORMALIZATION = Axis("normalization", Level("fused", normalize=_fused), Level("composed", normalize=_composed))

# unrolled(): whether a recurrent layer is a chain in the graph instead of a loop.
ROLLING = Axis("rolling", Level("loop", unrolled=lambda: False), Level("unrolled", unrolled=lambda: True))

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

# read(paths, opened): the records of all files, whose datasets `opened` gives.
READING = Axis(
    "reading",
    Level("naive", read=lambda paths, opened: paths.flat_map(opened)),
    Level("interleave", read=lambda paths, opened: paths.interleave(opened, cycle_length=4)),
    Level("parallel", read=lambda paths, opened: paths.interleave(opened, cycle_length=4, num_parallel_calls=4)),
)

# keep(data, path): what a second epoch need not make again.
STORAGE = Axis(
    "storage",
    Level("naive", keep=lambda data, path: data),
    Level("memory", keep=lambda data, path: data.cache()),
    Level("disk", keep=lambda data, path: data.cache(path)),
    Level("snapshot", keep=lambda data, path: data.snapshot(path)),
)

# shuffle(data): by a buffer of so many records.
SHUFFLE = Axis(
    "shuffle",
    Level("none", shuffle=lambda data: data),
    Level("100", shuffle=lambda data: data.shuffle(100, seed=1)),
    Level("2000", shuffle=lambda data: data.shuffle(2000, seed=1)),
)

# feed(data, convert, size): batches behind a buffer of eight, converted before it or behind it.
MEMORY = Axis(
    "converted",
    Level("early", feed=lambda data, convert, size: data.map(convert).batch(size).prefetch(8)),
    Level("late", feed=lambda data, convert, size: data.batch(size).prefetch(8).map(convert)),
)

# feed(images, labels, load, size): an epoch of batches of pairs, each image loaded by `load`.
FEED = Axis(
    "input",
    Level("synthetic", feed=lambda images, labels, load, size: _pairs(images, labels).batch(size)),
    Level("naive", feed=lambda images, labels, load, size: _pairs(images, labels).map(load).batch(size)),
    Level("prefetch", feed=lambda images, labels, load, size: _pairs(images, labels).map(load).batch(size).prefetch(2)),
    Level(
        "parallel",
        feed=lambda images, labels, load, size: (
            _pairs(images, labels).map(load, num_parallel_calls=8).batch(size).prefetch(2)
        ),
    ),
)


def _pairs(images, labels):
    return tf.data.Dataset.from_tensor_slices((images, labels))


def _served(data):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    distributed = data.apply(
        service.distribute(service.ShardingPolicy.OFF, dispatcher.target, max_outstanding_requests=1)
    )

    def stop():
        worker.stop()
        dispatcher.stop()

    return distributed, stop


# serve(data): the data as it comes, and what ends whatever makes it.
SERVING = Axis(
    "serving",
    Level("local", serve=lambda data: (data, lambda: None)),
    Level("service", serve=_served),
)


def _replicas(count):
    """So many logical processors, or where there are GPUs as many of them as there are, at most."""

    def split():
        if not tf.config.list_physical_devices("GPU"):
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)

    def strategy():
        kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        return tf.distribute.MirroredStrategy([f"{kind}:{number}" for number in range(count)])

    def too_few():
        gpus = len(tf.config.list_physical_devices("GPU"))
        return f"there are {gpus} GPUs; a machine with {count} can tell" if 0 < gpus < count else None

    return {"setup": split, "strategy": strategy, "requires": too_few}


# strategy(): a MirroredStrategy over so many devices.
REPLICAS = Axis("replicas", Level("1", **_replicas(1)), Level("2", **_replicas(2)))

# on_device(): a context in which tensors are made and functions run.
DEVICE = Axis(
    "device",
    Level("cpu", on_device=lambda: tf.device("CPU:0")),
    Level("gpu", on_device=lambda: tf.device("GPU:0"), requires=_needs_gpu),
)

# Whether float32 products may use Tensor Cores, with fewer digits.
TF32 = Axis(
    "tf32",
    Level("on", setup=_tf32(True), requires=_needs_gpu),
    Level("off", setup=_tf32(False), requires=_needs_gpu),
)

# How XLA chooses among kernels.
AUTOTUNING = Axis(
    "autotuning",
    Level("each", requires=_needs_gpu),
    Level("cached", setup=_kept_autotuning, requires=_needs_gpu),
    Level("off", setup=lambda: _add_xla_flag("--xla_gpu_autotune_level=0"), requires=_needs_gpu),
)

# Who hands out the memory of a GPU.
ALLOCATOR = Axis(
    "allocator",
    Level("bfc", requires=_needs_gpu),
    Level("cuda_malloc_async", env={"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, requires=_needs_gpu),
)

# compile(step): the step as Python runs it op by op, as a graph, or compiled by XLA.
EXECUTION = Axis(
    "execution",
    Level("eager", compile=lambda step: step),
    Level("function", compile=_step_without_xla),
    Level("xla", compile=_step_compiled_by_xla),
)

# Batches between two calls from Python: int(variant["steps"]).
STEPS_PER_EXECUTION = Axis("steps", Level("1"), Level("10"), Level("100"))

# counts(number): whether metrics are updated after this step.
METRICS = Axis(
    "metrics",
    Level("every_step", counts=lambda number: True),
    Level("every_ten_steps", counts=lambda number: number % 10 == 9),
    Level("none", counts=lambda number: False),
)

# tensors(): into how many variables the parameters are split.
PARAMETERS = Axis("parameters", Level("few", tensors=lambda: 2), Level("many", tensors=lambda: 50))

# Read when tf.keras is first used.
KERAS = Axis(
    "keras",
    Level("3", env={"TF_USE_LEGACY_KERAS": "0"}),
    Level("2", env={"TF_USE_LEGACY_KERAS": "1"}, requires=_needs_tf_keras),
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


# How a model was optimised. training(): what of; precision(): of the numbers in its file for TFLite.
def _optimized(name, training, precision="float32"):
    return Level(name, training=lambda: training, precision=lambda: precision, requires=_needs_optimization)


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

# Whether zeros are left out of the file, and with them out of the products.
SPARSE = Axis(
    "kernels",
    _optimized("unpruned", "dense"),
    _optimized("dense", "pruned_90"),
    _optimized("sparse", "pruned_90", "sparse"),
)

# answer(deployed): a function of one image.
TARGET = Axis(
    "target",
    Level("function", answer=lambda deployed: deployed.function(), requires=_needs_optimization),
    Level("saved_model", answer=lambda deployed: deployed.saved_model(), requires=_needs_optimization),
    Level("tflite", answer=lambda deployed: deployed.tflite(), requires=_needs_optimization),
)

# Of TFLite: int(variant["threads"]).
THREADS = Axis("threads", Level("1"), Level("2"))
