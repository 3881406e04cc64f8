"""One run at a time on each GPU, over all processes of this machine: two of them would measure each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tfbench.errors import GpuError
from tfbench.gpus.readings import Identity


class Locks:
    """The locks of some GPUs, held until they are closed; the lock of a process that has died is free.

    Args:
        folder: Where the files of the locks are, the same for all users of the machine's GPUs.

    Raises:
        GpuError: Somebody else measures on one of them, or the folder cannot be used.
    """

    def __init__(self, gpus: Sequence[Identity], folder: Path) -> None:
        self._files: list[IO[str]] = []
        try:
            if not folder.exists():
                folder.mkdir(parents=True)
                folder.chmod(0o1777)  # for every user, of whom none can take another's away
            for gpu in gpus:
                self._take(gpu, folder / f"{gpu.uuid.replace('/', '_')}.lock")
        except OSError as error:
            self.close()
            raise GpuError(f"the locks of GPUs cannot be kept in {folder}: {error.strerror}") from None
        except GpuError:
            self.close()
            raise

    def _take(self, gpu: Identity, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        file = os.fdopen(descriptor, "r+", encoding="utf-8")
        self._files.append(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip()
            text = f"another run measures on GPU {gpu.index} ({gpu.name}){f', process {who}' if who else ''}"
            raise GpuError(f"{text}: wait for it, or name another one with --device gpu:INDEX") from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()

    def close(self) -> None:
        """Let go of all of them."""
        for file in self._files:
            file.close()
        self._files.clear()
