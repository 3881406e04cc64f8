"""Find the differences between sides apart from the compared version, which a reader must know before the numbers."""

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
    reported = {label: _facts(side) for label, side in sides.items()}
    known = {label: facts for label, facts in reported.items() if facts}
    lines = []
    for name in dict.fromkeys(name for facts in known.values() for name in facts):
        found = {label: facts.get(name, "none") for label, facts in known.items()}
        if len(set(found.values())) > 1:
            lines.append(f"{name}: {', '.join(_grouped(found))}")
    return lines


def _facts(side: JSON) -> dict[str, str]:
    if "packages" not in side:
        return {}
    packages = {name: version for name, version in side["packages"].items() if not name.startswith(_ASKED)}
    return {"Python": side.get("python", ""), **side.get("defaults", {}), **packages, **side.get("settings", {})}


def _grouped(found: Mapping[str, str]) -> list[str]:
    """List each value once: ``off on 2.15.1, on on 2.16.2 and 2.21.0``."""
    labels: dict[str, list[str]] = {}
    for label, value in found.items():
        labels.setdefault(value, []).append(label)
    return [f"{value} on {' and '.join(ones)}" for value, ones in labels.items()]
