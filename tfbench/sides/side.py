"""Describe a side: where a case runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.model import SlowCalls
from tfbench.sides.source_tree import Snapshot


@dataclass(frozen=True)
class Side:
    """An interpreter, a source tree and settings.

    ``name`` is ``baseline`` or ``contender``. A comparison of variants has only a contender.
    """

    name: str
    executable: str
    root: Path
    """pytest's root directory of the benchmarks on this side."""
    spec: str = ""
    """The user's specification, such as ``self`` or ``env:TF_ENABLE_ONEDNN_OPTS=1``."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of this side, in addition to the controller's own."""
    slowdown: float = 0.0
    """Fraction of extra iterations that this side really does, uncounted."""
    slow_calls: SlowCalls | None = None
    """Slow calls that this side really makes, uncounted: what `tfbench calibrate --tails` injects."""
    tree_redirect: tuple[str, str] | None = None
    """Top of the working tree, and top of the source tree that replaces it on this side."""
    files: tuple[str, ...] = ()
    """Benchmark files that only this side has, relative to its root, because cases may have moved."""
    code: Snapshot | None = None
    """The code of its source tree; ``None`` where no report tells it."""
    named: tuple[str, ...] = ()
    """Variables in ``env`` that the user's specification names, so that no level of an axis may replace them in silence."""
    unset: tuple[str, ...] = ()
    """Environment variables of the controller that this side does not have."""
