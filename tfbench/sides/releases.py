"""What was released of a package, as far as the package index that uv uses knows it."""

from __future__ import annotations

import sys

from packaging.version import Version

from tfbench.errors import SideError
from tfbench.sides import interpreters, uv
from tfbench.sides.uv import ResolveError


def nearest(package: str, version: str) -> list[str]:
    """The releases on either side of a version that does not exist."""
    below, above = _one(f"{package}<{version}"), _one(f"{package}>{version}", "--resolution", "lowest-direct")
    return [one for one in (below, above) if one]


def between(package: str, first: str, last: str) -> list[str]:
    """Every release from one to another, both included, in that order; no release candidates, none withdrawn.

    Args:
        first: May be newer than ``last``.

    Raises:
        SideError: The index cannot be asked.
    """
    low, high = sorted((first, last), key=Version)
    found = {low, high}
    # What has wheels for neither, nobody here can race.
    for python in (interpreters.VERSIONS[0], interpreters.VERSIONS[-1]):
        under: str | None = high
        while under:
            under = _one(f"{package}>{low},<{under}", "--python-version", python)
            found |= {under} if under else set()
    return sorted(found, key=Version, reverse=Version(first) > Version(last))


def last_patches(versions: list[str]) -> list[str]:
    """Of each minor version the last release, in the order given; both ends stay."""
    kept = {(one.major, one.minor): text for text in sorted(versions, key=Version) for one in [Version(text)]}
    return [text for text in versions if text in (*kept.values(), versions[0], versions[-1])]


def _one(requirement: str, *options: str) -> str | None:
    """The version that uv takes, by default the highest."""
    name = requirement.partition("<")[0].partition(">")[0].partition("[")[0].lower()
    here = ("--python", sys.executable)  # without one by name, uv goes looking for it
    try:
        resolved = uv.resolved([requirement], "--no-deps", "--prerelease", "disallow", *here, *options)
    except ResolveError as refused:
        if refused.offline:
            raise SideError(f"there is no network, so nobody knows what was released of {name}") from refused
        return None
    found = (one.partition("==") for one in resolved)
    return next((version for package, _, version in found if package.lower() == name), None)
