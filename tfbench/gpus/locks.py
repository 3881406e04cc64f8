"""Lock each GPU for one run at a time, across all processes of the machine: two runs would measure each other."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from tfbench.errors import GpuError
from tfbench.fs import hold
from tfbench.gpus.readings import Identity

_ENDING = ".lock"
_SHARED = 0o1777
"""Mode of a folder in which all users may add files, but not remove those of others."""
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Follows no link, and waits for no other end of a pipe."""
_NO_PLACE = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
"""Errors of opening a link, something else than a folder, or a socket."""


def lock(gpus: Sequence[Identity], folder: Path) -> ExitStack:
    """Lock GPUs by files in a folder of all users, until the returned stack is closed or this process dies.

    Raises:
        GpuError: Another run measures on a GPU, or the folder is not usable.
    """
    with ExitStack() as held:
        try:
            with shared_folder(folder) as descriptor:
                for gpu in gpus:
                    _take(gpu, f"{gpu.uuid.replace('/', '_')}{_ENDING}", descriptor, held)
        except OSError as error:
            raise GpuError(f"{folder} cannot hold the locks of GPUs: {error.strerror}") from None
        return held.pop_all()


@contextmanager
def shared_folder(folder: Path) -> Iterator[int]:
    """Open a folder in which all users may add files, but not remove those of others, and create it if necessary.

    Yields its descriptor, so that no link that another user plants later is followed. The mode of a folder that exists
    stays, unless it is ours and has nothing but locks: a run may have been killed before it shared the folder.

    Raises:
        OSError: It cannot be created, or is a link.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    except OSError as error:
        if error.errno in _NO_PLACE:
            raise OSError(error.errno, "it is a link or no folder; remove it") from None
        raise
    try:
        found = os.fstat(descriptor)
        if (
            found.st_uid == os.getuid()
            and stat.S_IMODE(found.st_mode) != _SHARED
            and all(name.endswith(_ENDING) for name in os.listdir(descriptor))
        ):
            os.fchmod(descriptor, _SHARED)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(gpu: Identity, name: str, folder: int, held: ExitStack) -> None:
    file = held.enter_context(opened(name, folder))
    try:
        hold(file, wait=False)
    except BlockingIOError:
        who = file.read().strip()
        text = f"another run measures on GPU {gpu.index} ({gpu.name}){f', process {who}' if who else ''}"
        raise GpuError(f"{text}: wait for it, or select another GPU with --device gpu:INDEX") from None
    if file.writable():
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()


def opened(name: str, folder: int) -> IO[str]:
    """Open the file of a lock, which may belong to another user, and create it if necessary.

    Linux refuses O_CREAT for an existing file of another user in such a folder, whatever its mode.

    Args:
        folder: Descriptor of its folder.

    Raises:
        OSError: It cannot be opened, or is a link or no ordinary file.
    """
    while True:
        try:
            return _checked(name, os.open(name, os.O_RDWR | _SAFE, dir_fd=folder), "r+")
        except PermissionError:
            return _checked(name, os.open(name, os.O_RDONLY | _SAFE, dir_fd=folder), "r")  # enough for a lock
        except FileNotFoundError:
            with suppress(FileExistsError):  # another run was faster
                descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, 0o666, dir_fd=folder)
                os.fchmod(descriptor, 0o666)  # the umask usually takes the write permission of other users
                return os.fdopen(descriptor, "r+", encoding="utf-8")
        except OSError as error:
            if error.errno in _NO_PLACE:
                raise _planted(name) from None
            raise


def _checked(name: str, descriptor: int, mode: str) -> IO[str]:
    """Return the file, unless it is a pipe, a device, or another name of a file elsewhere."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise _planted(name)
    return os.fdopen(descriptor, mode, encoding="utf-8")


def _planted(name: str) -> OSError:
    return OSError(errno.ELOOP, f"{name} is a link or no ordinary file; remove it")
