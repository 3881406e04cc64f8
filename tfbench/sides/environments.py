"""Environments of sides: interpreters, uv, installed packages.

An environment is a folder, named by a digest of its packages with their versions and hashes, its interpreter and the
machine. It is created and removed atomically, so no run sees a part of one. A run that uses an environment holds a lock on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from platformdirs import user_cache_path

from tfbench.errors import ReportError, SideError
from tfbench.fs import atomic_dir, file_digest, locked, remove_dir, remove_half_dirs, scratch_dir
from tfbench.model.formats import read_file
from tfbench.untrusted import parse_json

# Find the Python interpreters of this machine


VERSIONS = ("3.10", "3.11", "3.12", "3.13")
"""Python versions that workers run on."""


def interpreters() -> list[str]:
    """Return the interpreters that workers run on: the current one first, then the newest first."""
    paths = [getattr(sys, "_base_executable", sys.executable)]
    folders = [Path(os.path.expanduser(folder)) for folder in ("~/.pyenv/versions", "~/.local/share/uv/python")]
    for version in reversed(VERSIONS):
        paths += [path] if (path := shutil.which(f"python{version}")) else []
        paths += [str(path) for folder in folders for path in sorted(folder.glob(f"*{version}*/bin/python{version}"))]
    return [path for path in dict.fromkeys(map(os.path.realpath, paths)) if minor(version_of(path)) in VERSIONS]


def version_of(interpreter: str) -> str:
    """Return an interpreter's version, such as ``3.11.7``.

    Return ``""`` for the names of pyenv that start no interpreter, and for other programs.
    """
    command = [interpreter, "-c", "import platform; print(platform.python_version())"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    version = done.stdout.strip()
    return version if re.fullmatch(r"\d+\.\d+\S*", version) else ""


@cache
def installed(interpreter: str) -> Mapping[str, str]:
    """Return normalized name -> version of the installed distributions of an interpreter, read once.

    Raises `SideError` if the interpreter does not start.
    """
    code = (
        "from importlib.metadata import distributions as d; print(*{f'{x.name}=={x.version}' for x in d()}, sep='\\n')"
    )
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideError(f"{interpreter} does not list its packages: {done.stderr.strip()[-500:]}")
    pairs = (line.split("==", 1) for line in sorted(done.stdout.split()))
    return {canonicalize_name(name): version for name, version in pairs}


REQUIREMENTS = (
    r".*\.lock|pylock(\..+)?\.toml|.*(requirements|constraints).*\.(txt|in)|(environment|conda-lock).*\.ya?ml"
)
"""Pattern of the names of files that list packages with versions."""


def other_requirements(there: Path, here: Path) -> list[str]:
    """Return the files directly in two folders that name packages and differ, or that only one of them has."""
    trees = [root for root in (there, here) if root.is_dir()]
    names = {file.name for root in trees for file in root.iterdir() if re.fullmatch(REQUIREMENTS, file.name)}
    return sorted(name for name in names if file_digest(there / name) != file_digest(here / name))


_HARNESS = ("pytest", "pluggy", "iniconfig", "pytest-benchmark", "pytest-tfbench")
"""Distributions that each measuring process loads and no step runs."""


def distributions_of(modules: Iterable[str]) -> dict[str, str]:
    """Return normalized name -> version of the distributions of this process that have these top-level modules.

    Those that were installed from a folder are left out: their code belongs to a source tree.
    """
    owners = metadata.packages_distributions()
    found: dict[str, str] = {}
    for name in {owner for module in modules for owner in owners.get(module, ())}:
        distribution = metadata.distribution(name)
        origin = parse_json(distribution.read_text("direct_url.json") or "{}")
        if canonicalize_name(name) not in _HARNESS and not (isinstance(origin, dict) and "dir_info" in origin):
            found[canonicalize_name(name)] = distribution.version
    return found


def minor(version: str) -> str:
    """Return ``3.11`` for ``3.11.7``: extension modules are built for a minor version."""
    return ".".join(version.split(".")[:2])


# Ask uv for packages and releases, and turn its failures into one-line errors


_OFFLINE = re.compile(r"dns error|failed to fetch|could not connect|error sending request|offline", re.IGNORECASE)
_SYSTEM_CERTIFICATES = ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
"""Variables by which uv trusts the certificates that the system trusts, as pip does; the second is of older versions."""


class ResolveError(SideError):
    """uv failed; ``offline`` tells whether it did for lack of a network."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.offline = bool(_OFFLINE.search(text))


def run(*arguments: str, given: str = "") -> str:
    """Run uv with ``given`` as its standard input; return its output.

    Raises `ResolveError` if uv fails, and `SideError` if it is not installed.
    """
    # uv must see neither the environment that it runs in nor the packages of this process.
    env = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "CONDA_PREFIX")}
    command = [_program(), *arguments, "--color=never", "--no-progress"]
    done = subprocess.run(command, input=given, env=env, capture_output=True, text=True, check=False)
    if done.returncode and "invalid peer certificate" in done.stderr:  # a network may have a certificate of its own
        env = dict.fromkeys(_SYSTEM_CERTIFICATES, "true") | env
        done = subprocess.run(command, input=given, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        # uv draws its reasons as a tree over several lines.
        reasons = " ".join(re.sub(r"[×╰─▶│├]+", " ", done.stderr).split())
        raise ResolveError(reasons or "uv failed without a message")
    return done.stdout


def locked_requirements(requirements: Iterable[str], *options: str) -> list[str]:
    """Resolve requirements to every package they need, as lines such as ``name==version --hash=sha256:… --hash=sha256:…``.

    Only wheels count. A line has the hashes of all files of the release, so that an environment that is installed from it has those files.
    Raises `ResolveError` if no set of releases fits.
    """
    given = "".join(f"{requirement}\n" for requirement in requirements)
    fixed = ("--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")  # tfbench never builds from source
    text = run("pip", "compile", "-", "--generate-hashes", *fixed, *options, given=given)
    return [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines()]


def between(package: str, first: str, last: str) -> list[str]:
    """Return every release from ``first`` to ``last``, both included, without withdrawn ones.

    Prereleases are included if both ends are prereleases, such as two nightly builds. ``first`` may be newer than
    ``last``. The releases are in the order from ``first`` to ``last``.
    Raises `SideError` if the package index cannot be reached.
    """
    low, high = sorted((first, last), key=Version)
    versions = {low, high}
    early = "allow" if all(Version(end).is_prerelease for end in versions) else "disallow"
    for python in VERSIONS:  # a release may have wheels for one of them alone
        under: str | None = high
        while under:
            under = _release(f"{package}>{low},<{under}", "--python-version", python, early=early)
            versions |= {under} if under else set()
    return sorted(versions, key=Version, reverse=Version(first) > Version(last))


def last_patches(versions: list[str]) -> list[str]:
    """Keep the last release of each minor version, and both ends, in the given order."""
    kept = {(parsed.major, parsed.minor): text for text in sorted(versions, key=Version) for parsed in [Version(text)]}
    return [text for text in versions if text in (*kept.values(), versions[0], versions[-1])]


def _release(requirement: str, *options: str, early: str = "disallow") -> str | None:
    """Return the version that uv selects, by default the highest, or ``None`` if no release fits.

    ``early`` tells uv what to do with prereleases. Raises `SideError` if uv cannot tell.
    """
    name = canonicalize_name(re.split(r"[<>\[]", requirement)[0])  # as uv prints it
    here = ("--python", sys.executable)  # without an interpreter, uv searches for one
    try:
        listed = locked_requirements([requirement], "--no-deps", "--prerelease", early, *here, *options)
    except ResolveError as refused:
        if refused.offline:
            raise SideError(f"{name}: its releases cannot be listed without a network") from refused
        if "No solution found" not in str(refused):
            raise SideError(f"{name}: its releases cannot be listed: {refused}") from refused
        return None
    pairs = (line.partition(" ")[0].partition("==") for line in listed)
    return next((version for package, _, version in pairs if package == name), None)


def _program() -> str:
    """Return the path of uv: the one installed with tfbench, or the one on the path."""
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return str(find_uv_bin())
    if uv := shutil.which("uv"):
        return uv
    raise SideError("uv, which installs other versions, is not installed; pip install uv")


# Build and keep environments with other packages, which uv resolves and installs


NEEDED = ("numpy", "pytest>=8.2,<10")
"""Requirements of workers, besides TensorFlow."""
_NUMPY_1 = (2, 12)
"""First TensorFlow whose wheels name an upper bound of NumPy. Older ones install with NumPy 2 and crash on import."""
_MADE, _LOCK = "tfbench.json", ".lock"


class _Made(msgspec.Struct, frozen=True):
    """What the folder of an environment says of it."""

    request: tuple[str, ...]
    """Requirements that it was built for."""
    python: str
    packages: tuple[str, ...]
    """Every installed package with its version."""


class Environment(_Made, frozen=True, kw_only=True):
    """A complete environment."""

    folder: Path

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
    """Return the folder of this user's environments, which all projects share.

    A user without a home, as in containers, has one that this process removes.
    """
    with suppress(RuntimeError):  # no HOME, and no entry in passwd
        if (folder := user_cache_path("tfbench", appauthor=False)).is_absolute():
            return folder / "environments"
    return scratch_dir() / "environments"


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
        return interpreters()

    def prefer(self, requests: Sequence[Sequence[str]]) -> None:
        """Prefer a Python that has wheels for all requests, so that environments differ only in what was requested."""
        self._tell("looking for a Python that has wheels for all of them")
        known = self._interpreters
        first = next((path for path in known if all(_fits(request, path) for request in requests)), known[0])
        self._interpreters = [first, *(path for path in known if path != first)]

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
                self._hold(environment.folder)
                for environment in self.every()
                if environment.request == request and python in ("", minor(environment.python))
            )
            if held := next(filter(None, fitting), None):
                return held
            text = "no network, and no kept environment has these requirements"
            raise SideError(f"{names}: {text} ({refused})") from None
        key = hashlib.sha256("\n".join([*lock, interpreter, platform.platform()]).encode()).hexdigest()[:16]
        folder = self._root / key
        # Look before locking to build: any user of the environment, this run included, blocks that lock.
        while (built := self._hold(folder)) is None:
            with locked(self._lock(folder)):
                if not (folder / _MADE).exists():
                    self._build(folder, request, interpreter, lock)
        return built

    def _resolve(self, request: tuple[str, ...], python: str) -> tuple[str, list[str]]:
        """Return the first interpreter that has wheels for everything, and every package with its version and hashes."""
        first = None
        allowed = [path for path in self._interpreters if not python or minor(version_of(path)) == python]
        if not allowed:
            raise SideError(f"no Python {python} on this machine; install it, for example with uv python install")
        for interpreter in allowed:
            try:
                return interpreter, _locked(request, interpreter)
            except ResolveError as refused:
                if refused.offline:
                    raise
                first = first or refused
        fitting = [version for version in VERSIONS if _fits(request, allowed[0], version)]
        fix = f"; install Python {' or '.join(fitting)}, which it has wheels for" if fitting else ""
        raise SideError(f"{', '.join(request)}: {first}{fix}")

    def _build(self, folder: Path, request: tuple[str, ...], interpreter: str, lock: list[str]) -> None:
        self._tell(f"building an environment with {', '.join(request)} ({len(lock)} packages)")
        packages = [line.partition(" ")[0] for line in lock]
        try:
            remove_half_dirs(self._root)
            with atomic_dir(folder) as half:
                run("venv", "--quiet", "--relocatable", "--allow-existing", "--python", interpreter, str(half))
                requirements = half / "requirements.txt"
                # By == uv would install a local version, which the lock does not have.
                exact = "".join(f"{line.replace('==', '===', 1)}\n" for line in lock)
                requirements.write_text(exact, encoding="utf-8")
                run(
                    "pip", "install", "--quiet", "--no-deps", "--compile-bytecode",
                    "--python", str(half / "bin" / "python"), "--requirement", str(requirements),
                )  # fmt: skip
                made = {"request": request, "python": version_of(interpreter), "packages": packages}
                (half / _MADE).write_text(json.dumps(made, indent=1), encoding="utf-8")
        except OSError as error:
            raise SideError(f"cannot build an environment in {self._root}: {error.strerror or error}") from error

    def _hold(self, folder: Path) -> Environment | None:
        """Lock an environment against removal until the end, and record its use. ``None`` if it does not exist."""
        lock = locked(self._lock(folder), shared=True)
        if environment := self._read(folder):
            self.enter_context(lock)
            os.utime(folder / _MADE)
            return environment
        lock.close()
        if folder.exists():
            raise SideError(f"{folder}: tfbench did not build this environment; delete the folder")
        return None

    def every(self) -> list[Environment]:
        """Return all complete environments, the last used first."""
        environments = filter(None, map(self._read, self._root.glob("[0-9a-f]*")))
        return sorted(environments, key=lambda environment: environment.used, reverse=True)

    def prune(self, days: float) -> list[Environment]:
        """Remove and return the environments unused for this many days. Those in use stay."""
        removed = []
        remove_half_dirs(self._root)
        for environment in [known for known in self.every() if time.time() - known.used >= days * 86400]:
            with suppress(BlockingIOError), locked(lock := self._lock(environment.folder), wait=False):
                remove_dir(environment.folder)
                lock.unlink()
                removed.append(environment)
        return removed

    @staticmethod
    def _read(folder: Path) -> Environment | None:
        with suppress(ReportError):
            made = read_file(folder / _MADE, _Made)
            return Environment(**msgspec.structs.asdict(made), folder=folder)
        return None

    def _lock(self, folder: Path) -> Path:
        return self._root / f"{folder.name}{_LOCK}"


def _fits(request: Sequence[str], interpreter: str, version: str = "") -> bool:
    """Whether the requirements have wheels for this Python, or for another version that it resolves for."""
    options = ["--python", interpreter, *(["--python-version", version] if version else [])]
    try:
        return bool(locked_requirements((*request, *_needed(request)), *options))
    except ResolveError:
        return False


def _locked(request: Sequence[str], interpreter: str) -> list[str]:
    """Resolve the requirements with what workers need. Local versions such as 1.0+cpu count for 1.0 only without a 1.0."""
    exact, needed = [requirement.replace("==", "===") for requirement in request], _needed(request)
    try:
        lock = locked_requirements((*exact, *needed), "--python", interpreter)
    except ResolveError as refused:
        if refused.offline:
            raise
        lock = locked_requirements((*request, *needed), "--python", interpreter)
    _require_pinned(request, lock)
    return lock


def _require_pinned(request: Sequence[str], lock: Sequence[str]) -> None:
    """Check that the lock has the requested versions. Raises `SideError` if uv's settings override one."""
    found = dict(line.partition(" ")[0].partition("==")[::2] for line in lock)
    for wanted in map(Requirement, request):
        version = found.get(canonicalize_name(wanted.name), "")
        if not version or not wanted.specifier.contains(version, prereleases=True):
            fix = "remove the override of it from uv's settings (UV_OVERRIDE, uv.toml, [tool.uv] in pyproject.toml)"
            raise SideError(f"{wanted}: uv takes {version or 'another source'} instead; {fix}")


def _needed(request: Sequence[str]) -> tuple[str, ...]:
    """Return what workers need beside these requirements."""
    matches = (re.fullmatch(r"tensorflow(?:-cpu)?==(\d+)\.(\d+)\S*", requirement) for requirement in request)
    old = any(match is not None and (int(match[1]), int(match[2])) < _NUMPY_1 for match in matches)
    return (*NEEDED, "numpy<2") if old else NEEDED
