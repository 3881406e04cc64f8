"""Describe both sides of a plan such that each machine can check them, with revisions replaced by commits."""

from __future__ import annotations

import platform
from pathlib import Path

from tfbench.errors import UsageError
from tfbench.model import JSON
from tfbench.sides.source_tree import NoCheckout, code_digest, commit_of, tree_of
from tfbench.sides.spec import of_version
from tfbench.worker.environment import packages


def pinned(spec: str, root: Path) -> str:
    """Return a specification that means the same code on every machine: ``git:main`` becomes ``git:`` and a hash.

    Raises:
        UsageError: It is empty, or a part names an interpreter, which other machines do not have.
        SideError: A revision does not exist.
    """
    parts = [part.strip() for part in of_version(spec).split("+")]
    if not spec.strip():
        raise UsageError("a fleet races two sides: give --against SPEC, such as git:HEAD~1 or self")
    if local := next((part for part in parts if part.startswith("python:")), ""):
        raise UsageError(f"--against {local}: other machines have no such path; name packages or a revision")
    return "+".join(f"git:{commit_of(root, part[4:])}" if part.startswith("git:") else part for part in parts)


def sides_of(spec: str, root: Path) -> dict[str, JSON]:
    """Return the recipes of both sides; ``spec`` is pinned.

    Raises:
        SideError: git cannot read the checkout.
    """
    try:
        tree = code_digest(root)
    except NoCheckout:
        tree = ""  # the code of machines cannot be compared without git; docs/fleet.md says so
    revision = next((part[4:] for part in spec.split("+") if part.startswith("git:")), "")
    named = dict(part.split("==", 1) for part in spec.split("+") if "==" in part and ":" not in part)
    baseline = {"spec": spec, "tree": tree_of(root, revision) if revision else tree, "python": "", "packages": named}
    contender = {"spec": "working tree", "tree": tree, "python": platform.python_version(), "packages": packages()}
    return {"baseline": baseline, "contender": contender}
