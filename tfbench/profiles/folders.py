"""Folders of profiles: one per case, with the files of each side in TensorBoard's layout."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.errors import ProfileError, ReportError, UsageError
from tfbench.fs import read_text, write_whole
from tfbench.model import JSON
from tfbench.untrusted import a_number, a_text, an_object, brief, command, described, parse_json, render_json, texts

SCHEMA = "tfbench-profiled-case/1"
ABOUT = "case.json"
RUNS = Path("plugins", "profile")
"""Where TensorBoard looks below a log folder: one folder per run, with one file per host."""
_UNFIT = re.compile(r"[^\w.,=+-]+", re.ASCII)
_SHOWN = ("tensorflow", "tf-nightly", "keras", "tf-keras")
"""Packages that the description of a side lists. The side's file has the rest."""
_LONGEST = 150
"""Characters of a folder's name. File systems allow 255 bytes."""


@dataclass(frozen=True)
class Kept:
    """The profiles of one case."""

    folder: Path
    case: str
    sides: Mapping[str, JSON]
    """Name -> description of the side. The contender is always present."""
    raced: float | None = None
    """The raced slowdown, as a fraction."""

    def environment(self, side: str) -> str:
        """Describe where a side ran: ``git:main, Python 3.11.7, tensorflow 2.21.0, …``."""
        about = self.sides[side]
        environment = about.get("recipe") or {}
        packages = environment.get("packages", {})
        parts = [str(about.get("spec", "")), f"Python {environment['python']}" if "python" in environment else ""]
        parts += [f"{name} {version}" for name, version in packages.items() if name.startswith(_SHOWN)]
        parts.append(str(environment.get("machine", {}).get("processor", "")))
        return ", ".join(filter(None, parts))

    def runs(self, side: str) -> list[list[Path]]:
        """Return the files of each launch of a side, one file per host.

        Raises:
            ProfileError: There is none.
        """
        place = self.folder / side
        runs = [files for run in sorted((place / RUNS).glob("*")) if (files := sorted(run.glob("*.xplane.pb")))]
        if not runs:
            raise ProfileError(f"{place} holds no XPlane file: profile the case again")
        return runs


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
    """Write the description of a case's folder.

    Raises:
        OSError: The file cannot be written.
    """
    content = {"schema": SCHEMA, "case": kept.case, "sides": dict(kept.sides), "raced": kept.raced}
    write_whole(kept.folder / ABOUT, render_json(content, 1) + "\n")


def write_read(folder: Path, side: str, texts: Mapping[str, str], trace: JSON) -> None:
    """Write the tables, texts and trace of a side.

    Args:
        texts: File name -> content.

    Raises:
        OSError: A file cannot be written.
    """
    for name, text in texts.items():
        write_whole(folder / side / name, text)
    with gzip.open(folder / side / "trace.json.gz", "wt", encoding="utf-8", compresslevel=6) as file:
        json.dump(trace, file, allow_nan=False)


def named(folder: Path, name: str) -> list[Kept]:
    """Find the profiles of a case by its name, with or without its file, or of all cases whose names contain the text.

    Raises:
        UsageError: No case matches, or the folder does not exist.
        ProfileError: A description is not in the format of this version.
    """
    if not folder.is_dir():
        how = command("pytest", "--benchmark", "--profile", str(folder))
        raise UsageError(f"{folder} is not a folder: create profiles with `{how}`")
    kept = [_read(about) for about in sorted(folder.glob(f"*/{ABOUT}"))]
    wanted = name.strip("…").replace("...", "")
    exact = [one for one in kept if one.case == name or one.case.endswith(f"::{name}")]
    found = exact or [one for one in kept if wanted in one.case]
    if not found:
        there = ", ".join(one.case.rpartition("::")[2] for one in kept[:5]) or "none"
        raise UsageError(f"{folder} has no profile of {name!r}; available: {there}{' …' * (len(kept) > 5)}")
    return found


def _read(about: Path) -> Kept:
    try:
        content = an_object(parse_json(read_text(about)), "the content")
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {brief(content['schema'])!r}")
        given = an_object(content["sides"], "sides")
        sides = {name: _side(side, name) for name, side in given.items() if name in ("baseline", "contender")}
        if "contender" not in sides:
            raise ValueError("it has no contender")
        raced = None if content.get("raced") is None else a_number(content["raced"], "raced")
        return Kept(about.parent, a_text(content["case"], "case"), sides, raced)
    except (ReportError, ValueError, KeyError) as error:
        text = f"{brief(about)} is not in tfbench's format ({described(error)}): profile the case again"
        raise ProfileError(text) from None


def _side(content: Any, name: str) -> JSON:
    """Check the parts of a side's description that `Kept.environment` reads."""
    found = an_object(content, name)
    if recipe := an_object(found.get("recipe") or {}, "recipe"):
        a_text(recipe.get("python", ""), "python")
        texts(recipe.get("packages", {}), "packages")
        an_object(recipe.get("machine", {}), "machine")
    return found
