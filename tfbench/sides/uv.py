"""Ask uv for packages and releases, and turn its failures into one-line errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress

from packaging.version import Version

from tfbench.errors import SideError
from tfbench.sides import interpreters

_OFFLINE = re.compile(r"dns error|failed to fetch|could not connect|error sending request|offline", re.IGNORECASE)
_FULL = re.compile(r"no space left on device|os error 28", re.IGNORECASE)


class ResolveError(SideError):
    """uv failed. ``offline`` and ``full`` mark the two causes that lie outside the request."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.offline = bool(_OFFLINE.search(text))
        self.full = bool(_FULL.search(text))


def run(*arguments: str, given: str = "") -> str:
    """Run uv with ``given`` as its standard input; return its output.

    Raises:
        ResolveError: uv fails.
        SideError: uv is not installed.
    """
    # uv must see neither the environment that it runs in nor the packages of this process.
    env = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "CONDA_PREFIX")}
    command = [_program(), *arguments, "--color=never", "--no-progress"]
    done = subprocess.run(command, input=given, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        # uv draws its reasons as a tree over several lines.
        reasons = " ".join(re.sub(r"[×╰─▶│├]+", " ", done.stderr).split())
        raise ResolveError(reasons or "uv failed without a message")
    return done.stdout


def resolved(requirements: Iterable[str], *options: str) -> list[str]:
    """Resolve requirements to every package they need, as ``name==version``. Only wheels count.

    Raises:
        ResolveError: No set of releases fits.
    """
    return [line.partition(" ")[0] for line in locked(requirements, *options)]


def locked(requirements: Iterable[str], *options: str) -> list[str]:
    """Resolve like `resolved`, to lines such as ``name==version --hash=sha256:… --hash=sha256:…``.

    A line has the hashes of all files of the release, so that an environment that is installed from it has those files.

    Raises:
        ResolveError: No set of releases fits.
    """
    given = "".join(f"{requirement}\n" for requirement in requirements)
    fixed = ("--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")  # tfbench never builds from source
    text = run("pip", "compile", "-", "--generate-hashes", *fixed, *options, given=given)
    return [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines()]


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
        listed = resolved([requirement], "--no-deps", "--prerelease", "disallow", *here, *options)
    except ResolveError as refused:
        if refused.offline:
            raise SideError(f"{name}: its releases cannot be listed without a network") from refused
        return None
    found = (line.partition("==") for line in listed)
    return next((version for package, _, version in found if package.lower() == name), None)


def _program() -> str:
    """Return the path of uv: the one installed with tfbench, or the one on the path."""
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return str(find_uv_bin())
    if found := shutil.which("uv"):
        return found
    raise SideError("uv, which installs other versions, is not installed; pip install 'tfbench[versions]'")
