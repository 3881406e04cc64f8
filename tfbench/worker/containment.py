"""Contain a launch: it ends with its parent, what it starts ends with it, and what it writes is limited."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36  # of <linux/prctl.h>
_ATTEMPTS = 100
"""Looks for processes that a launch left behind; each may uncover the children of those that were killed."""


def die_with_parent(parent: int) -> None:
    """Have the Linux kernel kill this process when its parent ends. If that has happened already, exit.

    Args:
        parent: Process id of the parent, noted before this process was started.
    """
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() == parent:
        return
    try:
        os.kill(parent, 0)  # a wrapper of the interpreter may stand between the two
    except ProcessLookupError:
        os._exit(1)
    except PermissionError:
        pass


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, such as daemons, instead of Linux' first process."""
    _prctl(_CHILD_SUBREAPER, 1)


def lead_group() -> None:
    """Become the leader of a process group, with which `reap` ends what this process has started."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


def limit_files(largest: int) -> None:
    """Have the kernel end this process and its children if they write a larger file. They write no core files."""
    import resource  # Windows has none, and reads reports

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest if hard < 0 else min(largest, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and then C++ code writes on in vain


def reap(pid: int, patience: float) -> int:
    """End a child with its process group; return its exit code, negative for a signal as in `subprocess`.

    Args:
        patience: Seconds that it gets to end by itself before it is killed.
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
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may contain anything, even parentheses.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
        except (OSError, ValueError, IndexError):
            continue  # the process has ended
    return found


def end_orphans(spared: Collection[int]) -> None:
    """Kill the adopted children: processes that ended launches have left behind.

    Args:
        spared: Children that this process started itself.
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


def _prctl(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(option, value)
