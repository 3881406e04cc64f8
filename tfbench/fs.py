"""Files and folders for several processes: written or filled beside their place, then renamed there; locks."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tfbench.errors import ReportError


@contextmanager
def atomic_dir(place: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``place`` if nothing fails in between, and is gone if something does.

    Raises:
        OSError: It cannot be made, or ``place`` is there by now.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=".half-", dir=place.parent))
    try:
        yield half
        half.rename(place)
    finally:
        shutil.rmtree(half, ignore_errors=True)


@contextmanager
def replace_dir(place: Path) -> Iterator[Path]:
    """As `whole`, but what ``place`` holds by then gives way, and stays if something fails.

    Raises:
        OSError: It cannot be made.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".renewed-", dir=place.parent) as folder:
        half, old = Path(folder, "new"), Path(folder, "old")
        half.mkdir()
        yield half
        if place.exists():
            place.rename(old)
        half.rename(place)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock of one that has died is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def isolated_package_dir() -> str:
    """A folder with this package and nothing else: beside it there may be a TensorFlow, which is not the side's."""
    folder = tempfile.mkdtemp(prefix="tfbench-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    package = Path(__file__).resolve().parent
    Path(folder, package.name).symlink_to(package, target_is_directory=True)
    return folder


def python_path(root: Path, given: str) -> str:
    """``PYTHONPATH`` of a process that works in another tree: this package, then what the user named, as seen from there.

    Args:
        root: What relative entries are meant from.
        given: The user's own.
    """
    return os.pathsep.join(
        [isolated_package_dir(), *(os.path.join(root, one) for one in given.split(os.pathsep) if one)]
    )


def read_text(path: Path) -> str:
    """The text of a file that somebody named.

    Raises:
        ReportError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and rename it there, so that no reader ever sees half of it.

    Raises:
        OSError: The folder cannot be made or written; what was there before is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
