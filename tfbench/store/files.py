"""Reading files, and writing them whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tfbench.errors import ReportError

FOLDER = ".tfbench"
"""Where all that follows is kept, below pytest's root."""
MADE = "made"
PROFILES = f"{FOLDER}/profiles"
"""Where profiles are kept unless another folder is named, below pytest's root as well."""
UNSHARED = ("candidates", "calibration", "history", MADE, "profiles", "trees")
"""What tfbench keeps for itself; baselines may be shared."""


def keep_out_of_git(folder: Path) -> None:
    """Have git leave out what nobody commits; what is there already stays as it is.

    Raises:
        OSError: The folder cannot be made or written.
    """
    if not (folder / ".gitignore").exists():
        write_whole(folder / ".gitignore", "".join(f"{name}/\n" for name in UNSHARED))


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
