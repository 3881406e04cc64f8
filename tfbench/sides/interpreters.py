"""The Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
"""Versions that the measuring processes run on."""


def interpreters() -> list[str]:
    """Those that the measuring processes run on: this one first, then the newest first."""
    found = [os.path.realpath(getattr(sys, "_base_executable", sys.executable))]
    folders = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    for version in reversed(VERSIONS):
        named = shutil.which(f"python{version}")
        installed = [path for folder in folders for path in sorted(folder.glob(f"*{version}*/bin/python{version}"))]
        found += [os.path.realpath(one) for one in ([named] if named else []) + [str(path) for path in installed]]
    return [one for one in dict.fromkeys(found) if _runs(one)]


def version_of(interpreter: str) -> str:
    """As ``3.11.7``.

    Raises:
        OSError, subprocess.CalledProcessError: It is no interpreter.
    """
    printed = subprocess.run(
        [interpreter, "-c", "import platform; print(platform.python_version())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return printed.stdout.strip()


def minor(version: str) -> str:
    """``3.11`` of ``3.11.7``: what extension modules are built for."""
    return ".".join(version.split(".")[:2])


def _runs(interpreter: str) -> bool:
    """pyenv leaves names on the path that are no interpreters."""
    try:
        return minor(version_of(interpreter)) in VERSIONS
    except (OSError, subprocess.CalledProcessError):
        return False
