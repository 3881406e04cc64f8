"""Run uv, and turn its failures into one-line errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress

from tfbench.errors import SideError

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
    given = "".join(f"{requirement}\n" for requirement in requirements)
    fixed = ("--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")  # tfbench never builds from source
    return run("pip", "compile", "-", *fixed, *options, given=given).splitlines()


def _program() -> str:
    """Return the path of uv: the one installed with tfbench, or the one on the path."""
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return str(find_uv_bin())
    if found := shutil.which("uv"):
        return found
    raise SideError("uv, which installs other versions, is not installed; pip install 'tfbench[versions]'")
