"""Which GPUs a run measures on: ``gpu``, ``gpu:0,2`` or ``gpu:GPU-8f6…``, or what CUDA_VISIBLE_DEVICES leaves of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.gpus.readings import Identity

KINDS = ("cpu", "gpu", "all")
VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_NAME = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


def parse_device(text: str) -> tuple[str, tuple[str, ...]]:
    """The kind, and what GPUs are named by: indices or UUIDs.

    Raises:
        UsageError: It is neither a kind nor a list of GPUs.
    """
    kind, colon, names = text.partition(":")
    if kind not in KINDS or (colon and kind != "gpu"):
        raise UsageError(f"--device {text!r}: choose from {', '.join(KINDS)}, or name GPUs as gpu:0,2 or gpu:GPU-8f6c")
    chosen = tuple(filter(None, names.split(",")))
    if colon and (not chosen or not all(map(_NAME.fullmatch, chosen))):
        raise UsageError(f"--device {text!r}: name GPUs by their indices or UUIDs, as gpu:0,2 or gpu:GPU-8f6c")
    if len(set(chosen)) != len(chosen):
        raise UsageError(f"--device {text!r} names a GPU twice")
    return kind, chosen


def visible(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """What CUDA_VISIBLE_DEVICES leaves, as CUDA reads it: up to the first that is no device; ``None`` if it is not set."""
    if VISIBLE not in environment:
        return None
    names = [name.strip() for name in environment[VISIBLE].split(",")]
    return tuple(itertools.takewhile(_NAME.fullmatch, names))


def choose(there: Sequence[Identity], names: Sequence[str], option: str = "--device gpu:") -> list[Identity]:
    """The GPUs that are named; a UUID may be cut short.

    Args:
        option: What named them, as an error says it.

    Raises:
        UsageError: One is not there, or is meant twice.
    """
    found: list[Identity] = []
    for name in names:
        matches = [one for one in there if name == str(one.index) or (not name.isdigit() and one.uuid.startswith(name))]
        if len(matches) != 1:
            listed = ", ".join(f"{one.place} ({one.uuid}, {one.name})" for one in there) or "none"
            text = f"{option}{name} is {'no' if not matches else 'more than one'} GPU here; there are {listed}"
            divided = len(matches) > 1 and any(one.instance is not None for one in matches)
            raise UsageError(f"{text}; name a part of it by its UUID" if divided else text)
        if matches[0] in found:
            raise UsageError(f"{option}{','.join(names)} names GPU {matches[0].place} twice")
        found += matches
    return found


def environment(chosen: Sequence[Identity]) -> dict[str, str]:
    """Environment of processes that see these GPUs and no others."""
    return {_ORDER: "PCI_BUS_ID", VISIBLE: ",".join(one.uuid for one in chosen)}


def doubtful_order(there: Sequence[Identity], names: Sequence[str], environment: Mapping[str, str]) -> str:
    """What is to be said of indices that CUDA may count in another order than the bus; ``""`` where it cannot matter."""
    unlike = len({one.name for one in there}) > 1 and any(name.isdigit() for name in names)
    if not unlike or environment.get(_ORDER) == "PCI_BUS_ID":
        return ""
    return (
        f"{VISIBLE} names GPUs by number, and they are not alike: the numbers are taken in the order of the bus, as with "
        f"{_ORDER}=PCI_BUS_ID; set it, or name them by UUID"
    )


GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
"""Memory grows as it is needed: otherwise the first process of a launch takes all of a GPU's, and the second has none."""


def has_driver(root: Path = Path("/")) -> bool:
    """Whether a driver of NVIDIA is there, readable or not."""
    return (root / "proc/driver/nvidia").exists() or (root / "dev/nvidiactl").exists()
