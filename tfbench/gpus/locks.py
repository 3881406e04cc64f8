"""Lock each GPU for one run at a time, across all processes of the machine: two runs would measure each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from tfbench.errors import GpuError
from tfbench.fs import hold
from tfbench.gpus.readings import Identity


def lock(gpus: Sequence[Identity], folder: Path) -> ExitStack:
    """Lock GPUs by files in a folder of all users, until the returned stack is closed or this process dies.

    Raises:
        GpuError: Another run measures on a GPU, or the folder is not usable.
    """
    with ExitStack() as held:
        try:
            shared_folder(folder)
            for gpu in gpus:
                _take(gpu, folder / f"{gpu.uuid.replace('/', '_')}.lock", held)
        except OSError as error:
            raise GpuError(f"{folder} cannot hold the locks of GPUs: {error.strerror}") from None
        return held.pop_all()


def shared_folder(folder: Path) -> None:
    """Create a folder in which all users may add files, but not remove those of others.

    Raises:
        OSError: It cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.stat().st_uid == os.getuid():
        folder.chmod(0o1777)


def _take(gpu: Identity, path: Path, held: ExitStack) -> None:
    file = held.enter_context(opened(path))
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


def opened(path: Path) -> IO[str]:
    """Open the file of a lock, which may belong to another user, and create it if necessary.

    Linux refuses O_CREAT for an existing file of another user in such a folder, whatever its mode.
    """
    safe = os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.fdopen(os.open(path, os.O_RDWR | safe), "r+", encoding="utf-8")
        except PermissionError:
            return os.fdopen(os.open(path, os.O_RDONLY | safe), encoding="utf-8")  # enough for a lock
        except FileNotFoundError:
            with suppress(FileExistsError):  # another run was faster
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | safe, 0o666)
                os.fchmod(descriptor, 0o666)  # the umask usually takes the write permission of other users
                return os.fdopen(descriptor, "r+", encoding="utf-8")
