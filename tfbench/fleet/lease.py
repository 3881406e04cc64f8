"""Lease the host for one measurement at a time, across all engines, services and users of the host."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tfbench.errors import NodeError
from tfbench.fs import hold
from tfbench.gpus.locks import opened, shared_folder

_EACH = 0.02
"""Seconds between two attempts. A hand-over costs a fiftieth of a second of a job of minutes."""
_NAME = "host.lock"


def lease_folder() -> Path:
    """Return the folder of the locks of all users of this host."""
    shared = "/run/lock" if os.access("/run/lock", os.W_OK) else tempfile.gettempdir()
    return Path(shared, "tfbench")


@contextmanager
def lease(wait: float, folder: Path | None = None) -> Iterator[IO[str]]:
    """Hold the host until the block ends. Children that inherit the yielded file hold it as long as they live.

    Args:
        wait: Seconds to wait for another service to finish.

    Raises:
        NodeError: Another service still measures, or the folder is not usable.
    """
    place = folder or lease_folder()
    try:
        with shared_folder(place) as descriptor:
            file = opened(_NAME, descriptor)
    except OSError as error:
        raise NodeError(f"{place} cannot hold the lease of this host: {error.strerror}") from None
    with file:
        _take(file, wait)
        if file.writable():
            file.seek(0)
            file.truncate()
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield file


def _take(file: IO[str], wait: float) -> None:
    until = time.monotonic() + wait
    while True:
        try:
            return hold(file, wait=False)
        except BlockingIOError:
            if time.monotonic() >= until:
                file.seek(0)
                who = file.read(100).strip()
                text = f"another service measures on this host{f', process {who}' if who.isdigit() else ''}"
                raise NodeError(f"{text}: give one service the host, or give --wait more seconds") from None
        time.sleep(_EACH)
