"""Name every file and folder that tfbench keeps below a project's root."""

from __future__ import annotations

from pathlib import Path

from tfbench.fs import DATA_FOLDER, write_whole

HISTORY = f"{DATA_FOLDER}/history"
"""Default folder of histories, relative to pytest's root."""
HISTORY_VARIABLE = "TFBENCH_HISTORY"
"""Environment variable with the place of the history for ``--history`` without a value. It may have a password."""
PROFILES = f"{DATA_FOLDER}/profiles"
"""Default folder of profiles, relative to pytest's root."""
JOURNAL = "journal.jsonl"
"""File of the finished cases of a run that has not come to its end."""
_UNSHARED = ("candidates/", "calibration/", "fleets/", "history/", "made/", "profiles/", "trees/", "journal.*")
"""Patterns that git ignores. Baselines may be shared."""


class Layout:
    """Paths below the data folder of one project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.baselines = folder / "baselines"
        self.candidates = folder / "candidates"
        """The last run against each baseline, which `tfbench baseline accept` makes the new one."""
        self.history = folder / "history"
        self.trees = folder / "trees"
        """Source trees of other revisions."""
        self.shared_set_ups = folder / "made"
        """Folders that one launch builds for all, such as trained models."""
        self.calibration = folder / "calibration"
        self.fleets = folder / "fleets"
        """Folders of plans, jobs and reports of `tfbench fleet`."""
        self.journal = folder / JOURNAL

    @staticmethod
    def of(root: Path) -> Layout:
        """Return the layout below pytest's root."""
        return Layout(root / DATA_FOLDER)

    def write_gitignore(self) -> None:
        """Make git ignore the folders that are not shared. An existing file stays unchanged.

        Raises:
            OSError: The folder cannot be created or written.
        """
        file = self.folder / ".gitignore"
        if not file.exists():
            write_whole(file, "".join(f"{name}\n" for name in _UNSHARED))
