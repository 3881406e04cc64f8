"""Read what the job of a pull request hands on, and tell which files of the gate the pull request changes.

A job that runs a pull request's code can hand on anything. This module returns reports and accepted regressions from texts
of bounded size under plain names, in memory, without writing or following anything.

Files of the gate are known by their names. A script that a workflow runs is not, unless it lies in a folder of `_ROOTS`.
"""

from __future__ import annotations

import re
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from tfbench.errors import ReportError, UsageError
from tfbench.fs import DATA_FOLDER, read_at_most, read_text
from tfbench.model import Report
from tfbench.model.formats import plain, read_named
from tfbench.report import json_format
from tfbench.ruling import Acceptances, Entry, acceptances
from tfbench.sides.environments import REQUIREMENTS
from tfbench.untrusted import brief, described, render_json

if sys.version_info >= (3, 11):
    import tomllib
else:  # Python 3.10 has no tomllib
    import tomli as tomllib

# Read result files that an untrusted job has made: in memory, within limits, without writing or following anything


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

    Raises `ReportError` if the path is none of them, or its content exceeds the limits of result files.
    """
    if path.is_symlink() or path.is_fifo() or not path.exists():
        raise ReportError(f"{brief(path)} does not exist, or is a link or a pipe")
    entries: list[_Entry] = []
    try:
        if path.suffix == ".zip" and not path.is_dir():
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    is_plain = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
                    entries.append((info.filename, is_plain, partial(archive.open, info)))
                return _texts(path, entries)
        for entry in sorted(path.iterdir()) if path.is_dir() else [path]:
            entries.append((entry.name, stat.S_ISREG(entry.lstat().st_mode), _opener(entry)))
        return _texts(path, entries) if path.is_dir() else {path.name: _text(path.name, entries[0][2])}
    except _BROKEN as error:
        how = " as a zip archive" if path.suffix == ".zip" else ""
        why = brief(getattr(error, "strerror", None) or described(error))
        raise ReportError(f"{brief(path)} cannot be read{how}: {why}") from None


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _texts(path: Path, entries: Sequence[_Entry]) -> dict[str, str]:
    if not 1 <= len(entries) <= FILES:
        raise ReportError(f"{brief(path)} has {len(entries)} files; a run hands on 1 to {FILES}")
    texts: dict[str, str] = {}
    for name, is_plain, opened in entries:
        if not _NAME.fullmatch(name):
            raise ReportError(f"{brief(path)} has a file named {brief(repr(name))}; expected one such as report.json")
        if name in texts:
            raise ReportError(f"{brief(path)} has {name} twice")
        if not is_plain:
            raise ReportError(f"{brief(path)}: {name} is not a plain file")
        texts[name] = _text(name, opened)
        if sum(map(len, texts.values())) > ALL_BYTES:
            raise ReportError(f"{brief(path)} has more than {ALL_BYTES >> 20} MiB")
    return texts


def _text(name: str, opened: Callable[[], IO[bytes]]) -> str:
    with opened() as file:
        content = read_at_most(file, FILE_BYTES + 1)  # an archive's header may state another size
    if len(content) > FILE_BYTES:
        raise ReportError(f"{name} is larger than {FILE_BYTES >> 20} MiB, the limit of a report")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ReportError(f"{name} is not UTF-8 text") from None


# Read reports and accepted regressions


ACCEPTED = "accepted.json"
"""File of accepted regressions that the gate writes beside its report."""
_MERGE = "tfbench gate merges the reports of shards"


def load_report(path: Path) -> Report:
    """Read the report of this run: a file, or a folder or an archive with only this file.

    Raises `ReportError` if there is no report, there are several, or it is invalid.
    """
    reports = load_reports([path])
    if len(reports) != 1:
        raise ReportError(f"{brief(path)} has {len(reports)} reports, expected one; {_MERGE}")
    return reports[0][1]


def load_reports(paths: Iterable[Path]) -> list[tuple[str, Report]]:
    """Read reports, or folders and archives of them; return each with its name for messages.

    Raises `ReportError` if there is none, or one is invalid.
    """
    found = []
    for path in paths:
        if not path.is_dir() and path.suffix != ".zip":
            found.append((str(path), json_format.read(read_text(path), str(path))))
            continue
        texts = {name: text for name, text in files_of(path).items() if name != ACCEPTED}
        if not texts:
            raise ReportError(f"{brief(path)} has no report; give one of --report-json, or a folder or archive of them")
        found += [(f"{path}/{name}", json_format.read(text, f"{path}/{name}")) for name, text in texts.items()]
    return found


def load_artifact(path: Path) -> tuple[Report, list[Entry]]:
    """Read the report of an untrusted job, and the accepted regressions that its gate applied.

    Raises `ReportError` if the artifact is invalid, or has names that are not pytest node ids.
    """
    texts = files_of(path)
    accepted = texts.pop(ACCEPTED, None)
    if len(texts) != 1:
        raise ReportError(f"{brief(path)} has {len(texts)} reports, expected one; {_MERGE}")
    ((name, text),) = texts.items()
    report = json_format.read(text, name)
    json_format.check_names(report, str(path))
    return report, [] if accepted is None else list(read_named(Acceptances, accepted, ACCEPTED).accept)


def load_accepted(path: Path) -> list[Entry]:
    """Read a file of accepted regressions from this repository.

    Raises `UsageError` if the content is invalid, and `ReportError` if the file cannot be read.
    """
    return accepted_in(read_text(path), path)


def accepted_in(text: str, path: Path) -> list[Entry]:
    """Read the text of such a file; errors are those of `load_accepted`."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the parser has errors beside its own, such as of a date
        raise UsageError(f"{brief(path)} is not TOML: {brief(error)}") from None
    return list(acceptances(content, str(path)).accept)


def as_json(accepted: Sequence[Entry]) -> str:
    """Format accepted regressions as JSON, for an artifact."""
    return render_json(plain(Acceptances(tuple(accepted))), 1) + "\n"


# Tell which files of a pull request are part of the gate, so that a reader does not trust a gate that it has changed


_ROOTS = (".github", "ci", "tfbench", "pytest", "_pytest")
"""Folders in the root. A package there comes before the installed one."""
_FOLDERS = (DATA_FOLDER, "requirements", "constraints")
"""Folders anywhere."""
_NAMES = (
    "action.y*ml", ".gitlab-ci.yml", "conftest.py", "*pytest.ini", "*pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg",
    "setup.py", "*akefile", "noxfile.py", "sitecustomize.py", "usercustomize.py", "pytest.py", "tfbench.py", "entry_points.txt",
    ".gitmodules", ".gitattributes", "Pipfile", "uv.toml", "pixi.toml", "pip.conf", ".python-version", ".tool-versions", "*.pth",
    "*accepted.toml",
)  # fmt: skip
_ENVIRONMENT = re.compile(REQUIREMENTS)


def own_files(changed: Iterable[str]) -> list[str]:
    """Select the workflows, settings, environments, baselines and accepted regressions among changed files; sorted."""
    return sorted({name for name in changed if name and _is_own(PurePosixPath(name))})


def _is_own(path: PurePosixPath) -> bool:
    if path.parts[0] in _ROOTS or not set(_FOLDERS).isdisjoint(path.parts):
        return True
    return any(fnmatchcase(path.name, name) for name in _NAMES) or bool(_ENVIRONMENT.fullmatch(path.name))
