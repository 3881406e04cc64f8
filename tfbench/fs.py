"""Share files and folders between processes: atomic writes, locks, and the path of this package."""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from tfbench.errors import ReportError, SideError, UsageError
from tfbench.untrusted import brief

DATA_FOLDER = ".tfbench"
"""Folder below pytest's root for everything that tfbench writes into a project, and no part of its source."""
LARGEST = 256 << 20
"""Maximum bytes of a file that the user names. A baseline of 300 cases has 40 million."""
_HALF, _SCRATCH = ".half-", "tfbench-scratch-"
"""Prefixes of files and folders that belong to a running process."""
_NO_LINK = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Opens no symbolic link, and waits for no other end of a pipe. Windows has neither."""


def project_root() -> Path:
    """Return the nearest folder with data of tfbench, from the current one upwards, or the current one if none has data."""
    folders = Path(), *Path.cwd().parents
    return next((folder for folder in folders if Path(folder, DATA_FOLDER).is_dir()), Path())


def require_linux() -> None:
    """Refuse to measure on another system: none has all of /proc, pinned processes, prctl and waitid.

    Raises `UsageError` if this is not Linux.
    """
    if sys.platform != "linux":
        raise UsageError(
            f"benchmarks run on Linux only, and this system is {sys.platform}; use a Linux machine, a Linux container or WSL 2 "
            "(reports can be read everywhere)"
        )


def shortage(error: BaseException) -> str:
    """Return what to do if a process lacks files, processes or memory; ``""`` for another error."""
    code = errno.ENOMEM if isinstance(error, MemoryError) else error.errno if isinstance(error, OSError) else None
    if code == errno.EMFILE:
        limit = os.sysconf("SC_OPEN_MAX")  # the module resource is a file, which could not be opened now
        return f"the limit of {limit} open files is too low; raise it with ulimit -n {max(1024, 2 * limit)}"
    if code == errno.ENOMEM:
        return "too little memory is left for tfbench; free some, or raise the limit (ulimit -v, or a container's)"
    if code == errno.EAGAIN or (isinstance(error, RuntimeError) and str(error) == "can't start new thread"):
        return "no more processes and threads can be started; raise their limit (ulimit -u, or a container's)"
    return ""


@contextmanager
def atomic_dir(place: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to fill, which becomes ``place`` on success. On failure it is removed, and ``place`` unchanged.

    Raises `OSError` if the folder cannot be created, or ``place`` exists by the end and is not to be replaced.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with _half_dir(place.parent) as folder:
        half = Path(folder, "new")
        half.mkdir()
        yield half
        if replace and place.exists():
            place.rename(Path(folder, "old"))
        half.rename(place)


def hold(file: IO[Any] | int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file or folder until it is closed.

    Raises:
        BlockingIOError: Another process has the lock, and this one does not wait.
        SideError: This system has no such locks. Reports can be read there, and no benchmark can run.
    """
    try:
        import fcntl
    except ImportError:
        raise SideError("this system has no locks on files; use Linux") from None
    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def _locked(prefix: str, parent: str | Path, *, folder: bool) -> tuple[Path, int]:
    """Make a folder or a file that `_abandoned` spares as long as the descriptor is open; return both."""
    while True:
        descriptor, name = (
            (-1, tempfile.mkdtemp(prefix=prefix, dir=parent)) if folder else tempfile.mkstemp(prefix=prefix, dir=parent)
        )
        with suppress(FileNotFoundError):  # another process has removed it before it was locked: make the next
            descriptor = os.open(name, os.O_RDONLY) if folder else descriptor
            with suppress(OSError, SideError):  # without locks, no other process can remove it
                hold(descriptor)
            if os.path.exists(name):
                return Path(name), descriptor
            os.close(descriptor)


@contextmanager
def _half_dir(parent: Path) -> Iterator[Path]:
    folder, descriptor = _locked(_HALF, parent, folder=True)
    try:
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def remove_dir(place: Path) -> None:
    """Remove a folder such that no process ever sees a part of it. `remove_half_dirs` completes a killed removal.

    Raises `OSError` if the folder does not exist, or its parent cannot be written.
    """
    with _half_dir(place.parent) as folder:
        place.rename(Path(folder, "old"))


def _abandoned(prefix: str, parent: str | Path, is_kind: Callable[[int], bool]) -> Iterator[Path]:
    """Yield what this user's processes that were killed have left, each locked until the next one.

    ``is_kind`` is `stat.S_ISDIR` for folders, or `stat.S_ISREG` for files.
    """
    for place in sorted(Path(parent).glob(f"{prefix}*")):
        with ExitStack() as stack, suppress(OSError, SideError):  # it is gone, locked, or cannot be opened or locked
            descriptor = os.open(place, _NO_LINK)
            stack.callback(os.close, descriptor)
            hold(descriptor, wait=False)
            status = os.fstat(descriptor)
            if status.st_uid == os.getuid() and is_kind(status.st_mode):
                yield place


def remove_half_dirs(parent: Path) -> None:
    """Remove the folders of `atomic_dir` and `remove_dir` that killed processes have left here."""
    for half in _abandoned(_HALF, parent, stat.S_ISDIR):
        shutil.rmtree(half, ignore_errors=True)


@cache
def scratch_dir() -> Path:
    """Return the temporary folder of this process, which is removed at its exit; see `abandoned_scratch_dirs`.

    Raises `OSError` if the folder cannot be created.
    """
    folder, _ = _locked(_SCRATCH, tempfile.gettempdir(), folder=True)  # locked until the process ends
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child runs the exit functions as well
        shutil.rmtree(folder, ignore_errors=True)


def abandoned_scratch_dirs() -> Iterator[Path]:
    """Yield the scratch folders of this user's processes that were killed, each locked until the next one."""
    yield from _abandoned(_SCRATCH, tempfile.gettempdir(), stat.S_ISDIR)


def locked(path: Path, **how: bool) -> IO[str]:
    """Open a file and hold a lock on it, see `hold`, until it is closed. The lock of a process that has died is free.

    Who holds an exclusive lock may remove the file. Raises as `hold`, and `OSError` if the file cannot be created.
    """
    while True:
        with ExitStack() as stack, suppress(FileNotFoundError):  # it was removed while this process waited
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("a", encoding="utf-8"))
            hold(file, **how)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                stack.pop_all()
                return file


def try_lock(path: Path) -> IO[str] | None:
    """Take an exclusive lock until the returned file is closed; ``None`` if another process has it.

    Raises `OSError` if the file cannot be created.
    """
    with suppress(BlockingIOError):
        return locked(path, wait=False)
    return None


@cache
def isolated_package_dir() -> str:
    """Return a folder with this package alone, because the package's own may hold a TensorFlow of another side."""
    folder = scratch_dir() / "package"
    folder.mkdir()
    package = Path(__file__).resolve().parent
    (folder / package.name).symlink_to(package)
    return str(folder)


def python_path(root: Path, given: str) -> str:
    """Return ``PYTHONPATH`` for a process in another source tree: this package, then the ``given`` entries below root."""
    entries = (os.path.join(root, entry) for entry in given.split(os.pathsep) if entry)
    return os.pathsep.join([isolated_package_dir(), *entries])


_OF_A_REPOSITORY = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_DIR", "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
}  # fmt: skip
"""The list of ``git rev-parse --local-env-vars``, without the settings of ``git -c``, which submodules inherit as well."""
_OF_PATTERNS = {"GIT_GLOB_PATHSPECS", "GIT_ICASE_PATHSPECS", "GIT_LITERAL_PATHSPECS", "GIT_NOGLOB_PATHSPECS"}
"""Variables that change what a pattern of files means to git."""


def without_repository(variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that git sets in hooks, ``rebase --exec`` and aliases.

    They lead git in any folder to the repository of the hook, and make its current folder the top of the working tree.
    Those of patterns are left out as well, because git would find no file of code by them.
    """
    return {name: value for name, value in variables.items() if name not in _OF_A_REPOSITORY | _OF_PATTERNS}


def read_at_most(file: IO[bytes], limit: int) -> bytes:
    """Return the first bytes of a file. It takes the memory of those only, whereas ``file.read(limit)`` takes the limit."""
    content = bytearray()
    while len(content) < limit and (part := file.read(min(limit - len(content), 1 << 20))):
        content += part
    return bytes(content)


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return a digest of a file's content, ``""`` if there is no file or it cannot be read."""
    digest = hashlib.sha256()
    try:
        if not os.path.isfile(path):
            return ""  # opening a pipe would wait for its writer
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def read_text(path: Path) -> str:
    """Return the text of a file that the user named.

    Raises `ReportError` if the file cannot be read, is not UTF-8, is larger than `LARGEST`, or is a pipe with a name.
    """
    try:
        if path.is_fifo() and os.path.exists(os.path.realpath(path)):  # a pipe of a shell, as of <(…), has no name
            raise ReportError(f"{brief(path)} is a named pipe, which would be waited for; remove it, or name a file")
        with path.open("rb") as file:
            content = read_at_most(file, LARGEST + 1)
        if len(content) > LARGEST:
            raise ReportError(f"{brief(path)} is larger than {LARGEST >> 20} MiB")
        return content.decode("utf-8-sig")  # with the byte-order mark that editors on Windows write, or without
    except UnicodeDecodeError:
        raise ReportError(f"{brief(path)} is not UTF-8 text; unpack it, or save it as UTF-8") from None
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        raise ReportError(f"{brief(path)} cannot be read: {brief(getattr(error, 'strerror', None) or error)}") from None


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a file atomically: no reader sees a part of ``text``, and on failure ``path`` stays unchanged.

    Half a character, as in names of files that are not UTF-8, becomes ``?``. Files that killed processes have left
    half-written in the same folder are removed. ``text`` may come in pieces.
    Raises `OSError` if the folder cannot be created or written, or ``path`` is a folder.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder; name a file in it", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    for half in _abandoned(_HALF, path.parent, stat.S_ISREG):
        half.unlink(missing_ok=True)
    try:
        scratch, descriptor = _locked(_HALF, path.parent, folder=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(scratch, 0o644)
            if os.name != "nt":
                os.replace(scratch, path)  # while it is locked
        if os.name == "nt":  # has no such locks, and replaces no open file
            os.replace(scratch, path)
    except BaseException as error:
        scratch.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:  # that of a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


_OWN = re.compile(rb'"schema": ?"tfbench-|content="tfbench"|\*\*tfbench: |<!-- tfbench -->|\| case \|')
"""What the start of each output has: JSON, pages, Markdown and its tables."""


def _is_foreign(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return bool(start := file.read(4096)) and not _OWN.search(start)
    return False


def check_outputs(files: Mapping[str, str | Path | None]) -> None:
    """Check the options that write files: each its own one, none ``-``, and none a file that tfbench has not written.

    Raises `UsageError` if one is unusable.
    """
    taken: dict[Path, str] = {}
    for option, path in files.items():
        if str(path) == "-":
            raise UsageError(f"{option} writes a file, and - is none; name one")
        if path and (first := taken.setdefault(Path(path).resolve(), option)) != option:
            raise UsageError(f"{first} and {option} both write {brief(path)}; name two files")
        if path and Path(path).is_file() and _is_foreign(Path(path)):
            raise UsageError(f"{option} {brief(path)}: tfbench has not written this file; remove it, or name another")
