"""Name every file and folder that tfbench keeps below a project's root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfbench.fs import DATA_FOLDER, write_whole

PROFILES = f"{DATA_FOLDER}/profiles"
"""Default folder of profiles, relative to pytest's root."""
_UNSHARED = ("candidates", "calibration", "history", "made", "profiles", "trees")
"""Folders that git ignores. Baselines may be shared."""


@dataclass(frozen=True)
class Layout:
    """Paths below the data folder of one project."""

    folder: Path

    @staticmethod
    def of(root: Path) -> Layout:
        """Return the layout below pytest's root."""
        return Layout(root / DATA_FOLDER)

    @property
    def baselines(self) -> Path:
        """Saved baselines, one file each."""
        return self.folder / "baselines"

    @property
    def candidates(self) -> Path:
        """The last run against each baseline, which `tfbench baseline accept` makes the new one."""
        return self.folder / "candidates"

    @property
    def history(self) -> Path:
        """One file per session."""
        return self.folder / "history"

    @property
    def trees(self) -> Path:
        """Source trees of other revisions."""
        return self.folder / "trees"

    @property
    def shared_set_ups(self) -> Path:
        """Folders that one launch builds for all, such as trained models."""
        return self.folder / "made"

    @property
    def calibration(self) -> Path:
        """Journals of `tfbench calibrate`."""
        return self.folder / "calibration"

    def write_gitignore(self) -> None:
        """Make git ignore the folders that nobody commits. An existing file stays unchanged.

        Raises:
            OSError: The folder cannot be created or written.
        """
        file = self.folder / ".gitignore"
        if not file.exists():
            write_whole(file, "".join(f"{name}/\n" for name in _UNSHARED))
