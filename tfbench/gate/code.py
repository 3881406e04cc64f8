"""Compare the code of two reports, side by side."""

from __future__ import annotations

from tfbench.model import JSON, Report

Named = tuple[str, Report]
"""The name of a report in error messages, and the report."""


def unlike_code(first: Named, second: Named) -> str:
    """Return how the code of two reports differs, ``""`` if both raced the same."""
    for name, report in (first, second):
        if not report.sides or not all(side.get("tree") for side in report.sides.values()):
            return f"{name} does not tell which code it raced; measure again with this version of tfbench"
    for side in sorted({*first[1].sides, *second[1].sides}):
        one, other = (report.sides.get(side, {}) for _, report in (first, second))
        if (one.get("commit"), one.get("tree")) != (other.get("commit"), other.get("tree")):
            texts = f"{described(one)} in {first[0]} and {described(other)} in {second[0]}"
            return f"the {side} is {texts}; race the same code, such as git: with a commit instead of a branch"
    return ""


def described(side: JSON) -> str:
    """Name the code of a side: ``commit 1a2b3c4d5e6f, changed (tree 6f5e4d3c2b1a)``."""
    commit, tree = str(side.get("commit", "")), str(side.get("tree", ""))
    kind, _, rest = tree.partition(":")
    words = {"": "absent", "sources": f"sources {rest[:12]}", "session": f"run {rest}"}.get(kind, f"tree {kind[:12]}")
    return f"commit {commit[:12]}{', changed' if side.get('dirty') else ''} ({words})" if commit else words
