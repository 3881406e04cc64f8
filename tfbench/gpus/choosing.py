"""Which GPUs a run measures on: ``gpu``, ``gpu:0,2`` or ``gpu:GPU-8f6…``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.gpus.model import Identity

KINDS = ("cpu", "gpu", "all")


def parse_device(text: str) -> tuple[str, tuple[str, ...]]:
    """The kind, and what GPUs are named by: indices or UUIDs.

    Raises:
        UsageError: It is neither a kind nor a list of GPUs.
    """
    kind, colon, names = text.partition(":")
    if kind not in KINDS or (colon and kind != "gpu"):
        raise UsageError(f"--device {text!r}: choose from {', '.join(KINDS)}, or name GPUs as gpu:0,2 or gpu:GPU-8f6c")
    chosen = tuple(filter(None, names.split(",")))
    if colon and (not chosen or not all(re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", name) for name in chosen)):
        raise UsageError(f"--device {text!r}: name GPUs by their indices or UUIDs, as gpu:0,2 or gpu:GPU-8f6c")
    if len(set(chosen)) != len(chosen):
        raise UsageError(f"--device {text!r} names a GPU twice")
    return kind, chosen


def choose(there: Sequence[Identity], names: Sequence[str]) -> list[Identity]:
    """The GPUs that are named, all of them without a name; a UUID may be cut short.

    Raises:
        UsageError: One is not there, or is meant twice.
    """
    if not names:
        return list(there)
    found: list[Identity] = []
    for name in names:
        matches = [one for one in there if name == str(one.index) or (not name.isdigit() and one.uuid.startswith(name))]
        if len(matches) != 1:
            listed = ", ".join(f"{one.index} ({one.uuid}, {one.name})" for one in there) or "none"
            raise UsageError(
                f"--device gpu:{name} is {'no' if not matches else 'more than one'} GPU here; there are {listed}"
            )
        if matches[0] in found:
            raise UsageError(f"--device names GPU {matches[0].index} twice")
        found += matches
    return found


def environment(chosen: Sequence[Identity]) -> dict[str, str]:
    """Environment of processes that see these GPUs and no others."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(one.uuid for one in chosen)}


GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
"""Memory grows as it is needed: otherwise the first process of a launch takes all of a GPU's, and the second has none."""


def has_driver(root: Path = Path("/")) -> bool:
    """Whether a driver of NVIDIA is there, readable or not."""
    return (root / "proc/driver/nvidia").exists() or (root / "dev/nvidiactl").exists()
