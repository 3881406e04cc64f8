"""Interpreters with other packages: resolved and installed by uv, kept by what is in them.

An environment is a folder, named by a digest of its list (every requirement with its version), its interpreter and the
machine. It is built beside its place and renamed into it, so no run ever sees half of one; whoever uses one holds
a lock on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from platformdirs import user_cache_path

from tfbench.errors import SideError
from tfbench.fs import atomic_dir, locked
from tfbench.sides import interpreters, releases, uv
from tfbench.sides.uv import ResolveError

NEEDED = ("numpy", "pytest>=8.2,<10")
"""What the measuring processes need beside TensorFlow."""
_MADE, _LOCK = "tfbench.json", ".lock"
_UNFIT = re.compile(
    r"no (?:usable )?wheels?|Python requirement|Python version|requires Python|python ABI", re.IGNORECASE
)
_UNKNOWN = re.compile(r"Because ([\w.\-]+) was not found in the package registry")
_ABSENT = re.compile(r"there is no version of ([\w.\-\[\]]+)==(\S+?)[ ,]")


@dataclass(frozen=True)
class Environment:
    """One that is there."""

    folder: Path
    request: tuple[str, ...]
    """What was asked for."""
    python: str
    packages: tuple[str, ...]
    """Every requirement with its version."""

    @property
    def executable(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def used(self) -> float:
        """When it was last asked for, seconds since 1970."""
        return (self.folder / _MADE).stat().st_mtime

    @property
    def bytes(self) -> int:
        """What it takes on disk."""
        return sum(file.lstat().st_size for file in self.folder.rglob("*") if not file.is_dir())


def kept() -> Path:
    """Where this user's environments are, for all projects."""
    return user_cache_path("tfbench", appauthor=False) / "environments"


class Environments:
    """Those of one folder.

    Args:
        root: Where they are.
        tell: Called with what is being done.
        interpreters: The Pythons to build with, the one to be preferred first; those of this machine, if not given.
    """

    def __init__(
        self, root: Path, tell: Callable[[str], None] = lambda text: None, interpreters: Sequence[str] | None = None
    ) -> None:
        self._root = root
        self._tell = tell
        self._given = interpreters
        self._held: list[IO[str]] = []

    @cached_property
    def _interpreters(self) -> list[str]:
        return list(self._given if self._given is not None else interpreters.interpreters())

    def __enter__(self) -> Environments:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others remove what was asked for."""
        for lock in self._held:
            lock.close()
        self._held.clear()

    def prefer(self, requests: Sequence[Sequence[str]], version: str = "") -> None:
        """From now on take a Python that all of these can be had for, if there is one: what differs between
        environments shall be what was asked for.

        Args:
            version: As ``3.11``, if no other one will do.
        """
        found = [one for one in self._interpreters if version in ("", interpreters.minor(interpreters.version_of(one)))]
        if not found:
            raise SideError(f"there is no Python {version} on this machine")
        self._tell("looking for a Python that all of them run on")
        fitting = (one for one in found if all(_fits(request, one) for request in requests))
        first = next(fitting, found[0])
        self._interpreters = [first, *(one for one in found if one != first)]

    def get(self, request: Sequence[str]) -> Environment:
        """An environment with these requirements, built if it is not there.

        Args:
            request: ``tensorflow==2.20.0`` and the like.

        Raises:
            SideError: No such version, none for these Pythons, no network and nothing kept, or no room.
        """
        request = tuple(sorted(request))
        self._tell(f"resolving {', '.join(request)}")
        try:
            interpreter, packages = self._resolve(request)
        except ResolveError as refused:
            if not refused.offline:
                raise
            same = [one for one in self.every() if one.request == request]
            if not same:
                text = f"{', '.join(request)}: there is no network, and no environment with it was kept"
                raise SideError(f"{text} ({refused})") from None
            for one in same:  # the one that was used last first
                if (held := self._hold(one.folder)) is not None:
                    return held
            raise
        key = hashlib.sha256("\n".join([*packages, interpreter, platform.platform()]).encode()).hexdigest()[:16]
        folder = self._root / key
        # Looked for before it is locked to be built: whoever uses it, this run included, keeps that lock away.
        while (found := self._hold(folder)) is None:
            with locked(self._root / f"{key}{_LOCK}"):
                if not (folder / _MADE).exists():
                    self._build(folder, request, interpreter, packages)
        return found

    def _resolve(self, request: tuple[str, ...]) -> tuple[str, list[str]]:
        """The first interpreter that all of it can be had for, and every package with its version."""
        refusals = []
        for interpreter in self._interpreters:
            try:
                return interpreter, uv.resolved((*request, *NEEDED), "--python", interpreter)
            except ResolveError as refused:
                if refused.offline or refused.full:
                    raise
                refusals.append(refused)
        first = refusals[0]
        if (unknown := _UNKNOWN.search(str(first))) is not None:
            raise SideError(f"there is no package {unknown[1]}")
        if (absent := _ABSENT.search(str(first))) is not None:
            found = releases.nearest(absent[1], absent[2])
            fix = f"; the nearest are {' and '.join(found)}" if found else ""
            raise SideError(f"{absent[1]} has no version {absent[2]}{fix}")
        if _UNFIT.search(str(first)):
            fitting = [python for python in interpreters.VERSIONS if _fits(request, self._interpreters[0], python)]
            fix = f"Python {' or '.join(fitting)} would do" if fitting else "no Python that tfbench runs on would do"
            raise SideError(f"{', '.join(request)}: not to be had for the Pythons of this machine; {fix}")
        raise SideError(f"{', '.join(request)}: {first}")

    def _build(self, folder: Path, request: tuple[str, ...], interpreter: str, packages: list[str]) -> None:
        self._tell(f"building an environment with {', '.join(request)}, {len(packages)} packages")
        try:
            with atomic_dir(folder) as half:
                _install(half, request, interpreter, packages)
        except ResolveError as refused:
            if refused.full:
                raise SideError(f"no room left in {self._root} for {', '.join(request)}; tfbench envs prune") from None
            raise
        except OSError as error:
            raise SideError(f"cannot build an environment in {self._root}: {error.strerror or error}") from error

    def _hold(self, folder: Path) -> Environment | None:
        """Keep others from removing it until `close`, and note that it is used; ``None`` if it is not there.

        Raises:
            SideError: What is there was not built by this class.
        """
        lock = self._opened(folder.name)
        fcntl.flock(lock, fcntl.LOCK_SH)
        found = self._read(folder)
        if found is None:
            lock.close()
            if folder.exists():
                raise SideError(f"{folder}: not an environment that tfbench built; delete the folder")
            return None
        self._held.append(lock)
        os.utime(folder / _MADE)
        return found

    # What is there

    def every(self) -> list[Environment]:
        """All that are whole, the one that was used last first."""
        found = [self._read(folder) for folder in self._root.glob("[0-9a-f]*")] if self._root.is_dir() else []
        return sorted((one for one in found if one is not None), key=lambda one: -one.used)

    def prune(self, days: float) -> list[Environment]:
        """Remove those that nobody has used for so many days; returns them. What is in use stays."""
        removed = []
        for one in self.every():
            if time.time() - one.used < days * 86400:
                continue
            with self._opened(one.folder.name) as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                shutil.rmtree(one.folder)
                removed.append(one)
        return removed

    @staticmethod
    def _read(folder: Path) -> Environment | None:
        try:
            made = json.loads((folder / _MADE).read_text(encoding="utf-8"))
            return Environment(folder, tuple(made["request"]), made["python"], tuple(made["packages"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _opened(self, key: str) -> IO[str]:
        self._root.mkdir(parents=True, exist_ok=True)
        return (self._root / f"{key}{_LOCK}").open("a", encoding="utf-8")


def _install(half: Path, request: tuple[str, ...], interpreter: str, packages: list[str]) -> None:
    uv.run("venv", "--quiet", "--relocatable", "--allow-existing", "--python", interpreter, str(half))
    wanted = half / "requirements.txt"
    wanted.write_text("".join(f"{one}\n" for one in packages), encoding="utf-8")
    uv.run(
        "pip", "install", "--quiet", "--no-deps", "--compile-bytecode",
        "--python", str(half / "bin" / "python"), "--requirement", str(wanted),
    )  # fmt: skip
    made = {"request": request, "python": interpreters.version_of(interpreter), "packages": packages}
    (half / _MADE).write_text(json.dumps(made, indent=1), encoding="utf-8")


def _fits(request: Sequence[str], interpreter: str, version: str = "") -> bool:
    """Whether this Python would do, or one of this version; without an interpreter by name, uv looks for one."""
    try:
        return bool(
            uv.resolved(
                (*request, *NEEDED), "--python", interpreter, *(["--python-version", version] if version else [])
            )
        )
    except ResolveError:
        return False
