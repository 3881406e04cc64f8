"""Say what the sides were: their code, and their differences apart from the compared version."""

from __future__ import annotations

from collections.abc import Mapping

from tfbench.model import JSON

_ASKED = ("tensorflow", "tf-nightly")
"""Prefixes of the compared packages. Packages that belong to TensorFlow, such as tensorflow-io, change with it."""


def differences(sides: Mapping[str, JSON]) -> list[str]:
    """Describe each difference in one line: Python, packages, settings and the defaults of a version.

    Args:
        sides: Label -> description of the side. Unknown values are not a difference.
    """
    known = {label: facts for label, side in sides.items() if (facts := _facts(side))}
    lines = []
    for name in dict.fromkeys(name for facts in known.values() for name in facts):
        found = {label: facts.get(name, "none") for label, facts in known.items()}
        values = dict.fromkeys(found.values())
        if len(values) > 1:  # list each value once: "off on 2.15.1, on on 2.16.2 and 2.21.0"
            labels = {value: " and ".join(label for label in found if found[label] == value) for value in values}
            lines.append(f"{name}: {', '.join(f'{value} on {ones}' for value, ones in labels.items())}")
    return lines


def _facts(side: JSON) -> dict[str, str]:
    if "packages" not in side:
        return {}
    packages = {name: version for name, version in side["packages"].items() if not name.startswith(_ASKED)}
    return {"Python": side.get("python", ""), **side.get("defaults", {}), **packages, **side.get("settings", {})}


def code_of_side(side: JSON) -> str:
    """Name the code of a side, ``commit 1a2b3c4d5e6f, changed (tree 6f5e4d3c2b1a)``; ``absent`` if it is not known."""
    commit, tree = str(side.get("commit", "")), str(side.get("tree", ""))
    kind, _, rest = tree.partition(":")
    words = {"": "absent", "sources": f"sources {rest[:12]}", "session": f"run {rest}"}.get(kind, f"tree {kind[:12]}")
    return f"commit {commit[:12]}{', changed' if side.get('dirty') else ''} ({words})" if commit else words
