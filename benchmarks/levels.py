"""Define what the levels of axes.py do: requirements, settings and steps.

Every use of TensorFlow is inside a function, so that importing this module loads nothing.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from importlib import metadata

import tensorflow as tf

# Requirements: None, or the reason to skip a case, with the fix


def needs_gpu() -> str | None:
    if tf.config.list_physical_devices("GPU"):
        return None
    if not tf.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA; install tensorflow[and-cuda] on a machine with a GPU"
    return "TensorFlow sees no GPU; run on a machine with a GPU and its driver, with tensorflow[and-cuda]"


def needs_nchw_kernels() -> str | None:
    pixel = tf.ones([1, 1, 1, 1])
    try:
        tf.nn.conv2d(pixel, pixel, strides=1, padding="SAME", data_format="NCHW")
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
        return "no NCHW kernel of Conv2D here; set TF_ENABLE_ONEDNN_OPTS=1, compile with XLA or run on a GPU"
    return None


def needs_tf_keras() -> str | None:
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


def needs_optimization() -> str | None:
    if importlib.util.find_spec("tensorflow_model_optimization") is None:
        return "tensorflow-model-optimization is not installed; pip install tensorflow-model-optimization"
    return needs_tf_keras()


# Settings of the process


def keras_policy(name):
    return lambda: tf.keras.mixed_precision.set_global_policy(name)


def add_xla_flag(flag):
    """Add a flag. XLA reads the flags once: at its first use, or when TensorFlow first asks for GPUs."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()


def cached_autotuning():
    """Cache in a folder that must exist and that no other version of XLA may use."""
    folder = os.path.join(tempfile.gettempdir(), f"tfbench-autotuning-{os.getuid()}", tf.__version__)
    os.makedirs(folder, exist_ok=True)
    add_xla_flag(f"--xla_gpu_per_fusion_autotune_cache_dir={folder}")


def tf32(on):
    return lambda: tf.config.experimental.enable_tensor_float_32_execution(on)


def remapping(on):
    return lambda: tf.config.optimizer.set_experimental_options({"remapping": on})


def autocluster():
    tf.config.optimizer.set_jit(True)
    remapping(False)()  # XLA cannot compile ops that grappler has fused


# Steps


def compiled_by_xla(step):
    return tf.function(step, jit_compile=True)


def without_xla(step):
    return tf.function(step, jit_compile=False)


def contract_on_cpu(ops, compiled):
    """Contract on the ops of a graph. On a GPU grappler fuses other patterns, and clusters leave small ops out."""
    return {} if tf.config.list_physical_devices("GPU") else {"expect_ops": ops, "compiled": compiled}


def fused_batchnorm(images, scale, offset, epsilon, layout="NHWC"):
    return tf.compat.v1.nn.fused_batch_norm(
        images, scale, offset, epsilon=epsilon, data_format=layout, is_training=True
    )[0]


def composed_batchnorm(images, scale, offset, epsilon, layout="NHWC"):
    axes, shape = ([0, 1, 2], [-1]) if layout == "NHWC" else ([0, 2, 3], [1, -1, 1, 1])
    mean, variance = tf.nn.moments(images, axes=axes, keepdims=True)
    return tf.nn.batch_normalization(
        images, mean, variance, tf.reshape(offset, shape), tf.reshape(scale, shape), epsilon
    )


def pairs(images, labels):
    return tf.data.Dataset.from_tensor_slices((images, labels))


def untuned(data):
    """Switch off tf.data's autotuning: the end of an iterator waits for its thread, sometimes longer than the data takes."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return data.with_options(options)


def predicting(model):
    """Return predict() as a function of one batch."""
    return lambda batch: model.predict(untuned(tf.data.Dataset.from_tensors(batch)), verbose=0)


def served(data):
    """Distribute a dataset by a tf.data service in this process: the dataset, and a function that stops the service."""
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


def replicas(count):
    """Keywords of a level with this many replicas: GPUs if there are any, and logical processors otherwise."""

    def split():
        if not tf.config.list_physical_devices("GPU"):
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)

    def strategy():
        kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        return tf.distribute.MirroredStrategy([f"{kind}:{number}" for number in range(count)])

    def too_few():
        gpus = len(tf.config.list_physical_devices("GPU"))
        return f"this machine has {gpus} of {count} GPUs; run on one that has {count}" if 0 < gpus < count else None

    return {"setup": split, "strategy": strategy, "requires": too_few}
