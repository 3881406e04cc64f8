"""Lock each GPU for one run at a time, across all processes of the machine: two runs would measure each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tfbench.errors import GpuError
from tfbench.gpus.readings import Identity


class Locks:
    """The locks of some GPUs, held until `close`. If their process dies, the system releases them.

    Args:
        folder: Folder of the lock files, shared by all users of the GPUs.

    Raises:
        GpuError: Another run measures on a GPU, or the folder is not usable.
    """

    def __init__(self, gpus: Sequence[Identity], folder: Path) -> None:
        self._files: list[IO[str]] = []
        try:
            if not folder.exists():
                folder.mkdir(parents=True)
                folder.chmod(0o1777)  # all users may add files, but not remove those of others
            for gpu in gpus:
                self._take(gpu, folder / f"{gpu.uuid.replace('/', '_')}.lock")
        except OSError as error:
            self.close()
            raise GpuError(f"{folder} cannot hold the locks of GPUs: {error.strerror}") from None
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
            raise GpuError(f"{text}: wait for it, or select another GPU with --device gpu:INDEX") from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()

    def close(self) -> None:
        """Release all locks."""
        for file in self._files:
            file.close()
        self._files.clear()
