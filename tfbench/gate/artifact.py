"""Result files that somebody else's job has made: read in memory, within limits, nothing written or followed.

A job that runs a pull request's code can hand on anything. What comes out of here is text of bounded size under
plain names; what it says is for `report.json_reader` to check.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from tfbench.errors import ReportError

FILES = 256
"""A shard hands on one file."""
FILE_BYTES = 32 << 20
"""A report of ten thousand cases has five million."""
ALL_BYTES = 128 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,99}\.json")
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    ValueError,
)


def files_of(path: Path) -> dict[str, str]:
    """Texts by name, of a zip archive, a folder or a single file.

    Raises:
        ReportError: It is none of them, or goes beyond what result files need.
    """
    if path.is_symlink() or not path.exists():
        raise ReportError(f"{path} is not there, or is a link")
    if path.is_dir():
        return _of_folder(path)
    if path.suffix == ".zip":
        return _of_archive(path)
    return {path.name: _text(path.name, _read(path))}


def _of_folder(path: Path) -> dict[str, str]:
    entries = sorted(path.iterdir())
    _check_count(path, len(entries))
    found: dict[str, str] = {}
    for entry in entries:
        _check_name(path, entry.name)
        if not stat.S_ISREG(entry.lstat().st_mode):
            raise ReportError(f"{path}: {entry.name} is not a plain file")
        found[entry.name] = _text(entry.name, _read(entry))
        _check_sum(path, found)
    return found


def _of_archive(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check_count(path, len(entries))
            for entry in entries:
                _check_name(path, entry.filename)
                if entry.filename in found:
                    raise ReportError(f"{path} has {entry.filename} twice")
                if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                    raise ReportError(f"{path}: {entry.filename} is not a plain file")
                with archive.open(entry) as file:
                    content = file.read(FILE_BYTES + 1)  # whatever its header says
                found[entry.filename] = _text(entry.filename, _within(entry.filename, content))
                _check_sum(path, found)
    except _BROKEN as error:
        raise ReportError(
            f"{path} is not an archive that can be read ({type(error).__name__}: {_brief(error)})"
        ) from None
    return found


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _within(path.name, file.read(FILE_BYTES + 1))
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror or error}") from None


def _within(name: str, content: bytes) -> bytes:
    if len(content) > FILE_BYTES:
        raise ReportError(f"{name} is larger than {FILE_BYTES >> 20} MiB, which no report is")
    return content


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ReportError(f"{name} is not text in UTF-8") from None


def _check_count(path: Path, count: int) -> None:
    if not 1 <= count <= FILES:
        raise ReportError(f"{path} holds {count} files; a run hands on 1 to {FILES}")


def _check_name(path: Path, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ReportError(f"{path} holds a file of the name {name[:100]!r}; reports are called like report-1.json")


def _check_sum(path: Path, found: dict[str, str]) -> None:
    if sum(map(len, found.values())) > ALL_BYTES:
        raise ReportError(f"{path} holds more than {ALL_BYTES >> 20} MiB")


def _brief(error: Exception) -> str:
    return str(error)[:200]
