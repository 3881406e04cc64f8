"""Check and identify the anchor of a history: the baseline side that every run of it races against."""

from __future__ import annotations

from pathlib import Path

from tfbench.errors import UsageError
from tfbench.model import EnvironmentInfo
from tfbench.session.request import RunRequest
from tfbench.sides.interpreters import minor
from tfbench.sides.side import Side
from tfbench.sides.source_tree import is_pinned
from tfbench.storage.baselines import Baseline, describe
from tfbench.storage.history import Anchor
from tfbench.storage.history_index import digest


def check_anchor(request: RunRequest) -> None:
    """Refuse a run of a history whose baseline side is another one tomorrow.

    Raises:
        UsageError: A part of the specification moves, or both sides are the same.
    """
    if request.history is None or not request.against:
        return
    parts = [part.strip() for part in request.against.split("+")]
    if parts == ["self"]:
        raise UsageError("--history: a race against self has no anchor; name a tag, a version or a baseline")
    for part in parts:
        kind, _, revision = part.partition(":")
        if part in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
            raise UsageError(
                f"--history: {part} is another version tomorrow; pin the anchor, such as tensorflow==2.21.0"
            )
        if kind == "git" and not is_pinned(request.root, revision):
            raise UsageError(f"--history: {part} is no tag or commit, and may move; pin the anchor, such as git:v1.0")


def anchor_of(side: Side, environment: EnvironmentInfo, saved: Baseline | None) -> Anchor:
    """Identify a baseline side by its source tree, Python, packages and settings, whatever machine it runs on.

    Args:
        saved: The saved baseline that the side was recreated from, if any.
    """
    if saved is not None:
        environment = saved.environment
    tree = saved.tree if saved is not None else Path(side.tree_redirect[1]).name if side.tree_redirect else ""
    content = [tree, minor(environment.python), dict(environment.packages), dict(environment.settings)]
    return Anchor(describe(saved) if saved is not None else side.spec, digest(content))
