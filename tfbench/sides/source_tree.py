"""Source trees of sides.

A tree is named by git's own hash of its files. Changed and new files are included, ignored files are not. The user's
checkout, index and branches stay untouched.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.errors import SideError, UsageError
from tfbench.fs import DATA_FOLDER, atomic_dir, file_digest, scratch_dir, without_repository, write_whole
from tfbench.untrusted import command, printable

# Identify the working tree by its content, and materialise older source trees


KEPT, CANDIDATES = "refs/tfbench/", "refs/tfbench-candidates/"
"""Git refs that keep the trees of saved baselines, and of runs that may become one."""


@dataclass(frozen=True)
class Snapshot:
    """Content of a source tree: git's hash of it, and the commit that is checked out."""

    tree: str
    commit: str
    """``""`` without one."""
    dirty: bool
    """Whether the tree is another one than the commit's."""
    edited: tuple[str, ...] = ()
    """Submodules, and repositories that git does not track, with other files than their commits. The tree has only those."""


class NoCheckout(SideError):
    """A folder is in no git checkout, or git is not installed."""


_FETCH_ALL = "this clone is partial and cannot reach its remote; connect it, or clone without --filter"
_WRITE_TREE = "write-tree", "--missing-ok"
"""A partial clone would fetch each file that it has not, one after the other, only to see that it exists."""


def _git(root: Path, *arguments: str, env: Mapping[str, str] | None = None, given: str = "") -> str:
    """Return what git prints, with ``given`` as its input. Names of files are bytes to git, as `os.fsdecode` writes them."""
    variables = {**without_repository(os.environ), **(env or {})}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, env=variables, input=os.fsencode(given), capture_output=True, check=True
        )
    except (FileNotFoundError, PermissionError):  # PermissionError if a file of this name is not executable
        raise NoCheckout("git is not installed, which comparing source trees needs; install git") from None
    except subprocess.CalledProcessError as error:
        why = os.fsdecode(error.stderr).strip() or "failed"
        fix = f"; {_FETCH_ALL}" if "promisor remote" in why else ""
        raise SideError(f"git {arguments[0]}: {why}{fix}") from None
    return os.fsdecode(done.stdout).removesuffix("\n")


def _listed(root: Path, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the entries that this command of git prints with ``-z``."""
    return list(filter(None, _git(root, name, "-z", *arguments, env=env).split("\0")))


def _known(root: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Return what git prints, ``""`` if it fails, as for an object that the repository does not have."""
    with suppress(SideError):
        return _git(root, *arguments, env=env)
    return ""


def checkout(root: Path) -> Path:
    """Return the top folder of the checkout that contains this folder.

    Raises:
        NoCheckout: The folder is in no checkout, or git is not installed.
        SideError: git refuses the checkout, because it belongs to another user.
    """
    try:
        return Path(_git(root, "rev-parse", "--show-toplevel", env={"LC_ALL": "C"}))
    except NoCheckout:
        raise
    except SideError as error:
        if match := re.search(r"dubious ownership in repository at '(.+)'", str(error)):
            fix = command("git", "config", "--global", "--add", "safe.directory", match[1])
            why = f"the git checkout {match[1]} belongs to another user, so git refuses it; to trust it, run {fix}"
            raise SideError(why) from None
        raise NoCheckout(f"{root.resolve()} is not in a git checkout; run `git init` there, and commit") from None


def top_level(root: Path) -> Path | None:
    """Return the checkout that contains this folder, or ``None`` if there is none that git reads."""
    try:
        return checkout(root)
    except SideError:
        return None


def snapshot(root: Path, keep_as: str = "") -> Snapshot | None:
    """Return the content of the checkout that contains ``root``, or ``None`` if there is none that git reads.

    Raises `SideError` if git cannot write into the checkout, or refuses one that ``keep_as`` needs, the checkout has a
    repository without a commit, or a submodule has edits, which ``keep_as`` cannot keep.

    Args:
        keep_as: Git ref below `KEPT` or `CANDIDATES`, under which the repository keeps the content for `materialise`,
            besides what the ref keeps already. Without a ref the repository stays unchanged.
    """
    try:
        top = checkout(root)
    except SideError as error:
        if keep_as and not isinstance(error, NoCheckout):
            raise
        return None
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as scratch:
        env = {"GIT_INDEX_FILE": str(Path(scratch, "index"))} if keep_as else _scratch_repository(top, Path(scratch))
        commit, head = _head(top, env)
        left_out = f":(exclude,glob)**/{DATA_FOLDER}/**", *_no_environments(top)
        _git(top, "add", "--all", "--", ".", *left_out, env=env)
        tree, edited = _git(top, *_WRITE_TREE, env=env), tuple(_edited_submodules(top, env))
        if keep_as and edited:
            raise SideError(f"{edited[0]} has edits, and git keeps only its commits; commit them in {edited[0]}")
        if keep_as:
            keep(top, tree, keep_as, earlier=True)
    return Snapshot(tree, commit, tree != head or bool(edited), edited)


def _head(top: Path, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return the commit that is checked out and its tree, ``""`` without one, and read it into the index of ``env``."""
    commit, tree = (_known(top, *_NAMED, name) for name in ("HEAD", "HEAD^{tree}"))
    if commit and env:
        _git(top, "read-tree", "HEAD", env=env)
    return commit, tree


_SUBMODULE = "160000"
"""The mode of a submodule in git's index."""


def _edited_submodules(top: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the submodules with edits that are not committed in them, each with the `code_digest` of its files."""
    names = [name for name, facts in _entries(top, "ls-files", "--stage", env=env) if facts.startswith(_SUBMODULE)]
    codes = {name: working_code(top / name) for name in names if Path(top, name, ".git").exists()}
    return {name: code.tree for name, code in codes.items() if code.dirty}


def _scratch_repository(top: Path, scratch: Path) -> dict[str, str]:
    """Return variables with which git writes its index and new objects into a folder."""
    objects = _git(top, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    Path(scratch, "objects").mkdir()
    return {
        "GIT_INDEX_FILE": str(Path(scratch, "index")),
        "GIT_OBJECT_DIRECTORY": str(Path(scratch, "objects")),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(objects),
    }


def _quoted(folder: str) -> str:
    """Quote a folder for git's lists of alternates, which a colon, a line break or a leading quote would split or end."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return f'"{"".join(escapes.get(char, char) for char in folder)}"'


_GIVEN = "--pathspec-from-file=-", "--pathspec-file-nul"
_NEW = "ls-files", "--others", "--exclude-standard"


def _no_environments(top: Path) -> list[str]:
    """Return pathspecs that leave out the virtual environments in a checkout that git neither tracks nor ignores.

    Before Python 3.13, ``python -m venv`` wrote no ``.gitignore``. git takes minutes to hash a TensorFlow in one.
    """
    listed = _listed(top, *_NEW, "--", ":(glob)**/pyvenv.cfg")
    return [f":(exclude,literal){folder}" for folder in map(os.path.dirname, listed) if folder]


def _new(top: Path, *patterns: str) -> list[str]:
    """Return the names of untracked files that git does not ignore, outside of environments and of tfbench's folder."""
    listed = _listed(top, *_NEW, "--", *patterns, *_no_environments(top))
    return [name for name in listed if DATA_FOLDER not in Path(name).parts]


CODE = ("*.py", "*.pyi", "*.toml", "*.ini", "*.cfg", "*.so")
"""Patterns of files of code."""


def code_digest(root: Path) -> str:
    """Return git's hash of the checkout's content: tracked files as they are now, and new files of code.

    Unlike `snapshot`, it leaves out other new files, such as a report that a run writes. If a submodule has edits, it is a
    hash of that hash and those of such submodules.
    Raises `SideError` if ``root`` is in no checkout that git reads, so the code of two sides cannot be compared.
    """
    top = checkout(root)
    names = _new(top, *CODE)
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as scratch:
        env = _scratch_repository(top, Path(scratch))
        _head(top, env)
        _git(top, "add", "--update", "--", ".", env=env)
        if names:
            _git(top, "add", *_GIVEN, env=env, given="\0".join(names))
        tree, edited = _git(top, *_WRITE_TREE, env=env), _edited_submodules(top, env)
    return hashlib.sha256(repr((tree, edited)).encode()).hexdigest() if edited else tree


def new_files(root: Path) -> list[Path]:
    """List the untracked files of the checkout that git does not ignore, except for code, which `code_digest` covers."""
    top = checkout(root)
    others = (f":(exclude){pattern}" for pattern in (*CODE, "*.pyc"))
    return [file for name in _new(top, ".", *others) if (file := top / name).is_file()]


MODULES = (".py", ".pyc")
"""Endings of modules. Python runs one of bytecode if there is no other."""


def _ignored(top: Path) -> list[str]:
    """List the files that git ignores; a folder that it ignores as a whole is one entry, which ends with a slash."""
    return _listed(top, *_NEW, "--ignored", "--directory")


def ignored_modules(top: Path) -> tuple[str, ...]:
    """List the modules of a checkout that git ignores, and the folders that it ignores as a whole."""
    names = [name for name in _ignored(top) if name.endswith((*MODULES, "/")) and "__pycache__" not in name.split("/")]
    return tuple(dict.fromkeys(name.rstrip("/") for name in names if name != f"{DATA_FOLDER}/"))


_VERSION = re.compile("version|commit|revision|release|type_checking|__all__", re.IGNORECASE)
"""In each name that a module of a build backend defines, such as ``_version.py`` of setuptools_scm."""
_ACTS = ast.Import, ast.Call, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda


def _is_of_a_version(module: Path) -> bool:
    """Tell whether a module states a version and no more, as the modules that build backends write."""
    try:
        nodes = list(ast.walk(ast.parse(module.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return False
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    sources = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    if sources - {"__future__", "typing"} or any(isinstance(node, _ACTS) for node in nodes):
        return False
    return any("version" in name.lower() for name in names) and all(map(_VERSION.search, names))


def _lend(top: Path, tree: str, place: Path, grafts: Grafts | None) -> None:
    """Give a tree that has been extracted what git ignores in the working tree, and what it has not itself.

    Modules that state a version are copied: a build has written them, packages import them, and without them no older tree
    could run. Data of the ``grafts`` is linked: benchmarks read some that is too large for git. Modules are no data.
    """
    for name in _ignored(top):
        source, there = top / name, place / name.rstrip("/")
        if not (there.parent.is_dir() and there.parent.resolve().is_relative_to(place.resolve())):
            continue  # the folder is new, or a link to elsewhere
        is_data = source.suffix not in (*MODULES, ".so") and source.name not in _CACHES
        with suppress(OSError, UnicodeDecodeError):
            if name.endswith(".py"):
                if not _is_of_a_version(source) or _known(top, "cat-file", "-t", f"{tree}:{name}"):
                    continue
                content = source.read_text("utf-8")
                if not there.is_file() or there.read_text("utf-8") != content:
                    write_whole(there, content)
            elif grafts and is_data and grafts.has(name.rstrip("/")) and not Path(source, "pyvenv.cfg").exists():
                there.symlink_to(source.resolve())


def may_miss(there: Path, here: Path, name: str) -> bool:
    """Tell whether another tree may run a substitute for a module of the working tree that git ignores.

    The other tree does not if it has the module as well, or if the module says nothing but a version.

    Args:
        there: Top of the other tree.
        here: Top of the working tree.
        name: Path of the module from there.
    """
    module = here / name  # a benchmark can remove it
    return not (there / name).exists() and not (module.exists() and _is_of_a_version(module))


def keep(root: Path, tree: str, name: str, *, earlier: bool = False) -> None:
    """Make git keep a tree under a ref below `KEPT` or `CANDIDATES`.

    Raises `SideError` if the repository does not have the tree.

    Args:
        earlier: Whether the ref also goes on keeping its earlier trees. The file of a baseline is replaced after its
            tree is kept, and a run that is killed between the two leaves the earlier file, which needs its tree.
    """
    before = _git(root, "for-each-ref", "--format=%(objectname)", name) if earlier else ""
    parents = ["-p", before] if before else []
    _git(root, "update-ref", name, _git(root, "commit-tree", tree, *parents, "-m", name, env=_IDENTITY))


def drop(root: Path, name: str) -> None:
    """Delete the ref of a kept tree, if it exists."""
    _known(root, "update-ref", "-d", name)


_IDENTITY = {
    "GIT_AUTHOR_NAME": "tfbench", "GIT_AUTHOR_EMAIL": "tfbench@localhost",
    "GIT_COMMITTER_NAME": "tfbench", "GIT_COMMITTER_EMAIL": "tfbench@localhost",
}  # fmt: skip


_NAMED = "rev-parse", "--verify", "--quiet", "--end-of-options"


def code_of(root: Path, revision: str) -> Snapshot:
    """Return the code of a commit, branch, tag or tree. A tree has no commit.

    Raises `SideError` if the revision or the repository does not exist.
    """
    try:
        checkout(root)
    except SideError as error:
        raise SideError(f"git:{revision}: {error}") from None
    commit = _known(root, *_NAMED, f"{revision}^{{commit}}")
    if not (tree := _known(root, *_NAMED, f"{commit or revision}^{{tree}}")):  # of one moment, if a branch moves
        raise SideError(f"git:{revision}: no such revision in this repository; {_FETCH}")
    return Snapshot(tree, commit, dirty=False)


def file_in(folder: Path, tree: str, path: Path) -> str:
    """Return the text of a file as a tree of git has it; ``""`` if it has no such file.

    ``path`` is relative to ``folder``. Raises `SideError` if the folder is in no checkout that has the tree.
    """
    top = checkout(folder)
    if not _has_tree(top, tree):
        raise SideError(f"this clone does not have the tree {tree[:12]}: {_UNSHALLOW}")
    with suppress(SideError, ValueError):
        name = (folder / path).resolve().relative_to(top.resolve())
        return _git(folder, "show", "--end-of-options", f"{tree}:{name.as_posix()}")
    return ""


_UNSHALLOW = "run `git fetch --unshallow`, or fetch-depth: 0 in GitHub's checkout"
_FETCH = (
    "run `git fetch`, in a shallow clone `git fetch --unshallow`, or write git:origin/NAME for a branch of a remote"
)


def commit_of(root: Path, revision: str) -> str:
    """Return the hash of a commit, branch or tag, which means the same code on every machine.

    Raises `SideError` if the revision is a tree, or it or the repository does not exist.
    """
    if not (commit := code_of(root, revision).commit):
        raise SideError(f"git:{revision} is a tree without history; name a commit, branch or tag")
    return commit


def base_of_change(root: Path, base: str, branch: str = "", head: str = "") -> str:
    """Return the commit to compare the checked-out change with.

    It has everything that the change has got from its target branch. Otherwise changes of others would count as its
    own: a CI system can name an older base than the commit that it has merged for the test.
    Raises `SideError` if the revision does not exist, or has no commit in common with the checked-out one.

    Args:
        base: A revision that the change was made from, or the target branch itself.
        branch: Target branch at the remote ``origin``, if known.
        head: Last commit of the change, if known. A merge of it is checked out for tests of a pull request.
    """
    if head and _known(root, "rev-parse", "--quiet", "--verify", "HEAD^2") == head:
        return _git(root, "rev-parse", "HEAD^1")
    named = commit_of(root, base)
    try:
        shared = _git(root, "merge-base", "HEAD", named)
    except SideError:
        fix = "run `git fetch --unshallow` if this clone is shallow, or name a branch that the change starts from"
        raise SideError(f"git:{base}: no commit in common with HEAD; {fix}") from None
    with suppress(SideError):
        later = _git(root, "merge-base", "HEAD", f"refs/remotes/origin/{branch}")
        _git(root, "merge-base", "--is-ancestor", shared, later)
        return later
    return shared


def require_checked_out(root: Path, commit: str) -> None:
    """Require that the checked-out commit has a commit in its history. Without the change, the base races itself.

    Raises `SideError` if it does not, or git cannot tell because the clone is shallow.
    """
    if not _is_ancestor(root, commit, "HEAD", f"the change {commit[:12]} is checked out"):
        fix = "check out this commit or a merge of it, or name the other side with --against"
        raise SideError(f"the change {commit[:12]} is not checked out, so it would not be raced; {fix}")


def _is_ancestor(root: Path, commit: str, later: str, question: str) -> bool:
    """Whether a commit is in the history of another one; raises `SideError` if a shallow clone cannot tell, with the question."""
    try:
        _git(root, "merge-base", "--is-ancestor", commit, later)
        return True
    except SideError:
        if _git(root, "rev-parse", "--is-shallow-repository") == "true":
            text = f"this clone is shallow, so git cannot tell whether {question}"
            raise SideError(f"{text}; {_UNSHALLOW}") from None
        return False


def is_pinned(root: Path, revision: str) -> bool:
    """Whether a revision is a tag or a commit's hash, and so means the same code tomorrow."""
    tag = "rev-parse", "--verify", "--quiet", f"refs/tags/{revision}"
    return re.fullmatch(r"[0-9a-f]{7,64}", revision) is not None or bool(_known(root, *tag))


def tags_of(root: Path, commit: str) -> tuple[str, ...]:
    """Return the tags of the commit that is checked out, none if tracked files differ from it or git cannot tell."""
    with suppress(SideError):
        return () if has_edits(root) else tuple(_git(root, "tag", "--points-at", commit).split())
    return ()


def has_edits(root: Path) -> bool:
    """Whether a tracked file differs from the commit that is checked out. Raises `SideError` if git cannot tell."""
    return bool(_git(root, "status", "--porcelain", "--untracked-files=no"))


def commits(root: Path, good: str, bad: str) -> list[tuple[str, str]]:
    """List the commits from ``good`` to ``bad`` along first parents, both included: hash and subject.

    A merge counts as one step. Commits beside ``good``, whose history does not have it, are left out: what is slower in
    them may be all that ``good`` has made faster.
    Raises `SideError` if a revision or the repository does not exist, or the clone is too shallow to tell, and
    `UsageError` if ``good`` is no ancestor of ``bad``.
    """
    first, last = (commit_of(root, revision) for revision in (good, bad))
    if not _is_ancestor(root, first, last, f"{good} is an ancestor of {bad}"):
        raise UsageError(f"{good} is no ancestor of {bad}; name an older commit for --good")
    subjects = "log", "--no-show-signature", "--encoding=UTF-8", "--format=%H %s"
    later = _git(root, *subjects, "--first-parent", "--reverse", f"{first}..{last}").split("\n")
    descendants = set(_git(root, "rev-list", "--ancestry-path", f"{first}..{last}").split())
    pairs = (line.partition(" ") for line in (_git(root, *subjects, "-1", first), *later))
    return [(commit, printable(subject)) for commit, _, subject in pairs if commit in {first, *descendants}]


@dataclass(frozen=True)
class Grafts:
    """Files of the working tree that replace those of another tree: committed, changed and new ones.

    Ignored ones are linked into it, unless they are modules.
    """

    has: Callable[[str], bool]
    """Tell whether a file belongs to them, by its path from the top of the checkout."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Path in the other tree -> the file of the working tree that is copied to it."""


def materialise(root: Path, tree: str, cache: Path, grafts: Grafts | None = None) -> tuple[Path, tuple[str, str]]:
    """Check out a tree into a folder below ``cache``, and locate the counterpart of ``root`` in it.

    The folder is created atomically, and later runs use it again, unless one of its files has changed. It is a checkout
    of its own, and gets those modules of the working tree that state a version and that git ignores. With ``grafts`` it is a
    tree of its own as well: the other one with these files of the working tree.
    Raises `SideError` if the repository or a submodule does not have the tree, or the folder cannot be written.

    Returns:
        The counterpart, and `Side.tree_redirect`: the top folders of the working tree and of the extracted one.
    """
    try:
        top = checkout(root)
    except SideError as error:
        raise SideError(f"older source trees are unavailable: {error}") from None
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as scratch:
        objects: Mapping[str, str] = {}
        if grafts is not None and _has_tree(top, tree):
            objects = _scratch_repository(top, Path(scratch))
            tree = _grafted(top, tree, grafts, objects)
        target = cache / tree
        known = _has_tree(top, tree, objects)
        edited = known and target.is_dir() and not _is_as_extracted(top, tree, target, objects)
        if edited or not target.is_dir():
            if not known:
                raise SideError(f"this repository does not have the tree {tree[:12]} any more")
            try:
                _remove_unused(cache)
                with atomic_dir(target, replace=edited) as half:
                    _check_out(top, tree, half, objects)
            except OSError as error:
                if edited or not target.is_dir():  # another run has created it by now
                    raise SideError(
                        f"cannot extract the tree {tree[:12]} into {cache}: {error.strerror or error}; "
                        "run in a copy of the checkout that you can write"
                    ) from error
    with suppress(OSError):
        os.utime(target)
    _lend(top, tree, target, grafts)
    return target / root.resolve().relative_to(top.resolve()), (str(top.resolve()), str(target.resolve()))


_CACHES = "__pycache__", ".pytest_cache", ".ipynb_checkpoints", DATA_FOLDER
_UNUSED_DAYS = 14
"""Days after which a run removes an extracted tree that no run has used. No race takes nearly as long."""


def _remove_unused(cache: Path) -> None:
    for folder in cache.glob("[0-9a-f]*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _UNUSED_DAYS * 86400:
                shutil.rmtree(folder)


def _grafted(top: Path, tree: str, grafts: Grafts, env: Mapping[str, str]) -> str:
    """Write the tree with the files of the working tree in it, and return its hash. ``env`` is of a scratch repository."""
    _head(top, env)
    listed = _listed(top, "ls-files", "--cached", env=env) + _new(top, ".")
    names = [name for name in dict.fromkeys(listed) if grafts.has(name) or name in grafts.copies.values()]
    left_out = _left_out(top)  # git adds no file outside of a sparse checkout
    if names := [name for name in names if name not in left_out]:
        _git(top, "--literal-pathspecs", "add", "--all", *_GIVEN, env=env, given="\0".join(names))
    if edited := [name for name in _edited_submodules(top, env) if grafts.has(name)]:
        raise SideError(f"{edited[0]} has edits, which the other side would not have; commit them in {edited[0]}")
    staged = dict(_entries(top, "ls-files", "--stage", env=env))
    entries = {name: facts for name, facts in staged.items() if grafts.has(name)}
    entries |= {name: staged[source] for name, source in grafts.copies.items() if source in staged}
    before = _entries(top, "ls-tree", "-r", "--full-tree", tree)
    entries |= {name: facts for name, facts in before if not grafts.has(name)}
    own_index = {**env, "GIT_INDEX_FILE": f"{env['GIT_INDEX_FILE']}-grafted"}
    listing = "".join(f"{facts}\t{name}\0" for name, facts in entries.items())
    _git(top, "update-index", "-z", "--add", "--replace", "--index-info", env=own_index, given=listing)
    return _git(top, *_WRITE_TREE, env=own_index)


def differing_files(place: Path, tree: str) -> list[str]:
    """Return the files that differ between an extracted tree and another tree of git, by their paths from the top."""
    return _listed(place, "diff-tree", "-r", "--name-only", f"{tree}^{{tree}}", "HEAD^{tree}")


def _entries(root: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the path and the facts of each entry that git lists."""
    for entry in _listed(root, *arguments, env=env):
        facts, _, name = entry.partition("\t")
        yield name, facts


def _left_out(place: Path, env: Mapping[str, str] | None = None) -> set[str]:
    """Return the files that a checkout leaves out because it is sparse."""
    return {entry[2:] for entry in _listed(place, "ls-files", "-t", env=env) if entry.startswith("S ")}


def _has_tree(top: Path, tree: str, objects: Mapping[str, str] | None = None) -> bool:
    return bool(_known(top, "cat-file", "-t", f"{tree}^{{tree}}", env=objects))


def _work_tree(top: Path, place: Path, scratch: Path, objects: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which git takes a folder for the working tree, and its ``.gitattributes`` for the valid ones."""
    folder = _git(top, "rev-parse", "--absolute-git-dir")
    return {**objects, "GIT_INDEX_FILE": str(scratch / "index"), "GIT_DIR": folder, "GIT_WORK_TREE": str(place)}


def _is_as_extracted(top: Path, tree: str, place: Path, objects: Mapping[str, str]) -> bool:
    """Whether every file of a tree is in a folder as git has it, submodules and new files aside, and it is a checkout.

    Files may be missing that a sparse checkout has left out.
    """
    if not Path(place, ".git", "HEAD").is_file():
        return False
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as scratch, suppress(SideError):
        env = _work_tree(top, place, Path(scratch), objects)
        _git(top, "read-tree", tree, env=env)
        _git(top, "update-index", "-q", "--ignore-submodules", "--refresh", env=env)
        _git(top, "diff-files", "--quiet", "--ignore-submodules", "--diff-filter=d", env=env)
        missing = "diff-files", "--name-only", "--ignore-submodules", "--diff-filter=D"
        return {*_listed(top, *missing, env=env)} <= _left_out(place)
    return False


def _check_out(top: Path, tree: str, place: Path, objects: Mapping[str, str]) -> None:
    """Write the files of a tree, and of its submodules, as a checkout has them.

    The variables in ``objects`` lead git to objects outside the repository. Unlike ``git archive``, this ignores the export
    attributes of ``.gitattributes``: it leaves out no file and substitutes no text. A sparse checkout leaves out the same
    files here, and a partial clone fetches what it lacks at once.
    """
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as scratch:
        env = _work_tree(top, place, Path(scratch), objects)
        _git(top, "read-tree", "--no-recurse-submodules", "-m", "-u", tree, env=env)
        _make_checkout(top, tree, place, objects)
        if left_out := _left_out(top, env):
            _git(place, "update-index", "--skip-worktree", "-z", "--stdin", given="\0".join(left_out))
        entries = list(_entries(top, "ls-files", "--stage", env=env))
    for name, facts in entries:
        mode, commit, _ = facts.split()
        if mode == _SUBMODULE:
            submodule = top / name
            if not (submodule / ".git").exists():
                fix = "run `git submodule update --init`, with the other commit checked out if this one lacks it"
                raise SideError(f"the submodule {name} is not checked out; {fix}")
            if not _has_tree(submodule, commit):
                raise SideError(f"the submodule {name} does not have the commit {commit[:12]}; in it, {_FETCH}")
            _check_out(submodule, commit, place / name, {})


def _make_checkout(top: Path, tree: str, place: Path, own_objects: Mapping[str, str]) -> None:
    """Make a folder with the files of a tree a checkout of its own, with the objects of the repository.

    Code that asks git for the top of its checkout, or that looks for ``.git`` above itself, finds the working tree
    otherwise, and both sides would run the files of that.
    """
    _git(place, "init", "-q", "--template=", *(() if len(tree) == 40 else ("--object-format=sha256",)))
    objects = Path(top, _git(top, "rev-parse", "--git-path", "objects"))
    alternates = Path(place, ".git", "objects", "info", "alternates")
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_bytes(os.fsencode(f"{_quoted(str(objects))}\n"))
    if own_objects:
        shutil.copytree(own_objects["GIT_OBJECT_DIRECTORY"], alternates.parents[1], dirs_exist_ok=True)
    commit = _git(place, "commit-tree", f"{tree}^{{tree}}", "-m", f"tree {tree}", env=_IDENTITY)
    _git(place, "update-ref", "--no-deref", "HEAD", commit)
    _git(place, "read-tree", "HEAD")


# Tell which code a side races: its commit, and a digest of its source tree


SOURCES = "sources:"
"""Prefix of a tree that is a digest of sources, because git does not know the folder."""


def working_code(root: Path) -> Snapshot:
    """Return the code of a working tree: its `code_digest`, else a digest of its sources, which no commit belongs to."""
    try:
        tree = code_digest(root)
    except SideError:
        return Snapshot(SOURCES + _sources_digest(root), "", dirty=False)
    commit, head = _head(root)
    return Snapshot(tree, commit, tree != head)


CodeFiles = tuple[dict[str, str], set[str]]
"""The files of code in a checkout at one moment, none outside of git: name below the top -> digest of the content, also of new
files that git does not ignore; and the names of tracked files."""


def code_files(root: Path) -> CodeFiles:
    """Return the digests of the present code files. `edited_files` compares them with later ones."""
    try:
        top = checkout(root)
        listed = _listed(top, "ls-files", "--recurse-submodules", "--", *CODE)
        tracked = {name for name in listed if DATA_FOLDER not in Path(name).parts}
        new = _new(top, *CODE)
    except SideError:
        return {}, set()
    return {name: file_digest(top / name) for name in tracked.union(new)}, tracked


def edited_files(root: Path, before: CodeFiles) -> list[str]:
    """Return the tracked files of code whose content is another one than before, whatever their times say.

    New files do not count, since benchmarks and TensorFlow's AutoGraph write some. Outside of git, no file counts.
    """
    (old, tracked), (new, still_tracked) = before, code_files(root)
    return sorted(name for name in tracked | still_tracked if old.get(name, "") != new.get(name, ""))


def _sources_digest(root: Path) -> str:
    """Return a SHA-256 of the names and contents of all files of code, without hidden folders and environments."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        kept = (name for name in folders if not name.startswith(".") and name != "__pycache__")
        folders[:] = sorted(name for name in kept if not os.path.exists(os.path.join(folder, name, "pyvenv.cfg")))
        for path in (os.path.join(folder, name) for name in sorted(names) if name.endswith(_ENDINGS)):
            if content := file_digest(path):  # no benchmark can import an unreadable file
                digest.update(os.fsencode(f"{os.path.relpath(path, root)}\0{content}"))
    return digest.hexdigest()


_ENDINGS = tuple(pattern.removeprefix("*") for pattern in CODE)
