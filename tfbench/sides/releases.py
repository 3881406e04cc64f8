"""List the releases of a package that uv's package index has."""

from __future__ import annotations

import sys

from packaging.version import Version

from tfbench.errors import SideError
from tfbench.sides import interpreters, uv
from tfbench.sides.uv import ResolveError


def nearest(package: str, version: str) -> list[str]:
    """Return the releases just below and above a version that does not exist."""
    below, above = _release(f"{package}<{version}"), _release(f"{package}>{version}", "--resolution", "lowest-direct")
    return [release for release in (below, above) if release]


def between(package: str, first: str, last: str) -> list[str]:
    """Return every release from ``first`` to ``last``, both included, without prereleases and withdrawn ones.

    Args:
        first: May be newer than ``last``. The releases are in the order from ``first`` to ``last``.

    Raises:
        SideError: The package index cannot be reached.
    """
    low, high = sorted((first, last), key=Version)
    found = {low, high}
    # A release with wheels for neither the oldest nor the newest Python cannot be raced here.
    for python in (interpreters.VERSIONS[0], interpreters.VERSIONS[-1]):
        under: str | None = high
        while under:
            under = _release(f"{package}>{low},<{under}", "--python-version", python)
            found |= {under} if under else set()
    return sorted(found, key=Version, reverse=Version(first) > Version(last))


def last_patches(versions: list[str]) -> list[str]:
    """Keep the last release of each minor version, and both ends, in the given order."""
    kept = {(one.major, one.minor): text for text in sorted(versions, key=Version) for one in [Version(text)]}
    return [text for text in versions if text in (*kept.values(), versions[0], versions[-1])]


def _release(requirement: str, *options: str) -> str | None:
    """Return the version that uv selects, by default the highest, or ``None`` if no release fits."""
    name = requirement.partition("<")[0].partition(">")[0].partition("[")[0].lower()
    here = ("--python", sys.executable)  # without an interpreter, uv searches for one
    try:
        resolved = uv.resolved([requirement], "--no-deps", "--prerelease", "disallow", *here, *options)
    except ResolveError as refused:
        if refused.offline:
            raise SideError(f"{name}: its releases cannot be listed without a network") from refused
        return None
    found = (line.partition("==") for line in resolved)
    return next((version for package, _, version in found if package.lower() == name), None)
