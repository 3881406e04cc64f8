"""A side: where a case runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Side:
    """An interpreter, a source tree and settings.

    ``name`` is ``baseline`` or ``contender``; a run that compares variants has a contender alone.
    """

    name: str
    executable: str
    root: Path
    """pytest's root directory of the benchmarks on this side."""
    spec: str = ""
    """What the user wrote, as ``self`` or ``env:TF_ENABLE_ONEDNN_OPTS=1``."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables set on this side on top of the controller's own."""
    slowdown: float = 0.0
    """Fraction of extra iterations that this side really does, uncounted."""
    tree_redirect: tuple[str, str] | None = None
    """The top of the working tree, and of the source tree that takes its place on this side."""
    files: tuple[str, ...] = ()
    """Files of benchmarks that only this side has, relative to its root: cases may have moved."""
    unset: tuple[str, ...] = ()
    """Environment variables of the controller's that this side does not have."""
