"""Build and keep environments with other packages, which uv resolves and installs.

An environment is a folder, named by a digest of its packages with their versions and hashes, its interpreter and the
machine. It is created and removed atomically, so no run sees a part of one. A run that uses an environment holds a lock on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from platformdirs import user_cache_path

from tfbench.errors import ReportError, SideError
from tfbench.fs import atomic_dir, hold, locked, read_text, remove_dir, remove_half_dirs
from tfbench.sides import interpreters, uv
from tfbench.sides.uv import ResolveError
from tfbench.untrusted import a_list, a_text, an_object, parse_json

NEEDED = ("numpy", "pytest>=8.2,<10")
"""Requirements of workers, besides TensorFlow."""
_NUMPY_1 = (2, 12)
"""First TensorFlow whose wheels name an upper bound of NumPy. Older ones install with NumPy 2 and crash on import."""
_MADE, _LOCK = "tfbench.json", ".lock"
_UNFIT = re.compile(r"(?i)no (?:usable )?wheels?|Python requirement|Python version|requires Python|python ABI")
_UNKNOWN = re.compile(r"Because ([\w.\-]+) was not found in the package registry")
_ABSENT = re.compile(r"there is no version of ([\w.\-\[\]]+)==(\S+?)[ ,]")


@dataclass(frozen=True)
class Environment:
    """A complete environment."""

    folder: Path
    request: tuple[str, ...]
    """Requirements that it was built for."""
    python: str
    packages: tuple[str, ...]
    """Every installed package with its version."""

    @property
    def executable(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def used(self) -> float:
        """Time of the last use, in seconds since 1970."""
        return (self.folder / _MADE).stat().st_mtime

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(file.lstat().st_size for file in self.folder.rglob("*") if not file.is_dir())


def kept() -> Path:
    """Return the folder of this user's environments, which all projects share."""
    return user_cache_path("tfbench", appauthor=False) / "environments"


class Environments(ExitStack):
    """The environments of one folder. To close it releases its locks, so that other runs may remove environments.

    ``tell`` is called with each line of progress.
    """

    def __init__(self, root: Path, tell: Callable[[str], None] = lambda text: None) -> None:
        super().__init__()
        self._root = root
        self._tell = tell

    @cached_property
    def _interpreters(self) -> list[str]:
        """Pythons to build with, the preferred one first."""
        return interpreters.interpreters()

    def prefer(self, requests: Sequence[Sequence[str]], version: str = "") -> None:
        """Prefer a Python that has wheels for all requests, so that environments differ only in what was requested.

        Args:
            version: Minor version to use exclusively, such as ``3.11``.

        Raises:
            SideError: This machine has no Python of this version.
        """
        minors = {path: interpreters.minor(interpreters.version_of(path)) for path in self._interpreters}
        if not (found := [path for path, minor in minors.items() if version in ("", minor)]):
            raise SideError(f"no Python {version} on this machine; install it, for example with uv python install")
        self._tell("looking for a Python that has wheels for all of them")
        first = next((path for path in found if all(_fits(request, path) for request in requests)), found[0])
        self._interpreters = [first, *(path for path in found if path != first)]

    def get(self, request: Sequence[str], python: str = "") -> Environment:
        """Return an environment with these requirements, and build it if needed.

        Args:
            request: Requirements such as ``tensorflow==2.20.0``.
            python: Minor version of its Python, such as ``3.10``; by default the preferred one that has wheels.

        Raises:
            SideError: The version does not exist or has no wheel for these Pythons, this machine lacks ``python``, the
                disk is full, or the network is missing and no kept environment fits.
        """
        request = tuple(sorted(request))
        names = ", ".join(request)
        self._tell(f"resolving {names}")
        try:
            interpreter, lock = self._resolve(request, python)
        except ResolveError as refused:
            if not refused.offline:
                raise
            fitting = (
                self._hold(one.folder) for one in self.every() if one.request == request and _runs(one.python, python)
            )
            if held := next(filter(None, fitting), None):
                return held
            text = "no network, and no kept environment has these requirements"
            raise SideError(f"{names}: {text} ({refused})") from None
        key = hashlib.sha256("\n".join([*lock, interpreter, platform.platform()]).encode()).hexdigest()[:16]
        folder = self._root / key
        # Look before locking to build: any user of the environment, this run included, blocks that lock.
        while (found := self._hold(folder)) is None:
            with locked(self._root / f"{key}{_LOCK}"):
                if not (folder / _MADE).exists():
                    self._build(folder, request, interpreter, lock)
        return found

    def _resolve(self, request: tuple[str, ...], python: str) -> tuple[str, list[str]]:
        """Return the first interpreter that has wheels for everything, and every package with its version and hashes."""
        refusals = []
        allowed = [one for one in self._interpreters if not python or _runs(interpreters.version_of(one), python)]
        if not allowed:
            raise SideError(f"no Python {python} on this machine; install it, for example with uv python install")
        for interpreter in allowed:
            try:
                return interpreter, uv.locked((*request, *_needed(request)), "--python", interpreter)
            except ResolveError as refused:
                if refused.offline or refused.full:
                    raise
                refusals.append(refused)
        first = str(refusals[0])
        if unknown := _UNKNOWN.search(first):
            raise SideError(f"{unknown[1]}: no such package in the index")
        if absent := _ABSENT.search(first):
            found = uv.nearest(absent[1], absent[2])
            fix = f"; the nearest are {' and '.join(found)}" if found else ""
            raise SideError(f"{absent[1]} has no version {absent[2]}{fix}")
        if _UNFIT.search(first):
            fitting = [python for python in interpreters.VERSIONS if _fits(request, self._interpreters[0], python)]
            fix = f"install Python {' or '.join(fitting)}" if fitting else "no Python that tfbench supports has them"
            raise SideError(f"{', '.join(request)}: no wheels for the Pythons of this machine; {fix}")
        raise SideError(f"{', '.join(request)}: {first}")

    def _build(self, folder: Path, request: tuple[str, ...], interpreter: str, lock: list[str]) -> None:
        self._tell(f"building an environment with {', '.join(request)} ({len(lock)} packages)")
        packages = [line.partition(" ")[0] for line in lock]
        try:
            remove_half_dirs(self._root)
            with atomic_dir(folder) as half:
                uv.run("venv", "--quiet", "--relocatable", "--allow-existing", "--python", interpreter, str(half))
                requirements = half / "requirements.txt"
                requirements.write_text("".join(f"{line}\n" for line in lock), encoding="utf-8")
                uv.run(
                    "pip", "install", "--quiet", "--no-deps", "--compile-bytecode",
                    "--python", str(half / "bin" / "python"), "--requirement", str(requirements),
                )  # fmt: skip
                made = {"request": request, "python": interpreters.version_of(interpreter), "packages": packages}
                (half / _MADE).write_text(json.dumps(made, indent=1), encoding="utf-8")
        except ResolveError as refused:
            if not refused.full:
                raise
            text = f"no space left in {self._root} for {', '.join(request)}; run tfbench envs prune"
            raise SideError(text) from None
        except OSError as error:
            raise SideError(f"cannot build an environment in {self._root}: {error.strerror or error}") from error

    def _hold(self, folder: Path) -> Environment | None:
        """Lock an environment against removal until the end, and record its use. ``None`` if it does not exist."""
        lock = self._opened(folder.name)
        hold(lock, shared=True)
        if found := self._read(folder):
            self.enter_context(lock)
            os.utime(folder / _MADE)
            return found
        lock.close()
        if folder.exists():
            raise SideError(f"{folder}: tfbench did not build this environment; delete the folder")
        return None

    def every(self) -> list[Environment]:
        """Return all complete environments, the last used first."""
        found = filter(None, map(self._read, self._root.glob("[0-9a-f]*")))
        return sorted(found, key=lambda one: one.used, reverse=True)

    def prune(self, days: float) -> list[Environment]:
        """Remove and return the environments unused for this many days. Those in use stay."""
        removed = []
        remove_half_dirs(self._root)
        for one in [one for one in self.every() if time.time() - one.used >= days * 86400]:
            with self._opened(one.folder.name) as lock:
                try:
                    hold(lock, wait=False)
                except OSError:
                    continue
                remove_dir(one.folder)
                removed.append(one)
        return removed

    @staticmethod
    def _read(folder: Path) -> Environment | None:
        try:
            made = an_object(parse_json(read_text(folder / _MADE)), "the content")
            request, packages = (tuple(map(str, a_list(made[name], name))) for name in ("request", "packages"))
            return Environment(folder, request, a_text(made["python"], "python"), packages)
        except (ReportError, ValueError, KeyError):
            return None

    def _opened(self, key: str) -> IO[str]:
        self._root.mkdir(parents=True, exist_ok=True)
        return (self._root / f"{key}{_LOCK}").open("a", encoding="utf-8")


def _fits(request: Sequence[str], interpreter: str, version: str = "") -> bool:
    """Whether the requirements have wheels for this Python, or for another version that it resolves for."""
    options = ["--python", interpreter, *(["--python-version", version] if version else [])]
    try:
        return bool(uv.resolved((*request, *_needed(request)), *options))
    except ResolveError:
        return False


def _runs(version: str, minor: str) -> bool:
    """Whether a Python has this minor version. Every Python has the minor version ``""``."""
    return minor in ("", interpreters.minor(version))


def _needed(request: Sequence[str]) -> tuple[str, ...]:
    """Return what workers need beside these requirements."""
    found = (re.fullmatch(r"tensorflow(?:-cpu)?==(\d+)\.(\d+)\S*", one) for one in request)
    old = any(one is not None and (int(one[1]), int(one[2])) < _NUMPY_1 for one in found)
    return (*NEEDED, "numpy<2") if old else NEEDED
