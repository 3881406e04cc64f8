"""What every worker has in common: the benchmark files, its environment variables, and the output it leaves behind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

from tfbench.fs import python_path
from tfbench.gpus.selection import GROWTH, has_driver
from tfbench.sides.side import Side
from tfbench.worker.tracers import ALLOWED

TAIL_LINES = 20
"""Lines of a process' last output that an error shows."""
_TAIL_BYTES = 1 << 16
"""At most so much of the output is read for them."""
_MEASURES_COVERAGE = ("COV_CORE_", "COVERAGE_PROCESS_")
"""Variables with which a process of coverage or pytest-cov has its children measured, if their Python has coverage."""


@dataclass(frozen=True)
class Suite:
    """The benchmark files, and how pytest imports them."""

    files: tuple[str, ...]
    """Relative to the side's root."""
    inifile: str
    """Relative to the side's root, ``""`` if there is none."""
    import_mode: str
    made: str
    """Folder of shared set-ups."""
    cpus: tuple[int, ...]
    """Every processor of the run. A zygote may start on any of them, although its launches are pinned to a few."""
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Environment variables that a side's and a variant's are added to."""
    tree: str = ""
    """Top of the working tree, ``""`` for the root of a side."""
    imports_tensorflow: bool = True
    """Whether a benchmark or a conftest.py does, so that ancestors import it once for the zygotes of both sides."""


def worker_environment(
    variables: Mapping[str, str], side: Side, extra: Mapping[str, str], shared: bool = False
) -> dict[str, str]:
    """Return the environment of a side's processes: the user's, the side's and the variant's, one thread per library.

    Args:
        shared: Leave out what differs between source trees: the relative entries of ``PYTHONPATH``.
    """
    dropped = ("PYTEST_", *(() if variables.get(ALLOWED) else _MEASURES_COVERAGE))
    env = {key: value for key, value in variables.items() if not key.startswith(dropped)}
    env = {key: value for key, value in env.items() if key not in side.unset}
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if has_driver():
        env.setdefault(GROWTH, "true")
    env.update(side.env)
    env.update(extra)
    # With two threads of BLAS or OpenMP, a pinned process spins against itself and seems to hang.
    env.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    entries = env.get("PYTHONPATH", "").split(os.pathsep)
    given = [entry for entry in entries if os.path.isabs(entry) or not shared]
    env["PYTHONPATH"] = python_path(side.root, os.pathsep.join(given))
    return env


def tail(log: IO[bytes]) -> str:
    """Return the last lines that a process wrote."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = log.read(_TAIL_BYTES).decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])
