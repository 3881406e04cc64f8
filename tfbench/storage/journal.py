"""Keep the finished cases of a run on disk, so that a run that was interrupted can go on later."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from tfbench.errors import ReportError
from tfbench.fs import read_text, try_lock, write_whole
from tfbench.model import JSON
from tfbench.untrusted import a_text, an_object, brief, described, parse_json, render_json

SCHEMA = "tfbench-journal/1"


class Journal:
    """A file with one line per finished case, after a first line that identifies the run.

    Each case is on disk before the next one is raced. A line that was cut off when the run was killed is ignored. Only
    one run at a time has the journal of a folder; a second run goes without.

    Args:
        identity: What must be equal for a case to be used again, by the name that messages use.
        resume: Whether to use the cases of an earlier run. Otherwise they are deleted.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, path: Path, identity: JSON, resume: bool) -> None:
        self.entries: dict[str, JSON] = {}
        """Name of a case -> its entry, of an earlier run with the same identity."""
        self.note = ""
        """What became of the earlier run, if resuming."""
        self._path = path
        self._file: IO[str] | None = None
        self._lock = try_lock(path.with_suffix(".lock"))
        if self._lock is None:
            self.note = "another run is using this folder, so this run cannot be resumed"
            return
        if resume:
            self._take_over(identity)
        lines = [{"schema": SCHEMA, "identity": identity}, *self.entries.values()]
        write_whole(path, "".join(f"{render_json(line)}\n" for line in lines))
        self._file = path.open("a", encoding="utf-8")

    def _take_over(self, identity: JSON) -> None:
        try:
            if not self._path.exists():
                self.note = "--resume: there is no interrupted run, so every case is measured"
                return
            first, *rest = read_text(self._path).splitlines()
            head = an_object(parse_json(first), "the first line")
            before = an_object(head["identity"], "identity") if head["schema"] == SCHEMA else {}
        except (ReportError, ValueError, KeyError) as error:
            self.note = f"--resume: {brief(self._path)} cannot be read ({described(error)}), so every case is measured"
            return
        if changed := [name for name, value in identity.items() if before.get(name) != value]:
            self.note = f"--resume: {' and '.join(changed)} changed since that run, so every case is measured"
            return
        for line in rest:
            try:
                entry = an_object(parse_json(line), "the line")
                self.entries[a_text(entry["case"], "case")] = entry
            except (ValueError, KeyError):
                break  # the run was killed while it wrote this line

    def add(self, entry: JSON) -> None:
        """Append a finished case, which ``entry["case"]`` names.

        Raises:
            OSError: The disk is full.
        """
        if self._file is not None:
            self._file.write(f"{render_json(entry)}\n")
            self._file.flush()

    def close(self, complete: bool) -> None:
        """Release the journal; delete it after a run that came to its end."""
        if self._file is not None and self._lock is not None:
            self._file.close()
            if complete:
                self._path.unlink(missing_ok=True)
            self._lock.close()
