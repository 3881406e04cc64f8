"""The allocator of the C library: what it holds, and what becomes of freed memory. Only glibc's is known."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, cast

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
"""Parameters of mallopt(3)."""
VARIABLES = {
    _M_ARENA_MAX: "MALLOC_ARENA_MAX", _M_MMAP_THRESHOLD: "MALLOC_MMAP_THRESHOLD_",
    _M_TRIM_THRESHOLD: "MALLOC_TRIM_THRESHOLD_",
}  # fmt: skip
"""Parameter -> environment variable with which users set it themselves."""
TUNABLES = "GLIBC_TUNABLES"
"""The variable with which they may set all of them."""
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
    """Let this process divide its memory into no more arenas than it has processors.

    Arenas keep threads on different processors from waiting for each other. By default glibc has eight for each processor of
    the machine. Which thread of TensorFlow gets which one is chance, and decides how often its memory goes back to the
    system. Call it before the first op.

    Args:
        processors: 0 leaves glibc its number.
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
    chosen = VARIABLES[parameter] in os.environ or TUNABLES in os.environ
    if not chosen and (mallopt := _function("mallopt")) is not None:
        mallopt(parameter, value)


def _function(name: str) -> Any:
    """Return a function of the C library, ``None`` if it has none of this name."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except OSError:
        return None
