"""List the released versions, or the commits, between two ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from tfbench.errors import UsageError
from tfbench.sides.source_tree import commits
from tfbench.sides.spec import PACKAGE, TENSORFLOWS, of_version
from tfbench.sides.uv import between, last_patches
from tfbench.versions.search import Point

SETTING = re.compile(r"env:.*|python==.*")
"""A part of a specification that has no releases."""


def points_between(good: str, bad: str, root: Path, all_releases: bool = False) -> list[Point]:
    """Return the points from the good to the bad end, both included.

    Versions are those of the package in which the specifications differ, TensorFlow by default. If they span more
    than two minor versions, only the last release of each counts, unless ``all_releases``. An end is a version, a
    specification with one, or a revision of the checkout that contains ``root``. Nothing lies between two ends that
    differ in settings or the Python alone, or between a release and a nightly.

    Raises:
        UsageError: The ends are of two kinds, are equal, differ in more than a version, or no path connects them.
        SideError: A revision does not exist, or the versions cannot be read from the network.
    """
    specs = [of_version(one) for one in (good, bad)]
    ends = f"--good {good} and --bad {bad}"
    if specs[0] == specs[1]:
        raise UsageError(f"{ends} are the same; give two")
    ours, theirs = ([part.strip() for part in spec.split("+")] for spec in specs)
    common = [part for part in ours if part in theirs]
    mine, other = ("+".join(part for part in parts if part not in common) for parts in (ours, theirs))
    settings = all(SETTING.fullmatch(part) for part in filter(None, f"{mine}+{other}".split("+")))
    names = {one.partition("==")[0] for one in (mine, other)}
    if settings or (len(names) == 2 and names < set(TENSORFLOWS)):
        return [Point(_setting(specs[0], common), specs[0]), Point(_setting(specs[1], common), specs[1])]
    packaged = {bool(PACKAGE.fullmatch(part)) for part in (ours[0], theirs[0])}
    if len(packaged) > 1:
        raise UsageError(f"{ends}: one is a version and the other a revision; give two of a kind")
    if packaged == {False}:
        revisions = [spec.removeprefix("git:") for spec in specs]
        found = commits(root, *revisions)
        if len(found) < 2:
            raise UsageError(f"{ends} are the same commit; give two")
        return [Point(commit[:10], f"git:{commit}", subject) for commit, subject in found]
    package, _, first = mine.partition("==")
    same, _, last = other.partition("==")
    if "+" in mine + other or package != same:
        raise UsageError(f"{ends} must differ in the version of one package and in nothing else")
    try:
        versions = between(package, first, last)
    except InvalidVersion as wrong:
        raise UsageError(f"--good {good}, --bad {bad}: {wrong}") from None
    if not all_releases and len({(one.major, one.minor) for one in map(Version, versions)}) > 2:
        versions = last_patches(versions)
    return [Point(one, "+".join([f"{package}=={one}", *common])) for one in versions]


def _setting(spec: str, common: Sequence[str]) -> str:
    """Label an end by what only it has, or by all if the other end only adds to it."""
    return "+".join(part for part in spec.split("+") if part.strip() not in common) or spec
