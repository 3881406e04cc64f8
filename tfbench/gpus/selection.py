"""Select the GPUs of a run: ``gpu``, ``gpu:0,2``, ``gpu:GPU-8f6…``, or every GPU in CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.gpus.readings import Identity

KINDS = ("cpu", "gpu", "all")
VISIBLE = "CUDA_VISIBLE_DEVICES"
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
"""Lets memory grow on demand. Otherwise the first process of a launch takes all of it, and the second gets none."""
_ORDER = "CUDA_DEVICE_ORDER"
_NAME = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


def parse_device(text: str) -> tuple[str, tuple[str, ...]]:
    """Split the value of ``--device`` into the kind, and the indices or UUIDs of GPUs.

    Raises:
        UsageError: The value is neither a kind nor a list of GPUs.
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

    Raises:
        UsageError: A GPU is missing, ambiguous or named twice.
    """
    found: list[Identity] = []
    for name in names:
        matches = [one for one in there if name == str(one.index) or (not name.isdigit() and one.uuid.startswith(name))]
        if len(matches) != 1:
            listed = ", ".join(f"{one.place} ({one.uuid}, {one.name})" for one in there) or "none"
            text = f"{option}{name} matches {'no' if not matches else 'more than one'} GPU here; available: {listed}"
            divided = len(matches) > 1 and any(one.instance is not None for one in matches)
            raise UsageError(f"{text}; select a part by its UUID" if divided else text)
        if matches[0] in found:
            raise UsageError(f"{option}{','.join(names)} names GPU {matches[0].place} twice")
        found += matches
    return found


def environment(chosen: Sequence[Identity]) -> dict[str, str]:
    """Return the environment of processes that see only these GPUs."""
    return {_ORDER: "PCI_BUS_ID", VISIBLE: ",".join(one.uuid for one in chosen)}


def doubtful_order(there: Sequence[Identity], names: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a note if CUDA may count the GPUs in another order than the PCI bus, ``""`` if it cannot matter."""
    unlike = len({one.name for one in there}) > 1 and any(name.isdigit() for name in names)
    if not unlike or environment.get(_ORDER) == "PCI_BUS_ID":
        return ""
    return (
        f"{VISIBLE} names GPUs of different models by index. tfbench counts them in PCI bus order, as with "
        f"{_ORDER}=PCI_BUS_ID: set it, or name them by UUID"
    )


def has_driver(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA driver is installed, even if it is not accessible."""
    return (root / "proc/driver/nvidia").exists() or (root / "dev/nvidiactl").exists()
