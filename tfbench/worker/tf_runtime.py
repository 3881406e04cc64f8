"""What the worker asks of TensorFlow itself; the one place that knows its private corners."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfbench.model import JSON


def tensorflow() -> Any:
    """The TensorFlow that the benchmarks imported, or ``None`` if none did."""
    return sys.modules.get("tensorflow")


def import_all() -> None:
    """Import what benchmarks touch late (Keras), so that every launch need not; runs no op."""
    tf = tensorflow()
    if tf is not None:
        try:
            tf.keras.layers.Dense  # noqa: B018 - the touch imports Keras
        except (ImportError, AttributeError):
            pass  # TensorFlow without Keras is a TensorFlow that can be measured


def has_run_an_op() -> bool:
    """Whether the eager runtime has started, after which this process cannot be forked safely.

    Reads ``tensorflow.python.eager.context`` as 2.12 to 2.21 have it.
    """
    module = sys.modules.get("tensorflow.python.eager.context")
    context = getattr(module, "_context", None)
    return bool(getattr(context, "_initialized", False))


def has_opened_gpu(files: Path = Path("/proc/self/fd")) -> bool:
    """Whether CUDA was initialised in this process, whose children could not use it any more.

    Seen by the driver's files being open: asking CUDA would initialise it.

    Args:
        files: Where the open files of this process are.
    """
    try:
        opened = list(files.iterdir())
    except OSError:
        return False  # no Linux, and no CUDA either
    for file in opened:
        try:
            if os.readlink(file).startswith("/dev/nvidia"):
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def set_threads(threads: int) -> None:
    """Intra- and inter-op threads of this process; to be called before the first op."""
    tf = tensorflow()
    if tf is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def synchroniser() -> Callable[[], object] | None:
    """What waits for the devices, or ``None`` where every call returns finished work.

    CPU ops return when they are done; asking all the same costs 12 µs a block.
    """
    tf = tensorflow()
    if tf is None or not tf.config.list_physical_devices("GPU"):
        return None
    return tf.test.experimental.sync_devices  # type: ignore[no-any-return]


def devices() -> JSON:
    """The devices that TensorFlow sees, by kind. Initialises CUDA: for launched processes only."""
    tf = tensorflow()
    if tf is None:
        return {}
    found: dict[str, list[str]] = {}
    for device in tf.config.list_physical_devices():
        details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
        found.setdefault(device.device_type, []).append(str(details.get("device_name", device.name)))
    return found


def die_with_parent() -> None:
    """Have the kernel kill this process when its zygote ends, so that none is left over (Linux)."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass


def pin(cpus: list[int]) -> None:
    """Keep this process on these processors, where the system can."""
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
