"""Notice which files of its side's source tree a process reads, and which native code it runs.

Linux reports each file that is opened below a watched folder (inotify), by Python, TensorFlow or any other
library. So it does not matter how a benchmark names or finds the file.
"""

from __future__ import annotations

import ctypes
import errno
import filecmp
import hashlib
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader

from tfbench.fs import DATA_FOLDER, file_digest
from tfbench.imports import PACKAGE, is_below, is_installed, module_files
from tfbench.model import JSON

_UNREAD = {".git", DATA_FOLDER, "__pycache__", ".pytest_cache", "site-packages"}
"""Folders without code or data of the tree. No side uses cached bytecode of its own files."""
_GENERATED = "__autograph_generated_file"
"""Start of the names of TensorFlow's modules for converted functions, whose sources count already."""
_OPENED, _OVERFLOW, _FOLDER = 0x20, 0x4000, 0x4000_0000
"""Bits of inotify: a file was opened, events were lost, the event is about a folder."""
_EVENT = struct.Struct("iIII")
_EXTENSION = ".so"


class OwnFiles:
    """The files of a source tree, as a process and what it starts use them. Paths are relative to the tree.

    Args:
        tree: Top folder of the side's source tree.
        replaced: The working tree that ``tree`` replaces on this side; ``""`` if it is the working tree.
        ignored: Modules and folders of the working tree that git ignores.
    """

    def __init__(self, tree: str, replaced: str = "", ignored: Iterable[str] = ()) -> None:
        self.tree = os.path.realpath(tree)
        self._ignored = frozenset(ignored)
        self._replaced = os.path.realpath(replaced) if replaced else ""
        self._folders: list[str] = []
        self._watched: dict[int, str] = {}
        self._inotify = -1
        self._opened: set[str] = set()
        self._knows = False
        """Whether no opened file has been missed."""
        self._places: dict[str, tuple[str, str]] = {}
        """Path -> its real path, and that relative to the tree or ``""``. Forked processes need not look again."""
        self._elsewhere: set[str] = set()
        """Paths of the files that Python has opened and that are not below the tree, see `watch_replaced`."""
        self.known: dict[str, object] = {}
        """Modules that were imported before `remember`, by name."""
        self._loaded: dict[str, str] = {}
        """What `loaded` returned then."""

    def anew(self) -> OwnFiles:
        """Return one of the same tree that has seen no file yet."""
        return OwnFiles(self.tree, self._replaced, self._ignored)

    def remember(self) -> None:
        """Look up what is loaded now. A forked process then looks up what it loads itself, and saves 50 ms."""
        self._loaded = self.loaded()
        self.known = dict(sys.modules)

    def watch(self) -> None:
        """Note from now on what is opened. A forked process that wants to note it must watch, too."""
        self.rest()
        if not self._folders:
            self._folders = [self.tree, *self._below(self.tree)]
            self._knows = True
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify, self._watched = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), {}
        for folder in self._folders:
            number = libc.inotify_add_watch(self._inotify, os.fsencode(folder), _OPENED)
            if number >= 0:
                self._watched[number] = folder
            elif ctypes.get_errno() != errno.ENOENT:  # beyond the system's limit of watched folders, among others
                self._knows = False

    def watch_replaced(self) -> None:
        """Note from now on which files of the replaced tree Python opens, until the process ends.

        This slows Python down, so a process that takes times must not call it.
        """

        def note(event: str, arguments: tuple[object, ...]) -> None:
            if event == "open" and isinstance(file := arguments[0], (str, bytes)):
                path = os.path.abspath(os.fsdecode(file))
                if is_below(path, self._replaced) and not is_below(path, self.tree):
                    self._elsewhere.add(path)

        if self._replaced:
            sys.addaudithook(note)

    def _below(self, folder: str) -> Iterator[str]:
        """Yield the folders below a folder that may have code or data of the tree."""
        for place, names, _ in os.walk(folder):
            names[:] = [name for name in names if name not in _UNREAD and self._is_part(os.path.join(place, name))]
            yield from (os.path.join(place, name) for name in names)

    def _is_part(self, folder: str) -> bool:
        environment = os.path.exists(os.path.join(folder, "pyvenv.cfg")) or is_installed(folder, self.tree)
        readable = not os.path.islink(folder) and os.access(folder, os.R_OK | os.X_OK)
        return readable and not environment and folder != PACKAGE

    def rest(self) -> None:
        """Stop noting."""
        if self._inotify >= 0:
            self._drain()
            os.close(self._inotify)
            self._inotify = -1

    def _drain(self) -> None:
        while True:
            try:
                events = os.read(self._inotify, 1 << 16)
            except BlockingIOError:
                return
            place = 0
            while place < len(events):
                number, mask, _, length = _EVENT.unpack_from(events, place)
                start = place + _EVENT.size
                place = start + length
                if mask & _OVERFLOW:
                    self._knows = False
                elif length and not mask & _FOLDER:
                    name = os.fsdecode(events[start:place].rstrip(b"\0"))
                    self._opened.add(os.path.relpath(os.path.join(self._watched[number], name), self.tree))

    def add(self, names: Iterable[str]) -> None:
        """Count files that another process has read for this one."""
        self._opened.update(names)

    def read(self) -> list[str] | None:
        """Return the files that were opened while watching, are imported or mapped; ``None`` if some may be missing."""
        if self._inotify >= 0:
            self._drain()
        return sorted(self._opened | {name for name in self.loaded().values() if name}) if self._knows else None

    def all_files(self) -> list[str]:
        """Return each file of the tree."""
        folders = [self.tree, *self._below(self.tree)]
        files = (entry for folder in folders for entry in os.scandir(folder) if entry.is_file())
        return sorted(os.path.relpath(entry.path, self.tree) for entry in files)

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Return file -> SHA-256 of its content, ``""`` for a file that cannot be read."""
        return {name: file_digest(os.path.join(self.tree, name)) for name in names}

    def installed(self) -> str:
        """Return a digest of what identifies the interpreter, and the modules and libraries from outside the tree.

        Two processes of one machine with the same digest have loaded the very same files: path, inode, size and time of
        change agree. Two environments never do, even if they hold the same packages.
        """
        seen = hashlib.sha256(f"{sys.version} {os.path.realpath(sys.executable)}".encode())
        for path in sorted(path for path, name in self.loaded().items() if not name):
            fact = (path, 0, 0, 0, 0)
            with suppress(OSError):
                status = os.stat(path)
                fact = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            seen.update(repr(fact).encode("utf-8", "surrogateescape"))
        return seen.hexdigest()[:16]

    def native(self) -> JSON:
        """Return what may differ between the sides unnoticed; empty without any.

        ``own``: native code of the tree that this process runs, and modules of the working tree that git ignores.
        ``foreign``: native code and modules of the working tree that it has loaded although ``tree`` replaces that,
        unless the tree has the same file. And each file that Python has opened there, if the tree has another content of it.
        ``compiled``: extensions from elsewhere that an import has compiled, as pyximport does in the user's home.
        """
        code, loaded = _mapped(), self.loaded()
        own, foreign = set(), set()
        for path, name in loaded.items():
            if name and (path in code or path.endswith(_EXTENSION) or (not self._replaced and self._is_ignored(name))):
                own.add(name)
        for path in {path for path, name in loaded.items() if not name} | self._elsewhere:
            if self._replaced and is_below(path, self._replaced) and not _is_apart(path, self._replaced):
                there = os.path.relpath(path, self._replaced)
                counterpart = os.path.join(self.tree, there)
                if not _same(path, counterpart) and (path in loaded or os.path.isfile(counterpart)):
                    foreign.add(there)
        found = {"own": own, "foreign": foreign, "compiled": set(self._compiled())}
        return {kind: sorted(names) for kind, names in found.items() if names}

    def _compiled(self) -> Iterator[str]:
        for name, file in module_files({}):
            spec = vars(sys.modules[name]).get("__spec__") if file.endswith(_EXTENSION) else None
            if spec is None or spec.loader is None or type(spec.loader) is ExtensionFileLoader:
                continue  # pyximport's loader is derived from it
            if not is_below(os.path.realpath(file), self.tree) and not is_installed(file, self.tree):
                yield file

    def _is_ignored(self, name: str) -> bool:
        folders = (name[:place] for place, character in enumerate(name) if character == os.sep)
        return name in self._ignored or any(folder in self._ignored for folder in folders)

    def loaded(self) -> dict[str, str]:
        """Return the modules and the mapped native code of this process: real path -> path in the tree, or ``""``."""
        files = _mapped() | {file for name, file in module_files(self.known) if not name.startswith(_GENERATED)}
        for file in files - self._places.keys():
            path = file if is_installed(file, self.tree) else os.path.realpath(file)
            own = is_below(path, self.tree) and not _is_apart(path, self.tree)
            # pytest makes modules of folders, too.
            self._places[file] = "" if os.path.isdir(path) else path, os.path.relpath(path, self.tree) if own else ""
        return self._loaded | {path: name for path, name in map(self._places.__getitem__, files) if path}


def _mapped() -> set[str]:
    """Return the files that this process has mapped as native code."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        fields = [line.rstrip("\n").split(maxsplit=5) for line in maps]
    files = {line[5].removesuffix(" (deleted)") for line in fields if len(line) == 6 and "x" in line[1]}
    return {file for file in files if file.startswith("/") and not file.startswith(("/memfd:", "/dev/"))}


def _is_apart(path: str, tree: str) -> bool:
    """Whether a file below a tree is no part of it: installed, tfbench's own, or made by tfbench."""
    made = DATA_FOLDER in os.path.relpath(path, tree).split(os.sep)
    return made or is_installed(path, tree) or is_below(path, PACKAGE)


def _same(path: str, other: str) -> bool:
    with suppress(OSError):
        return filecmp.cmp(path, other, shallow=False)
    return False
