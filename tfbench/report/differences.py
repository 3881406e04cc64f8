"""How sides differ beside what was asked for: what a reader has to know before the numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tfbench.model import JSON

_ASKED = ("tensorflow", "tf-nightly")
"""Packages whose names begin so are the versions that are compared; their own parts (tensorflow-io …) go with them."""


def differences(sides: Mapping[str, JSON]) -> list[str]:
    """One line each: the Python, packages, settings, and what a version decides for its user.

    Args:
        sides: By label, what each is made of; what a side does not tell is no difference.
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
    return {"Python": side["python"], **side.get("defaults", {}), **packages, **side["settings"]}


def _grouped(found: Mapping[str, str]) -> list[str]:
    """``off on 2.15.1, on on 2.16.2 and 2.21.0``: each value once."""
    labels: dict[str, list[str]] = {}
    for label, value in found.items():
        labels.setdefault(value, []).append(label)
    return [f"{value} on {' and '.join(ones)}" for value, ones in labels.items()]
