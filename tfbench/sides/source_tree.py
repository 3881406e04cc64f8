"""Source trees by content: what the working tree holds now, and making an older one again.

A tree is named by git's own hash of its files, changed and new ones included, ignored ones left
out. Nothing of the user's checkout, index or branches is touched.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbench.errors import SideError, UsageError
from tfbench.fs import DATA_FOLDER, atomic_dir

KEPT, CANDIDATES = "refs/tfbench/", "refs/tfbench-candidates/"
"""Where git is told to keep the trees of saved baselines, and of runs that may become one."""


@dataclass(frozen=True)
class Snapshot:
    """What a working tree holds: git's hash of its content and the commit that it stands on."""

    tree: str
    commit: str
    dirty: bool


def _git(root: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, env={**os.environ, **(env or {})},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise SideError("git is not installed, so no source tree can be compared") from None
    except subprocess.CalledProcessError as error:
        raise SideError(f"git {arguments[0]}: {error.stderr.strip() or 'failed'}") from None
    return done.stdout.strip()


def top_level(root: Path) -> Path | None:
    """The checkout that holds this folder, or ``None`` outside of one."""
    try:
        return Path(_git(root, "rev-parse", "--show-toplevel"))
    except SideError:
        return None


def snapshot(root: Path, keep_as: str = "") -> Snapshot | None:
    """The content of the checkout that holds ``root``, or ``None`` outside of one.

    Args:
        keep_as: Store the content in the repository under this name below `KEPT` or `CANDIDATES`, so that
            `materialise` can make it again later; without a name nothing is written there.
    """
    top = top_level(root)
    if top is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        objects = Path(_git(top, "rev-parse", "--path-format=absolute", "--git-path", "objects"))
        env = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        if not keep_as:
            Path(scratch, "objects").mkdir()
            env["GIT_OBJECT_DIRECTORY"] = str(Path(scratch, "objects"))
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(objects)
        try:
            commit = _git(top, "rev-parse", "--verify", "--quiet", "HEAD")
            head = _git(top, "rev-parse", "HEAD^{tree}")
            _git(top, "read-tree", "HEAD", env=env)
        except SideError:
            commit = head = ""  # a repository without a commit
        _git(top, "add", "--all", "--", ".", f":(exclude,glob)**/{DATA_FOLDER}/**", env=env)
        tree = _git(top, "write-tree", env=env)
        if keep_as:
            keep(top, tree, keep_as)
    return Snapshot(tree, commit, tree != head)


def keep(root: Path, tree: str, name: str) -> None:
    """Have git keep a tree that the repository holds, under a name below `KEPT` or `CANDIDATES`.

    Raises:
        SideError: The repository does not hold it.
    """
    _git(root, "update-ref", name, _git(root, "commit-tree", tree, "-m", name, env=_IDENTITY))


def drop(root: Path, name: str) -> None:
    """Let git forget what was kept under this name; nothing happens where nothing was."""
    if top_level(root) is not None:
        _git(root, "update-ref", "-d", name)


_IDENTITY = {
    "GIT_AUTHOR_NAME": "tfbench", "GIT_AUTHOR_EMAIL": "tfbench@localhost",
    "GIT_COMMITTER_NAME": "tfbench", "GIT_COMMITTER_EMAIL": "tfbench@localhost",
}  # fmt: skip


def tree_of(root: Path, revision: str) -> str:
    """The tree of a commit, branch or tag.

    Raises:
        SideError: There is no such revision, or no repository.
    """
    if top_level(root) is None:
        raise SideError(f"git:{revision}: {root} is not in a git checkout")
    if revision.startswith("-"):
        raise SideError(f"git:{revision}: not a revision")
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}")
    except SideError:
        raise SideError(f"git:{revision}: no such revision here; `git fetch` it first if it is on a remote") from None


@dataclass(frozen=True)
class Commit:
    """A commit and what its message begins with."""

    hash: str
    subject: str


def commits(root: Path, good: str, bad: str) -> list[Commit]:
    """The commits from one to another along first parents, both included: a merge counts as one step.

    Raises:
        SideError: There is no such revision, or no repository.
        UsageError: The first does not lead to the second.
    """
    for revision in (good, bad):
        tree_of(root, revision)
    try:
        _git(root, "merge-base", "--is-ancestor", good, bad)
    except SideError:
        raise UsageError(f"{good} is no ancestor of {bad}, so nothing lies between them") from None
    listed = _git(root, "log", "--first-parent", "--reverse", "--format=%H %s", f"{good}..{bad}")
    first = _git(root, "log", "-1", "--format=%H %s", good)
    return [Commit(*line.split(" ", 1)) for line in (first, *listed.splitlines())]


@dataclass(frozen=True)
class MaterializedTree:
    """A source tree that was made."""

    top: str
    """Of the working tree."""
    instead: str
    """Of the tree that takes its place."""
    root: Path
    """In it, the counterpart of a folder of the working tree."""


def materialise(root: Path, tree: str, cache: Path) -> MaterializedTree:
    """A folder that holds this tree, and in it the counterpart of ``root``.

    The folder is made whole or not at all and used again by later runs.

    Raises:
        SideError: The repository does not hold the tree.
    """
    top = top_level(root)
    if top is None:
        raise SideError(f"{root} is not in a git checkout, so an older tree cannot be made")
    target = cache / tree
    if not target.is_dir():
        try:
            _git(top, "cat-file", "-e", f"{tree}^{{tree}}")
        except SideError:
            raise SideError(f"this repository does not hold the tree {tree[:12]} any more") from None
        try:
            with atomic_dir(target) as half, tempfile.TemporaryDirectory() as scratch:
                archive = Path(scratch, "tree.tar")
                _git(top, "archive", "--format=tar", f"--output={archive}", tree)
                with tarfile.open(archive) as tar:
                    tar.extractall(half, filter="data")
        except OSError as error:
            if not target.is_dir():  # another run made it meanwhile
                raise SideError(f"cannot make the tree {tree[:12]} in {cache}: {error}") from error
    return MaterializedTree(
        str(top.resolve()), str(target.resolve()), target / root.resolve().relative_to(top.resolve())
    )
