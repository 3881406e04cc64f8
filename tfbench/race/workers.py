"""What the processes of a race need besides their program: variables, threads, a folder for their files, and a way to end them."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from tfbench.errors import BenchmarkError, SideError
from tfbench.facts import interpreter_options
from tfbench.fs import abandoned_scratch_dirs, python_path, remove_half_dirs, scratch_dir, without_repository
from tfbench.gpus.selection import GROWTH, has_driver
from tfbench.model import JSON
from tfbench.protocol import TRACED_WORKERS
from tfbench.sides.spec import Side
from tfbench.sides.yardstick import Yardstick
from tfbench.storage.baselines import HISTORY_VARIABLE
from tfbench.untrusted import plural

# The temporary folder of a run's workers, and the processes that were started below it


_ATTEMPTS = 20
"""Searches for processes, since one that is about to be killed may start another."""


def end_processes(folder: Path) -> None:
    """Kill the processes that have a path below this folder in their environment, but this process."""
    token = os.fsencode(folder)
    for _ in range(_ATTEMPTS):
        killed = False
        for environment in Path("/proc").glob("[0-9]*/environ"):
            pid = int(environment.parent.name)
            try:
                if pid != os.getpid() and token in environment.read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    killed = True
            except OSError:
                continue  # it has ended, or belongs to someone else
        if not killed:
            return
        time.sleep(0.01)


@cache
def _remove_abandoned() -> None:
    """Remove what killed runs have left, once per process."""
    for folder in abandoned_scratch_dirs():
        end_processes(folder)
        shutil.rmtree(folder, ignore_errors=True)


def made_scratch() -> Path:
    """Create the temporary folder of a launcher's workers. Raises `SideError` if it cannot be created."""
    try:
        _remove_abandoned()
        return Path(tempfile.mkdtemp(prefix="workers-", dir=scratch_dir()))
    except OSError as error:
        raise SideError(
            f"no temporary folder can be created in {tempfile.gettempdir()}: {error.strerror}; make room there, or set TMPDIR"
        ) from None


def remove_scratch(folder: Path, made: str) -> None:
    """Remove the folder, the processes that were started below it, and what they left half-made in that of shared set-ups."""
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)
    remove_half_dirs(Path(made))


# What every worker has in common: the benchmark files, its environment variables, and the output it leaves behind


TAIL_LINES = 20
"""Lines of a process' last output that an error shows."""
_TAIL_BYTES = 1 << 16
"""At most so much of the output is read for them."""
_MEASURES_COVERAGE = ("COV_CORE_", "COVERAGE_PROCESS_")
"""Variables with which a process of coverage or pytest-cov has its children measured, if their Python has coverage."""
_FOLLOWED = "OMP_NUM_THREADS"
"""The number of threads of every library whose own variable is not set."""
THREADS = (
    _FOLLOWED, "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)  # fmt: skip
"""Variables with a number of threads. The processes have those of the side and the variant, and not the user's."""
TEMPORARY = "TMPDIR"
"""The variable by which processes that a killed run has left behind are found."""
_FIXED = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Suite:
    """The benchmark files, and how pytest imports them."""

    files: tuple[str, ...]
    """Relative to the side's root."""
    inifile: str
    """Relative to the side's root, above which it may lie; ``""`` if there is none."""
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
    options: JSON = field(default_factory=dict)
    """Values of options that the project's conftest.py files define, by their names in Python."""
    ignored: tuple[str, ...] = ()
    """Modules and folders of the working tree that git ignores, if a side has another source tree."""
    python: tuple[str, ...] = field(default_factory=interpreter_options)
    """Options of the interpreter of every process, such as ``-O``: those of the program that the user has started."""
    yardstick: Yardstick = field(default_factory=Yardstick)
    """What judges another source tree as well."""


def worker_environment(
    variables: Mapping[str, str], side: Side, extra: Mapping[str, str], shared: bool = False
) -> dict[str, str]:
    """Return the environment of a side's processes: the user's, then the side's, then the variant's variables.

    If ``shared``, leave out what differs between source trees: the relative entries of ``PYTHONPATH``.
    Raises `SideError` if a variable of the side or the variant would have no effect.
    """
    dropped = ("PYTEST_", HISTORY_VARIABLE, *(() if variables.get(TRACED_WORKERS) else _MEASURES_COVERAGE))
    users = without_repository(variables).items()
    env = {"TF_CPP_MIN_LOG_LEVEL": "2"} | ({GROWTH: "true"} if has_driver() else {})
    env |= {key: value for key, value in users if not key.startswith(dropped) and key not in (*side.unset, *THREADS)}
    # With two threads of BLAS or OpenMP, a pinned process spins against itself and seems to hang.
    env |= {_FOLLOWED: "1", **side.env, **extra}
    for name in side.named:
        if env[name] != side.env[name]:
            raise SideError(
                f"{side.name}: {name}={side.env[name]} has no effect on variants that set {name}={env[name]} themselves; "
                "leave them out with -k, or the variable"
            )
    for name in (TEMPORARY, *_FIXED):
        if (wanted := {**side.env, **extra}.get(name, _FIXED.get(name))) != _FIXED.get(name):
            raise SideError(f"{side.name}: {name}={wanted} has no effect, because tfbench sets it itself; leave it out")
    env |= _FIXED
    # Under -E, the user's own process has not read the variable either.
    entries = [] if sys.flags.ignore_environment else env.get("PYTHONPATH", "").split(os.pathsep)
    given = [entry for entry in entries if os.path.isabs(entry) or not shared]
    env["PYTHONPATH"] = python_path(side.root, os.pathsep.join(given))
    return env


def check_threads(side: Side, extra: Mapping[str, str], cpus: Sequence[int]) -> None:
    """Check that the side and the variant ask for no more threads than their processes have processors.

    More threads would wait for each other, actively in most libraries.
    Raises `BenchmarkError` if they ask for more, or a value is no number.
    """
    for name, text in {**side.env, **extra}.items():
        if name not in THREADS:
            continue
        levels = text.split(",") if name == _FOLLOWED else [text]  # of nested parallel regions
        if not all(re.fullmatch(r"[1-9]\d{0,8}", level) for level in levels):
            raise BenchmarkError(f"{side.name}: {name}={text} is no number of threads; write a whole number from 1")
        if (threads := math.prod(map(int, levels))) > len(cpus):
            asked = f"{side.name}: {name}={text} asks for {threads:,} threads on {plural(len(cpus), 'processor')}"
            raise BenchmarkError(f"{asked}, where they would wait for each other; add --cpus with as many processors")


def tail(log: IO[bytes]) -> str:
    """Return the last lines that a process wrote."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
    lines = log.read(_TAIL_BYTES).decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])


# Run a process that ends with this one


_ENDING = 60.0
"""Seconds that an interrupted run gets to write its report and journal, before it is killed."""


@contextmanager
def terminable() -> Iterator[None]:
    """Have SIGTERM, with which CI systems and engines end a job, act like Ctrl-C until the block ends."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_terminable(words: Sequence[str], seconds: float | None = None, **options: Any) -> int:
    """Run a command that is `terminable`, and return its exit code.

    Raises `KeyboardInterrupt` if this process was interrupted, and `subprocess.TimeoutExpired` after ``seconds``. The command
    has been told, and has ended.
    """
    with terminable(), subprocess.Popen(words, **options) as child:
        try:
            return child.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.terminate()  # SIGINT does not reach a command that a script has started in the background
            try:
                child.wait(_ENDING)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):  # too slow, or interrupted once more
                child.kill()
                child.wait()
            raise
