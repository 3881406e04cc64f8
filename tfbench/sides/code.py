"""Tell which code a side races: its commit, and a digest of its source tree."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from tfbench.errors import SideError
from tfbench.sides.source_tree import CODE, Snapshot, code_digest, commit_of, tree_of

SOURCES = "sources:"
"""Prefix of a tree that is a digest of sources, because git does not know the folder."""


def working_code(root: Path) -> Snapshot:
    """Return the code of a working tree: its `code_digest`, else a digest of its sources, which no commit belongs to."""
    try:
        tree = code_digest(root)
    except SideError:
        return Snapshot(SOURCES + _sources_digest(root), "", dirty=False)
    try:
        return Snapshot(tree, commit_of(root, "HEAD"), tree != tree_of(root, "HEAD"))
    except SideError:  # a repository without a commit
        return Snapshot(tree, "", dirty=True)


def code_of(root: Path, revision: str) -> Snapshot:
    """Return the code of a commit, branch, tag or tree.

    Raises:
        SideError: The revision or the repository does not exist.
    """
    tree = tree_of(root, revision)
    with suppress(SideError):  # a tree has no commit
        commit = commit_of(root, revision)
        return Snapshot(tree_of(root, commit), commit, dirty=False)  # of one moment, if a branch moves
    return Snapshot(tree, "", dirty=False)


def _sources_digest(root: Path) -> str:
    """Return a SHA-256 of the names and contents of all files of code, without hidden folders and environments."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(os.fsencode(root)):
        kept = (name for name in folders if not name.startswith(b".") and name != b"__pycache__")
        folders[:] = sorted(name for name in kept if not os.path.exists(os.path.join(folder, name, b"pyvenv.cfg")))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(_ENDINGS) and os.path.isfile(path):
                with suppress(OSError), open(path, "rb") as file:  # no benchmark can import an unreadable file
                    content = hashlib.sha256(file.read()).digest()
                    digest.update(os.path.relpath(path, os.fsencode(root)) + b"\0" + content)
    return digest.hexdigest()


_ENDINGS = tuple(pattern.removeprefix("*").encode() for pattern in CODE)
