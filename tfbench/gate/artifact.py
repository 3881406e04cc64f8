"""Read result files that an untrusted job has made: in memory, within limits, without writing or following anything.

A job that runs a pull request's code can hand on anything. This module returns texts of bounded size under plain
names. `report.json_reader` checks their content.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tfbench.errors import ReportError
from tfbench.fs import read_at_most
from tfbench.untrusted import brief, described

FILES = 256
"""Limit of the number of files. A shard has one."""
FILE_BYTES = 32 << 20
"""Limit of one file. A report of ten thousand cases with their rounds has 25 million bytes."""
ALL_BYTES = 128 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,99}\.json")
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError)
"""What zipfile raises for an archive that is damaged, encrypted or of an unknown compression."""

_Entry = tuple[str, bool, Callable[[], IO[bytes]]]
"""Name, whether it is a plain file, and how to open it."""


def files_of(path: Path) -> dict[str, str]:
    """Read the texts of a zip archive, a folder or a single file, by name.

    Raises:
        ReportError: The path is none of them, or its content exceeds the limits of result files.
    """
    if path.is_symlink() or not path.exists():
        raise ReportError(f"{brief(path)} does not exist, or is a link")
    if path.suffix == ".zip" and not path.is_dir():
        return _of_archive(path)
    try:
        if path.is_dir():
            entries = sorted(path.iterdir())
            return _texts(path, [(one.name, stat.S_ISREG(one.lstat().st_mode), _opener(one)) for one in entries])
        return {path.name: _text(path.name, _opener(path))}
    except OSError as error:
        raise ReportError(f"{brief(path)} cannot be read: {brief(error.strerror or error)}") from None


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _of_archive(path: Path) -> dict[str, str]:
    def entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Entry:
        plain = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
        return info.filename, plain, lambda: archive.open(info)

    try:
        with zipfile.ZipFile(path) as archive:
            return _texts(path, [entry(archive, info) for info in archive.infolist()])
    except _BROKEN as error:
        raise ReportError(f"{brief(path)} cannot be read as a zip archive ({described(error)})") from None


def _texts(path: Path, entries: Sequence[_Entry]) -> dict[str, str]:
    if not 1 <= len(entries) <= FILES:
        raise ReportError(f"{brief(path)} has {len(entries)} files; a run hands on 1 to {FILES}")
    found: dict[str, str] = {}
    for name, plain, opened in entries:
        if not _NAME.fullmatch(name):
            raise ReportError(
                f"{brief(path)} has a file named {brief(repr(name))}; expected a name such as report-1.json"
            )
        if name in found:
            raise ReportError(f"{brief(path)} has {name} twice")
        if not plain:
            raise ReportError(f"{brief(path)}: {name} is not a plain file")
        found[name] = _text(name, opened)
        if sum(map(len, found.values())) > ALL_BYTES:
            raise ReportError(f"{brief(path)} has more than {ALL_BYTES >> 20} MiB")
    return found


def _text(name: str, opened: Callable[[], IO[bytes]]) -> str:
    with opened() as file:
        content = read_at_most(file, FILE_BYTES + 1)  # an archive's header may state another size
    if len(content) > FILE_BYTES:
        raise ReportError(f"{name} is larger than {FILE_BYTES >> 20} MiB, the limit of a report")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ReportError(f"{name} is not UTF-8 text") from None
