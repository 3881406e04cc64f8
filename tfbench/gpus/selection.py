"""Choose GPUs, and lock them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from platformdirs import user_cache_path

from tfbench.errors import GpuError, UsageError
from tfbench.fs import try_lock
from tfbench.gpus.nvml import Identity

# Lock each GPU for one run of a user at a time: two runs would measure each other


def lock(gpus: Sequence[Identity], folder: Path | None = None) -> ExitStack:
    """Lock GPUs by files in a folder, by default of this user, until the returned stack is closed or this process dies.

    The GPU monitor notices processes of other users.

    Raises `GpuError` if another run measures on a GPU, or the folder is not usable.
    """
    folder = folder or user_cache_path("tfbench", appauthor=False) / "gpus"
    with ExitStack() as held:
        for gpu in gpus:
            try:
                file = try_lock(folder / f"{gpu.uuid.replace('/', '_')}.lock")
            except OSError as error:
                raise GpuError(f"{folder} cannot hold the locks of GPUs: {error.strerror}") from None
            if file is None:
                text = f"another run measures on GPU {gpu.index} ({gpu.name}): wait for it"
                raise GpuError(f"{text}, or select another GPU with --device gpu:INDEX")
            held.enter_context(file)
        return held.pop_all()


# Select the GPUs of a run: ``gpu``, ``gpu:0,2``, ``gpu:GPU-8f6…``, or every GPU in CUDA_VISIBLE_DEVICES


KINDS = ("cpu", "gpu", "all")
VISIBLE = "CUDA_VISIBLE_DEVICES"
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
"""Lets memory grow on demand. Otherwise the first process of a launch takes all of it, and the second gets none."""
_ORDER = "CUDA_DEVICE_ORDER"
_NAME = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


def parse_device(text: str) -> tuple[str, tuple[str, ...]]:
    """Split the value of ``--device`` into the kind, and the indices or UUIDs of GPUs.

    Raises `UsageError` if the value is neither a kind nor a list of GPUs.
    """
    kind, colon, names = text.partition(":")
    if kind not in KINDS or (colon and kind != "gpu"):
        raise UsageError(f"--device {text!r}: choose from {', '.join(KINDS)}, or name GPUs as gpu:0,2 or gpu:GPU-8f6c")
    chosen = tuple(filter(None, names.split(",")))
    if colon and (not chosen or not all(map(_NAME.fullmatch, chosen))):
        raise UsageError(f"--device {text!r}: name GPUs by index or UUID, as in gpu:0,2 or gpu:GPU-8f6c")
    if len(set(chosen)) != len(chosen):
        raise UsageError(f"--device {text!r}: a GPU is named twice")
    return kind, chosen


def visible(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, ``None`` if it is not set.

    Like CUDA, ignore all names from the first invalid one on.
    """
    if VISIBLE not in environment:
        return None
    return tuple(itertools.takewhile(_NAME.fullmatch, map(str.strip, environment[VISIBLE].split(","))))


def choose(there: Sequence[Identity], names: Sequence[str], option: str = "--device gpu:") -> list[Identity]:
    """Find GPUs by index, or by UUID or its start. Errors say which ``option`` names them.

    Raises `UsageError` if a GPU is missing, ambiguous or named twice.
    """
    chosen: list[Identity] = []
    for name in names:
        matches = [gpu for gpu in there if name == str(gpu.index) or (not name.isdigit() and gpu.uuid.startswith(name))]
        if len(matches) != 1:
            listed = ", ".join(f"{gpu.place} ({gpu.uuid}, {gpu.name})" for gpu in there) or "none"
            text = f"{option}{name} matches {'no' if not matches else 'more than one'} GPU here; available: {listed}"
            divided = len(matches) > 1 and any(match.instance is not None for match in matches)
            raise UsageError(f"{text}; select a part by its UUID" if divided else text)
        if matches[0] in chosen:
            raise UsageError(f"{option}{','.join(names)} names GPU {matches[0].place} twice")
        chosen += matches
    return chosen


def environment(chosen: Sequence[Identity]) -> dict[str, str]:
    """Return the environment of processes that see only these GPUs."""
    return {_ORDER: "PCI_BUS_ID", VISIBLE: ",".join(gpu.uuid for gpu in chosen)}


def doubtful_order(there: Sequence[Identity], names: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a note if CUDA may count the GPUs in another order than the PCI bus, ``""`` if it cannot matter."""
    unlike = len({gpu.name for gpu in there}) > 1 and any(name.isdigit() for name in names)
    if not unlike or environment.get(_ORDER) == "PCI_BUS_ID":
        return ""
    return (
        f"{VISIBLE} names GPUs of different models by index. tfbench counts them in PCI bus order, as with "
        f"{_ORDER}=PCI_BUS_ID: set it, or name them by UUID"
    )


def has_driver(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA driver is installed, even if it is not accessible."""
    return (root / "proc/driver/nvidia").exists() or (root / "dev/nvidiactl").exists()
