"""Where tfbench keeps its files, below pytest's root."""

from __future__ import annotations

from pathlib import Path

from tfbench.fs import write_whole

FOLDER = ".tfbench"
"""Where all that follows is kept, below pytest's root."""
MADE = "made"
PROFILES = f"{FOLDER}/profiles"
"""Where profiles are kept unless another folder is named, below pytest's root as well."""
UNSHARED = ("candidates", "calibration", "history", MADE, "profiles", "trees")
"""What tfbench keeps for itself; baselines may be shared."""


def write_gitignore(folder: Path) -> None:
    """Have git leave out what nobody commits; what is there already stays as it is.

    Raises:
        OSError: The folder cannot be made or written.
    """
    if not (folder / ".gitignore").exists():
        write_whole(folder / ".gitignore", "".join(f"{name}/\n" for name in UNSHARED))
