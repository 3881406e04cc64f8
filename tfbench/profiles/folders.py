"""Read the steps of profiles, and find and keep profiles in folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tfbench.errors import ProfileError, UsageError
from tfbench.fs import write_whole
from tfbench.model import short_name
from tfbench.model.formats import Name, Text, line, read_file
from tfbench.profiles.attribution import StepBreakdown, faster_half, step_slices, trimmed
from tfbench.profiles.xplane import DEVICE, NO_KERNELS, load, steps_of
from tfbench.untrusted import command, some


def step_breakdown(files: Sequence[Path]) -> StepBreakdown:
    """Read the steps of several launches of one program, and keep the faster half of the launches.

    Raises `ProfileError` if a file is incomplete, has no step marker, or has a device without events.
    """
    launches = []
    for file in files:
        space = load(file)
        try:
            if (devices := space.of(DEVICE)) and not any(plane.events for plane in devices):
                raise ProfileError(f"the device's part of the profile is empty: {NO_KERNELS}")
            launches.append(step_slices(space, steps_of(space)))
        except ProfileError as error:
            raise ProfileError(f"{file}: {error}") from None
    return faster_half([trimmed(launch) for launch in launches])


# Folders of profiles: one per case, with the files of each side in TensorBoard's layout


SCHEMA = "tfbench-profiled-case/1"
ABOUT = "case.json"
RUNS = Path("plugins", "profile")
"""Where TensorBoard looks below a log folder: one folder per run, with its file."""
_UNFIT = re.compile(r"[^\w.,=+-]+", re.ASCII)
_LONGEST = 150
"""Characters of a folder's name. File systems allow 255 bytes."""


@dataclass(frozen=True)
class _About:
    """The file that describes the profiles of a case."""

    case: Name
    contender: Text
    """Specification of the side."""
    baseline: Text | None = None
    raced: float | None = None
    schema: Literal["tfbench-profiled-case/1"] = "tfbench-profiled-case/1"


@dataclass(frozen=True)
class Kept:
    """The profiles of one case."""

    folder: Path
    case: str
    sides: Mapping[str, str]
    """Specifications by name. The contender is always present, or ``""`` alone: the profiles of another program."""
    raced: float | None = None
    """The raced slowdown, as a fraction."""

    def runs(self, side: str) -> list[Path]:
        """Return the file of each launch of a side. Raises `ProfileError` if there is none."""
        place = self.folder / side
        if not (files := sorted((place / RUNS).glob("*/*.xplane.pb"))):
            raise ProfileError(f"{place} holds no XPlane file: profile the case again")
        return files


def folder_of(case: str) -> str:
    """Return the name of a case's folder: the node id without special characters.

    It ends in a digest of the node id if characters were replaced or cut.
    """
    name = case.replace("/", ".").replace("::", ".").replace("[", ".").removesuffix("]")
    fit = _UNFIT.sub("_", name)
    if fit == name and len(fit) <= _LONGEST:
        return fit
    return f"{fit[:_LONGEST]}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"


def write_about(kept: Kept) -> None:
    """Write the description of a case's folder. Raises `OSError` if the file cannot be written."""
    about = _About(kept.case, kept.sides["contender"], kept.sides.get("baseline"), kept.raced)
    write_whole(kept.folder / ABOUT, f"{line(about)}\n")


def named(folder: Path, name: str) -> list[Kept]:
    """Find the profiles of a case by its name, with or without its file, or of all cases whose names contain the text.

    A log folder of another program has no cases, so the name is only a title. Its runs count as launches.
    Raises `UsageError` if no case matches, or the folder does not exist, and `ProfileError` if a description is not in
    the format of this version.
    """
    if not folder.is_dir():
        how = command("pytest", "--benchmark", "--profile", str(folder))
        raise UsageError(f"{folder} is not a folder: create profiles with `{how}`")
    if any((folder / RUNS).glob("*/*.xplane.pb")):
        return [Kept(folder, name, {"": str(folder)})]
    kept = [_read(about) for about in sorted(folder.glob(f"*/{ABOUT}"))]
    wanted = name.strip("…").replace("...", "")
    exact = [folder for folder in kept if folder.case == name or folder.case.endswith(f"::{name}")]
    matching = exact or [folder for folder in kept if wanted in folder.case]
    if not matching:
        there = some([short_name(folder.case) for folder in kept], 5) or "none"
        raise UsageError(f"{folder} has no profile of {name!r}; available: {there}")
    return matching


def _read(path: Path) -> Kept:
    about = read_file(path, _About, SCHEMA, "profile the case again", ProfileError)
    sides = {"baseline": about.baseline} if about.baseline is not None else {}
    return Kept(path.parent, about.case, {**sides, "contender": about.contender}, about.raced)
