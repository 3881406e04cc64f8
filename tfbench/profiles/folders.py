"""Folders of profiles: one for each case, with the files of each side where TensorBoard looks for them."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import ProfileError, UsageError
from tfbench.fs import write_whole
from tfbench.model import JSON

SCHEMA = "tfbench-profiled-case/1"
ABOUT = "case.json"
RUNS = Path("plugins", "profile")
"""Where TensorBoard looks below a folder of logs; below that, a folder for each run, with a file for each host."""
_UNFIT = re.compile(r"[^\w.,=+-]+", re.ASCII)
_TOLD = ("tensorflow", "tf-nightly", "keras", "tf-keras")
"""Packages that are told of a side; the others stand in its file."""
_LONGEST = 150
"""Characters of a folder's name; file systems take 255 bytes."""


@dataclass(frozen=True)
class Kept:
    """The profiles of one case."""

    folder: Path
    case: str
    sides: Mapping[str, JSON]
    """By their names, what was noted of each; the contender is always there."""
    raced: float | None = None
    """The slowdown that was raced, as a fraction."""

    def environment(self, side: str) -> str:
        """What a side ran on: ``git:main, Python 3.11.7, tensorflow 2.21.0, …``."""
        about = self.sides[side]
        environment = about.get("recipe") or {}
        packages = environment.get("packages", {})
        parts = [str(about.get("spec", "")), f"Python {environment['python']}" if "python" in environment else ""]
        parts += [f"{name} {version}" for name, version in packages.items() if name.startswith(_TOLD)]
        parts.append(str(environment.get("machine", {}).get("processor", "")))
        return ", ".join(filter(None, parts))

    def runs(self, side: str) -> list[list[Path]]:
        """For each launch of a side, the files of its hosts.

        Raises:
            ProfileError: There is none.
        """
        runs = sorted((self.folder / side / RUNS).glob("*"))
        found = [files for run in runs if (files := sorted(run.glob("*.xplane.pb")))]
        if not found:
            raise ProfileError(f"{self.folder / side} holds no xplane file: profile the case again")
        return found


def folder_of(case: str) -> str:
    """The name of a case's folder: what file systems and their patterns take of its node id, with a digest of what else
    there is."""
    name = case.replace("/", ".").replace("::", ".").replace("[", ".").removesuffix("]")
    fit = _UNFIT.sub("_", name)
    if fit == name and len(fit) <= _LONGEST:
        return fit
    return f"{fit[:_LONGEST]}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"


def write_about(kept: Kept) -> None:
    """Write down whose profiles a folder holds.

    Raises:
        OSError: It cannot be written.
    """
    content = {"schema": SCHEMA, "case": kept.case, "sides": dict(kept.sides), "raced": kept.raced}
    write_whole(kept.folder / ABOUT, json.dumps(content, indent=1) + "\n")


def write_read(folder: Path, side: str, texts: Mapping[str, str], trace: JSON) -> None:
    """Write what was read of a side: tables and texts by their file's names, and its trace.

    Raises:
        OSError: One cannot be written.
    """
    place = folder / side
    for name, text in texts.items():
        write_whole(place / name, text)
    scratch = place / ".trace"
    with gzip.open(scratch, "wt", encoding="utf-8", compresslevel=6) as file:
        json.dump(trace, file, allow_nan=False)
    os.replace(scratch, place / "trace.json.gz")


def every(folder: Path) -> Iterator[Kept]:
    """The cases whose profiles lie in a folder.

    Raises:
        UsageError: The folder is not there.
        ProfileError: Something in it is not what this version wrote.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder of profiles; `pytest --benchmark --profile {folder}` makes one")
    for about in sorted(folder.glob(f"*/{ABOUT}")):
        yield _read(about)


def _read(about: Path) -> Kept:
    try:
        content = json.loads(about.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {content['schema']!r}")
        sides = {str(name): dict(side) for name, side in content["sides"].items() if name in ("baseline", "contender")}
        raced = content.get("raced")
        return Kept(about.parent, str(content["case"]), sides, None if raced is None else float(raced))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileError(f"{about} is not what tfbench writes ({error}); profile the case again") from None


def named(folder: Path, name: str) -> list[Kept]:
    """The profiles of the case of this name, without its file if one likes, or of all whose names have it in them.

    Raises:
        UsageError: There is none, or the folder is not there.
        ProfileError: Something in the folder is not what this version wrote.
    """
    kept = list(every(folder))
    wanted = name.strip("…").replace("...", "")
    exact = [one for one in kept if one.case == name or one.case.endswith(f"::{name}")]
    found = exact or [one for one in kept if wanted in one.case]
    if not found:
        there = ", ".join(one.case.rpartition("::")[2] for one in kept[:5]) or "nothing"
        raise UsageError(f"{folder} holds no profile of {name!r}; it has {there}{' …' * (len(kept) > 5)}")
    return found
