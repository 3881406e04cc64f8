"""Keep a worker apart from its surroundings: variables, imports, bytecode, memory, signals.

An editable installation or an entry of PYTHONPATH would otherwise import the working tree on both sides, and every
comparison of commits would find them equal. docs/decisions/04-zygotes.md has the reason for bytecode, 07-memory.md for
memory. Compiling the 31 benchmark files of tfbench takes 0.05 s.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, cast

from _pytest.assertion import rewrite

from tfbench.facts import MALLOC_TUNABLES, MALLOC_VARIABLES, parents
from tfbench.imports import is_installed
from tfbench.worker import time

# Compile the files of a side in every zygote, whether bytecode of them is cached or not


_path_stats = SourceFileLoader.path_stats
_get_cache_dir = rewrite.get_cache_dir


def compile_own_files() -> None:
    """Let this process neither read nor write cached bytecode, except of what is installed."""
    SourceFileLoader.path_stats = _no_stats  # type: ignore[method-assign, assignment]
    rewrite.get_cache_dir = _no_cache_dir


def _no_stats(loader: SourceFileLoader, path: str) -> Mapping[str, Any]:
    """Python uses no bytecode of a file whose time of change it cannot learn."""
    if not is_installed(path):
        raise OSError(f"{path}: its bytecode is not used")
    return _path_stats(loader, path)


def _no_cache_dir(file_path: Path) -> Path:
    """pytest uses no bytecode in a folder that can be neither read nor made."""
    return _get_cache_dir(file_path) if is_installed(str(file_path)) else Path(os.devnull, "none")


# The allocator of the C library: what it holds, and what becomes of freed memory. Only glibc's is known


_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
"""Parameters of mallopt(3)."""
_VARIABLES = dict(zip((_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD), MALLOC_VARIABLES, strict=True))
"""Parameter -> environment variable with which users set it themselves."""
_SMALL, _LARGEST, _NEVER = 1 << 17, 1 << 25, 1 << 30
"""Bytes: the thresholds that glibc begins with, the largest one for mappings that it allows, and one that is not reached."""


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                     "keepcost")
    ]  # fmt: skip


def mallinfo() -> Callable[[], _Mallinfo] | None:
    """Return glibc's function that counts the bytes of its allocator, ``None`` with another or an older library than 2.33."""
    function: Any = _function("mallinfo2")
    if function is None:
        return None
    function.restype = _Mallinfo
    return cast("Callable[[], _Mallinfo]", function)


def limit_arenas(processors: int) -> None:
    """Let this process divide its memory into no more arenas than it has processors; 0 leaves glibc its number.

    Arenas keep threads on different processors from waiting for each other. By default glibc has eight for each processor of
    the machine. Which thread of TensorFlow gets which one is chance, and decides how often its memory goes back to the
    system. Call it before the first op.
    """
    _set(_M_ARENA_MAX, processors)


def map_large_blocks() -> None:
    """Let each block of 128 kB and more have pages of its own, which go back to the system when it is freed.

    Peaks of memory are then those of the blocks, without the gaps between them.
    """
    _set(_M_MMAP_THRESHOLD, _SMALL)


def keep_freed_memory() -> None:
    """Let blocks of up to 32 MiB reuse the memory of freed ones, none of which goes back to the system.

    By default glibc adapts to the sizes that are freed and to the order of the last blocks, so that the same step has its
    pages cleared by the system in every iteration in one process, and in none in another.
    """
    _set(_M_MMAP_THRESHOLD, _LARGEST)
    _set(_M_TRIM_THRESHOLD, _NEVER)


def _set(parameter: int, value: int) -> None:
    """Set a parameter of glibc's allocator, unless users chose its value."""
    chosen = _VARIABLES[parameter] in os.environ or MALLOC_TUNABLES in os.environ
    if not chosen and (mallopt := _function("mallopt")) is not None:
        mallopt(parameter, value)


def _function(name: str) -> Any:
    """Return a function of the C library, ``None`` if it has none of this name."""
    return getattr(ctypes.CDLL(None), name, None)


# Contain a launch: it ends with its parent, what it starts ends with it, and what it writes is limited


_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36  # of <linux/prctl.h>
_ATTEMPTS = 100
"""Looks for processes that a launch left behind; each may uncover the children of those that were killed."""


def die_with_parent(parent: int) -> None:
    """Have the Linux kernel kill this process when its parent ends. If that has happened already, exit.

    ``parent`` is its process id, noted before this process was started.
    """
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        try:
            os.kill(parent, 0)  # a wrapper of the interpreter may stand between the two
        except ProcessLookupError:
            os._exit(1)
        except PermissionError:
            pass


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, such as daemons, instead of Linux' first process."""
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)


def limit_files(largest: int) -> None:
    """Have the kernel end this process and its children if they write a larger file. They write no core files."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest if hard < 0 else min(largest, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and then C++ code writes on in vain


def file_limit() -> int:
    """Return how many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def reap(pid: int, patience: float) -> int:
    """End a child with its process group; return its exit code, negative for a signal as in `subprocess`.

    It gets ``patience`` seconds to end by itself before it is killed.
    """
    deadline = time.monotonic() + patience
    # WNOWAIT leaves the child a zombie, so that no other process can get its id before its group is killed.
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < deadline:
        time.sleep(0.001)
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            end(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def children() -> set[int]:
    """Return the ids of this process' children, zombies included."""
    return {pid for pid, parent in parents().items() if parent == os.getpid()}


def end_orphans(spared: Collection[int]) -> None:
    """Kill the adopted children: processes that ended launches have left behind.

    Children that this process started itself are ``spared``.
    """
    for _ in range(_ATTEMPTS):
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return  # the usual case, without a search
        if not (orphans := children().difference(spared)):
            return
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
