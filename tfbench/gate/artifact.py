"""Keep baselines as artifacts of CI.

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
from dataclasses import replace
from pathlib import Path
from statistics import median, stdev
from typing import IO

from tfbench.errors import BaselineError, ReportError
from tfbench.fs import read_at_most
from tfbench.sides.source_tree import CANDIDATES, KEPT, drop, keep
from tfbench.storage.baselines import Acceptance, Baseline, Baselines, Layout, now
from tfbench.storage.history import History
from tfbench.untrusted import brief, described, some

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


# Accept and remove saved baselines, together with their candidates and the source trees that git keeps for them


class BaselineStore:
    """The baselines, candidates and sessions of a project.

    Args:
        root: pytest's root directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        layout = Layout.of(root)
        self.saved = Baselines(layout.baselines)
        self.candidates = Baselines(layout.candidates)
        self.history = History(layout.history)

    def accept(self, name: str, reason: str, drop_missing: bool = False) -> Baseline:
        """Replace a baseline by the last run against it.

        Args:
            drop_missing: Whether cases that the run did not measure may leave the baseline.

        Raises:
            BaselineError: The baseline or the run does not exist, or the run left out cases.
        """
        before = self.saved.fetch(name)
        if name not in self.candidates.names():
            raise BaselineError(
                f"{name}: no run to accept; only a complete run of pytest --benchmark --baseline {name} keeps a candidate"
            )
        candidate = self.candidates.fetch(name)
        lost = self.left_out(name)
        if lost and not drop_missing:
            raise BaselineError(
                f"{name}: the last run measured {len(candidate.samples)} cases, "
                f"but not {some(lost, 1)}; run the whole suite against the baseline, "
                f"or remove {len(lost)} of its cases with --drop-missing"
            )
        accepted = replace(candidate, accepted=(*before.accepted, Acceptance(now(), reason, before.saved)))
        if accepted.tree:
            keep(self.root, accepted.tree, KEPT + name, earlier=True)
        self.saved.save(name, accepted)
        if accepted.tree:
            keep(self.root, accepted.tree, KEPT + name)
        self._drop_candidate(name)
        return accepted

    def left_out(self, name: str) -> list[str]:
        """Return the names of the baseline's cases that the last run against it did not measure.

        Raises:
            BaselineError: The baseline or the run does not exist.
        """
        return sorted(set(self.saved.fetch(name).samples) - set(self.candidates.fetch(name).samples))

    def remove(self, name: str) -> Path:
        """Delete a baseline, its candidate and its trees in git; returns the path of the deleted file.

        Raises:
            BaselineError: No baseline has this name.
        """
        path = self.saved.remove(name)
        drop(self.root, KEPT + name)
        self._drop_candidate(name)
        return path

    def spread(self, baseline: Baseline, case: str) -> tuple[int, float | None]:
        """Return the number of sessions like the baseline's, and the relative standard deviation of their floors.

        Sessions are alike if they have the same policy and race the same entrants, on any machine.
        The deviation is ``None`` for fewer than two sessions.
        """
        context = baseline.context
        records, _ = self.history.read()
        floors = [
            min(found)
            for record in records
            if (found := record.floors_of_same_code(case))
            and (record.context.policy, record.context.way) == (context.policy, context.way)
        ]
        return len(floors), stdev(floors) / median(floors) if len(floors) > 1 else None

    def _drop_candidate(self, name: str) -> None:
        if name in self.candidates.names():
            self.candidates.remove(name)
            drop(self.root, CANDIDATES + name)
