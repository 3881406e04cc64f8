"""uv, asked for one thing at a time: its answer, or one line that says why there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable

from tfbench.errors import SideError

_OFFLINE = re.compile(r"dns error|failed to fetch|could not connect|error sending request|offline", re.IGNORECASE)
_FULL = re.compile(r"no space left on device|os error 28", re.IGNORECASE)


class ResolveError(SideError):
    """uv did not do it; ``offline`` and ``full`` tell the two causes that are no fault of the request."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.offline = bool(_OFFLINE.search(text))
        self.full = bool(_FULL.search(text))


def run(*arguments: str, given: str = "") -> str:
    """What uv prints.

    Args:
        given: Its standard input.

    Raises:
        ResolveError: It fails.
        SideError: There is no uv.
    """
    # It must see neither the environment that it runs in nor the packages of this process.
    env = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "CONDA_PREFIX")}
    command = [_program(), *arguments, "--color=never", "--no-progress"]
    done = subprocess.run(command, input=given, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ResolveError(_sentence(done.stderr))
    return done.stdout


def resolved(requirements: Iterable[str], *options: str) -> list[str]:
    """Every package that comes with these requirements, as ``name==version``; what has no wheel counts for nothing.

    Raises:
        ResolveError: There is no such set.
    """
    given = "".join(f"{one}\n" for one in requirements)
    fixed = ("--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")  # nothing is built from source here
    return run("pip", "compile", "-", *fixed, *options, given=given).splitlines()


def _program() -> str:
    """The one that was installed beside tfbench, or the one on the path."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        pass
    if (found := shutil.which("uv")) is None:
        raise SideError("other versions are installed by uv, which is not there; pip install 'tfbench[versions]'")
    return found


def _sentence(text: str) -> str:
    """uv draws its reasons as a tree over several lines."""
    return " ".join(re.sub(r"[×╰─▶│├]+", " ", text).split()) or "uv failed and said nothing"
