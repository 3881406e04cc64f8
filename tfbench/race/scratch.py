"""The temporary folder of a run's workers, and the processes that were started below it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from functools import cache
from pathlib import Path

from tfbench.errors import SideError
from tfbench.fs import abandoned_scratch_dirs, remove_half_dirs, scratch_dir

_ATTEMPTS = 20
"""Searches for processes, since one that is about to be killed may start another."""


def end_processes(folder: Path, proc: Path = Path("/proc")) -> None:
    """Kill the processes that have a path below this folder in their environment, but this process.

    Args:
        proc: Path of /proc.
    """
    token = os.fsencode(folder)
    for _ in range(_ATTEMPTS):
        found = False
        for environment in proc.glob("[0-9]*/environ"):
            pid = int(environment.parent.name)
            try:
                if pid != os.getpid() and token in environment.read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    found = True
            except OSError:
                continue  # it has ended, or belongs to someone else
        if not found:
            return
        time.sleep(0.01)


@cache
def _remove_abandoned() -> None:
    """Remove what killed runs have left, once per process."""
    for folder in abandoned_scratch_dirs():
        end_processes(folder)
        shutil.rmtree(folder, ignore_errors=True)


class Scratch:
    """The temporary folder of a launcher's workers, created when it is first used.

    Args:
        made: Folder of shared set-ups, where a killed launch may leave a half-made one.
    """

    def __init__(self, made: str) -> None:
        self._made = made
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder.

        Raises:
            SideError: It cannot be created.
        """
        if self._folder is None:
            try:
                _remove_abandoned()
                self._folder = Path(tempfile.mkdtemp(prefix="workers-", dir=scratch_dir()))
            except OSError as error:
                raise SideError(
                    f"no temporary folder can be created in {tempfile.gettempdir()}: {error.strerror}; "
                    "make room there, or set TMPDIR"
                ) from None
        return self._folder

    def close(self) -> None:
        """Remove the folder, the processes that were started below it, and half-made shared set-ups."""
        if self._folder is not None:
            end_processes(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            remove_half_dirs(Path(self._made))
