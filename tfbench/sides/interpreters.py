"""Find the Python interpreters of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tfbench.errors import SideError

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
"""Python versions that workers run on."""


def interpreters() -> list[str]:
    """Return the interpreters that workers run on: the current one first, then the newest first."""
    found = [getattr(sys, "_base_executable", sys.executable)]
    folders = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    for version in reversed(VERSIONS):
        found += [path] if (path := shutil.which(f"python{version}")) else []
        found += [str(path) for folder in folders for path in sorted(folder.glob(f"*{version}*/bin/python{version}"))]
    return [path for path in dict.fromkeys(map(os.path.realpath, found)) if minor(version_of(path)) in VERSIONS]


def version_of(interpreter: str) -> str:
    """Return an interpreter's version, such as ``3.11.7``; ``""`` for the names of pyenv that start no interpreter."""
    command = [interpreter, "-c", "import platform; print(platform.python_version())"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def distributions(interpreter: str) -> list[str]:
    """List the installed distributions of an interpreter as ``name==version``, sorted.

    Raises:
        SideError: The interpreter does not start.
    """
    code = (
        "from importlib.metadata import distributions as d; print(*{f'{x.name}=={x.version}' for x in d()}, sep='\\n')"
    )
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideError(f"{interpreter} does not list its packages: {done.stderr.strip()[-500:]}")
    return sorted(done.stdout.split())


def minor(version: str) -> str:
    """Return ``3.11`` for ``3.11.7``: extension modules are built for a minor version."""
    return ".".join(version.split(".")[:2])
