"""Identify and extract source trees in real git repositories."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfbench.errors import SideError, UsageError
from tfbench.fs import DATA_FOLDER
from tfbench.session import strategies
from tfbench.sides import source_tree
from tfbench.sides.environments import Environments
from tfbench.sides.source_tree import KEPT, code_digest, code_files, code_of, edited_files, materialise, snapshot
from tfbench.sides.spec import Side, parse


def git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(root, subject):
    git(root, "add", "-A")
    git(root, "commit", "-qm", subject)


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    (root / "sub").mkdir(parents=True)
    git(root, "init", "-q")
    (root / "sub" / "a.py").write_text("one")
    (root / ".gitignore").write_text("ignored\n")
    commit(root, "first")
    return root


def test_data_of_the_benchmarks_that_git_ignores_is_there_on_the_other_side(checkout, tmp_path):
    benchmarks = checkout / "sub"
    (checkout / ".gitignore").write_text("*.npz\ndata/\n*.so\n__pycache__/\n")
    for name in ("images.npz", "data/1.bin", "fast.so", "__pycache__/a.pyc"):
        (benchmarks / name).parent.mkdir(exist_ok=True)
        (benchmarks / name).write_text(name)
    (checkout / "other.npz").write_text("of the project")
    for _ in range(2):  # the second one uses the first one's folder
        mine = source_tree.Grafts(lambda name: name.startswith("sub"))
        top, _ = materialise(checkout, code_of(checkout, "HEAD").tree, tmp_path / "cache", mine)
    assert (top / "sub/images.npz").read_text() == "images.npz"
    assert (top / "sub/data/1.bin").read_text() == "data/1.bin"
    assert sorted(os.listdir(top / "sub")) == ["a.py", "data", "images.npz"]
    assert not (top / "other.npz").exists()


def test_variables_of_git_lead_to_no_other_folder_and_hide_no_code(checkout, tmp_path, monkeypatch):
    def seen():
        file = source_tree.file_in(checkout, "HEAD", Path("sub/a.py")), source_tree.top_level(checkout / "sub")
        return (
            file,
            snapshot(checkout),
            code_digest(checkout),
            code_files(checkout),
            source_tree.ignored_modules(checkout),
        )

    (checkout / "sub" / "new.py").write_text("NAME = 'quoted'\n")
    (tmp_path / "elsewhere").mkdir()
    git(tmp_path / "elsewhere", "init", "-q")
    monkeypatch.chdir(checkout / "sub")
    before = seen()
    listed = git(checkout, "rev-parse", "--local-env-vars").split()
    of_a_hook = {name: f"{tmp_path}/elsewhere/.git" for name in listed if not name.startswith("GIT_CONFIG_")}
    of_patterns = [{f"GIT_{meaning}_PATHSPECS": "1"} for meaning in ("LITERAL", "NOGLOB", "GLOB", "ICASE")]
    for variables in (of_a_hook, *of_patterns):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert seen() == before, variables


ODD = [os.fsdecode(name) for name in (b"caf\xe9.py", b" new\n\xff.py", b"sub/\xa0.txt")]
"""Names of files that are not UTF-8, or have white space at an end."""


def test_a_file_name_is_bytes_and_need_not_be_utf_8(checkout, tmp_path):
    clean = code_digest(checkout)
    for name in ODD[:2]:
        (checkout / name).write_text(name, encoding="utf-8", errors="surrogateescape")
        assert code_digest(checkout) != clean
    new = code_digest(checkout)
    (checkout / ODD[2]).write_text("no code")
    assert code_digest(checkout) == new
    commit(checkout, "odd")
    assert snapshot(checkout, f"{KEPT}odd").tree == code_of(checkout, "HEAD").tree == code_digest(checkout)
    root, _ = materialise(checkout, code_of(checkout, "HEAD").tree, tmp_path / "cache")
    assert all((root / name).exists() for name in ODD)


@pytest.mark.parametrize("name", ["co:lon", "line\nbreak", '"quoted"', "back\\slash", "#hash", "sp ace"])
def test_edits_are_seen_and_trees_extracted_whatever_the_path_is(checkout, tmp_path, name):
    root = tmp_path / name
    checkout.rename(root)
    assert code_digest(root) == code_of(root, "HEAD").tree
    assert not snapshot(root).dirty
    (root / "sub" / "a.py").write_text("two")
    assert code_digest(root) == snapshot(root).tree != code_of(root, "HEAD").tree
    place, _ = materialise(root, code_of(root, "HEAD").tree, root / ".tfbench")
    assert (place / "sub" / "a.py").read_text() == "one"
    assert git(place, "ls-files") == git(root, "ls-files")


def test_a_damaged_repository_has_no_digest_of_no_code(checkout):
    tree = code_of(checkout, "HEAD").tree
    (checkout / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(SideError, match="git read-tree"):
        code_digest(checkout)
    before = source_tree.working_code(checkout).tree
    (checkout / "sub" / "a.py").write_text("two")
    assert source_tree.working_code(checkout).tree != before


def test_code_of_an_extracted_tree_that_looks_for_its_checkout_finds_that_tree(checkout):
    before = git(checkout, "rev-parse", "HEAD^{tree}")
    (checkout / "sub" / "a.py").write_text("two")
    git(checkout, "add", "-A")
    root, (_, place) = materialise(checkout / "sub", before, checkout / DATA_FOLDER / "trees")
    assert git(root, "rev-parse", "--show-toplevel") == place == str(root.parent)
    assert git(root, "show", "HEAD:sub/a.py") == git(root, "show", ":sub/a.py") == "one"
    assert git(root, "status", "--porcelain") == ""
    shutil.rmtree(Path(place, ".git"))  # as earlier versions of tfbench have left it
    materialise(checkout / "sub", before, checkout / DATA_FOLDER / "trees")
    assert git(root, "rev-parse", "--show-toplevel") == place
    assert next(folder for folder in root.parents if (folder / ".git").exists()) == root.parent
    inode = root.parent.stat().st_ino
    materialise(checkout / "sub", before, checkout / DATA_FOLDER / "trees")
    assert root.parent.stat().st_ino == inode


def test_a_snapshot_leaves_the_repository_unchanged(checkout):
    (checkout / "new.py").write_text("x")
    before = git(checkout, "status", "--short"), git(checkout, "count-objects", "-v")
    snapshot(checkout)
    assert (git(checkout, "status", "--short"), git(checkout, "count-objects", "-v")) == before


def test_a_kept_tree_can_be_extracted_again(checkout, tmp_path):
    (checkout / "sub" / "a.py").write_text("two")
    kept = snapshot(checkout, f"{KEPT}first")
    (checkout / "sub" / "a.py").write_text("three")
    git(checkout, "gc", "--prune=now", "-q")
    made = materialise(checkout / "sub", kept.tree, tmp_path / "cache")
    root, redirect = made
    assert redirect == (str(checkout.resolve()), str(root.parent.resolve()))
    assert (root / "a.py").read_text() == "two"
    assert root.name == "sub"
    assert materialise(checkout / "sub", kept.tree, tmp_path / "cache") == made
    assert not list((tmp_path / "cache").glob(".half-*"))


def test_an_extracted_tree_with_a_changed_file_is_extracted_again(checkout, tmp_path):
    (checkout / ".gitattributes").write_text("*.txt text eol=crlf\n")
    (checkout / "notes.txt").write_text("one\r\n")
    commit(checkout, "notes")
    tree = code_of(checkout, "HEAD").tree
    root, _ = materialise(checkout, tree, tmp_path / "cache")
    (root / "new.txt").touch()
    before = root.stat().st_ino
    assert materialise(checkout, tree, tmp_path / "cache")[0].stat().st_ino == before
    for change in (lambda file: file.write_text("ONE"), lambda file: file.unlink()):
        change(root / "sub/a.py")
        materialise(checkout, tree, tmp_path / "cache")
        assert (root / "sub/a.py").read_text() == "one"
    assert (checkout / "sub/a.py").read_text() == "one"
    assert git(checkout, "status", "--porcelain") == ""


def test_files_of_code_that_are_edited_are_named(checkout):
    (checkout / "known.py").write_text("untracked")
    before = code_files(checkout)
    assert edited_files(checkout, before) == []
    (checkout / "report.json").write_text("{}")
    (checkout / "sub" / "a.py").touch()
    assert edited_files(checkout, before) == []
    (checkout / "sub" / "a.py").write_text("two")
    (checkout / "b.py").write_text("new")
    assert edited_files(checkout, before) == ["sub/a.py"]
    assert edited_files(checkout, code_files(checkout)) == []
    git(checkout, "add", "known.py", "b.py")
    assert edited_files(checkout, before) == ["b.py", "sub/a.py"]
    (checkout / "sub" / "a.py").unlink()
    assert "sub/a.py" in edited_files(checkout, before)
    assert edited_files(checkout / "..", code_files(checkout / "..")) == []


def test_an_edit_that_keeps_the_old_time_is_named(checkout, tmp_path):
    old = time.time() - 3600
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.py").write_text("two")
    for file in (other / "a.py", checkout / "sub/a.py"):
        os.utime(file, (old, old))
    before = code_files(checkout)
    (checkout / "sub").rename(tmp_path / "away")
    other.rename(checkout / "sub")  # changes no time of the file, not even that of its node
    assert edited_files(checkout, before) == ["sub/a.py"]


def test_modules_that_git_ignores_are_listed_without_caches_and_data(checkout, monkeypatch):
    others = "sub/data.txt", "__pycache__/a.pyc", "sub/__pycache__/a.pyc", f"{DATA_FOLDER}/x.py", "sub/new.py"
    for name in ("ignored/b.py", "sub/local.py", "sub/bytes.pyc", *others):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).touch()
    (checkout / ".gitignore").write_text(f"ignored\nlocal.py\n*.txt\n*.pyc\n{DATA_FOLDER}\n")
    assert sorted(source_tree.ignored_modules(checkout)) == ["ignored", "sub/bytes.pyc", "sub/local.py"]


SETUPTOOLS_SCM = """
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple, Union
    VERSION_TUPLE = Tuple[Union[int, str], ...]
else:
    VERSION_TUPLE = object
__all__ = ["__version__", "__commit_id__"]
version_tuple: VERSION_TUPLE
__commit_id__: str | None
__version__ = version = "0.1"
version_tuple = (0, 1)
"""


@pytest.mark.parametrize(
    ("module", "missed"),
    [
        ("X = 1", True),
        (SETUPTOOLS_SCM, False),
        ("__version__ = VERSION = '1.0'", False),  # of hatchling
        ('"""A version."""\nversion: str = "1"\ngit_revision = None', False),
        ("version = '1'\nSECONDS = 2", True),
        ("version = '1'\ndef step(): pass", True),
        ("from fast import step\nversion = '1'", True),
        ("version = load()", True),
        ("commit = 'f00'", True),  # no version
        ("version = (", True),
        (None, True),
    ],
)
def test_a_tree_may_miss_a_module_that_git_ignores(checkout, tmp_path, module, missed):
    if module is not None:
        (checkout / "sub" / "local.py").write_text(module)
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    assert source_tree.may_miss(other, checkout, "sub/local.py") is missed
    (other / "sub" / "local.py").touch()
    assert not source_tree.may_miss(other, checkout, "sub/local.py")


def test_an_extracted_tree_gets_the_ignored_module_that_states_the_version(checkout, tmp_path):
    (checkout / ".gitignore").write_text("_version.py\nother.py\n")
    version, there = checkout / "sub" / "_version.py", tmp_path / "cache"
    for text in ("__version__ = '1.0'\n", "__version__ = '2.0'\n"):
        version.write_text(text)
        version.with_name("other.py").write_text("version = 1\ndef step(): pass\n")
        found, _ = materialise(checkout, code_of(checkout, "HEAD").tree, there)
        assert (found / "sub" / "_version.py").read_text() == text
        assert not (found / "sub" / "other.py").exists()
        assert not source_tree.may_miss(found, checkout, "sub/_version.py")


def test_an_extracted_tree_keeps_the_version_that_it_has_itself(checkout, tmp_path):
    version = checkout / "sub" / "_version.py"
    version.write_text("__version__ = '1.0'\n")
    commit(checkout, "with a version")
    tree = code_of(checkout, "HEAD").tree
    git(checkout, "rm", "-q", "--cached", "sub/_version.py")
    (checkout / ".gitignore").write_text("_version.py\n")
    version.write_text("__version__ = '2.0'\n")
    found, _ = materialise(checkout, tree, tmp_path / "cache")
    assert (found / "sub" / "_version.py").read_text() == "__version__ = '1.0'\n"


@pytest.fixture
def partial(checkout, tmp_path):
    """A clone without the files of its history, and without the folder ``big``."""
    (checkout / "big").mkdir()
    for text in ("one", "two"):
        for name in ("sub/a.py", "sub/b.py", "big/data.py"):
            (checkout / name).write_text(f"{text} {name}")
        commit(checkout, text)
    git(checkout, "config", "uploadpack.allowFilter", "true")
    git(checkout, "config", "uploadpack.allowAnySHA1InWant", "true")
    clone = tmp_path / "partial"
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--sparse", f"file://{checkout}", str(clone))
    git(clone, "sparse-checkout", "set", "sub")
    return clone


def test_a_partial_clone_fetches_an_older_tree_at_once_and_without_what_it_leaves_out(partial, tmp_path, monkeypatch):
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))
    cache = partial / DATA_FOLDER / "trees"
    root, (_, place) = materialise(partial / "sub", code_of(partial, "HEAD~1").tree, cache)
    assert trace.read_text().count("built-in: git upload-pack") == 1
    monkeypatch.delenv("GIT_TRACE")
    assert {file.name: file.read_text() for file in root.iterdir()} == {"a.py": "one sub/a.py", "b.py": "one sub/b.py"}
    assert not Path(place, "big").exists()
    assert git(root, "status", "--porcelain") == ""
    inode = root.stat().st_ino
    materialise(partial / "sub", code_of(partial, "HEAD~1").tree, cache)
    assert root.stat().st_ino == inode
    (root / "b.py").unlink()
    materialise(partial / "sub", code_of(partial, "HEAD~1").tree, cache)
    assert (root / "b.py").exists()


def test_a_partial_clone_whose_remote_is_away_still_tells_its_code(partial, checkout, tmp_path):
    checkout.rename(tmp_path / "away")
    found = source_tree.working_code(partial / "sub")
    assert (found.tree, found.dirty) == (code_of(partial, "HEAD").tree, False)
    (partial / "sub" / "a.py").write_text("three")
    edited = source_tree.working_code(partial / "sub")
    assert edited.dirty
    assert len(edited.tree) == 40
    assert snapshot(partial).tree == edited.tree
    with pytest.raises(SideError, match="this clone is partial and cannot reach its remote; connect it"):
        materialise(partial / "sub", code_of(partial, "HEAD~1").tree, partial / DATA_FOLDER / "trees")


def test_files_that_a_sparse_checkout_leaves_out_are_no_edits_of_the_benchmarks(partial):
    (partial / "sub" / "a.py").write_text("three")
    grafts = source_tree.Grafts(lambda name: name.endswith(("a.py", "data.py")))
    root, _ = materialise(partial / "sub", code_of(partial, "HEAD~1").tree, partial / DATA_FOLDER / "trees", grafts)
    assert {file.name: file.read_text() for file in root.iterdir()} == {"a.py": "three", "b.py": "one sub/b.py"}


def test_a_tree_that_no_run_has_used_for_weeks_is_removed(checkout, tmp_path):
    old, used = tmp_path / "trees" / "0a", tmp_path / "trees" / "0b"
    for folder in (old, used):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    materialise(checkout, code_of(checkout, "HEAD").tree, tmp_path / "trees")
    assert (old.exists(), used.exists()) == (False, True)


def test_the_earlier_tree_is_kept_until_the_new_one_is_kept_alone(checkout):
    first = snapshot(checkout, f"{KEPT}first")
    (checkout / "sub" / "a.py").write_text("two")
    second = snapshot(checkout, f"{KEPT}first")
    assert git(checkout, "log", "--format=%T", f"{KEPT}first").split() == [second.tree, first.tree]
    source_tree.keep(checkout, second.tree, f"{KEPT}first")
    assert git(checkout, "log", "--format=%T", f"{KEPT}first").split() == [second.tree]


def test_a_tree_has_what_a_checkout_has(checkout, tmp_path):
    """Attributes for exports change nothing, and links may point anywhere."""
    (checkout / ".gitattributes").write_text("sub export-ignore\nversion export-subst\n")
    (checkout / "version").write_text("$Format:%H$")
    (checkout / "link").symlink_to("/nowhere/at/all")
    root, _ = materialise(checkout, snapshot(checkout, f"{KEPT}first").tree, tmp_path / "cache")
    assert (root / "sub/a.py").read_text() == "one"
    assert (root / "version").read_text() == "$Format:%H$"
    assert (root / "link").readlink() == Path("/nowhere/at/all")


def test_a_tree_has_its_own_attributes_and_not_those_of_the_working_tree(checkout, tmp_path):
    (checkout / "sub" / ".gitattributes").write_text("*.csv text eol=crlf\n")
    (checkout / "sub" / "data.csv").write_text("1\n")
    commit(checkout, "with attributes")
    old = code_of(checkout, "HEAD").tree
    (checkout / "sub" / ".gitattributes").write_text("*.csv text eol=lf\n")
    git(checkout, "commit", "-qam", "with other attributes")
    data = materialise(checkout, old, tmp_path / "cache")[0] / "sub" / "data.csv"
    before = data.read_bytes(), data.stat().st_ino
    assert before[0] == b"1\r\n"
    materialise(checkout, old, tmp_path / "cache")
    assert (data.read_bytes(), data.stat().st_ino) == before, "the tree was extracted again"


@pytest.fixture
def moved(checkout, tmp_path):
    """The address of a repository whose last commit moves the submodule lib."""
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    for text in ("old", "new"):
        (library / "b.py").write_text(text)
        commit(library, text)
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "-q", library.as_uri(), "lib")
    for revision in ("HEAD~1", "HEAD@{1}"):
        git(checkout / "lib", "checkout", "-q", revision)
        commit(checkout, f"lib at {revision}")
    return checkout.as_uri()


def test_a_submodule_is_checked_out_at_the_commit_of_the_tree(moved, checkout, tmp_path):
    base = code_of(checkout, "HEAD~1").tree
    assert (materialise(checkout, base, tmp_path / "cache")[0] / "lib/b.py").read_text() == "old"
    git(checkout, "submodule", "--quiet", "deinit", "--force", "lib")
    with pytest.raises(SideError, match="the submodule lib is not checked out; run `git submodule update --init`"):
        materialise(checkout, base, tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())


def test_a_submodule_without_the_commit_of_the_tree_is_named_with_the_fix(moved, tmp_path):
    clone, allow = tmp_path / "clone", ("-c", "protocol.file.allow=always")
    git(tmp_path, "clone", "-q", moved, clone)
    git(clone, *allow, "submodule", "--quiet", "update", "--init", "--depth", "1")
    base = code_of(clone, "HEAD~1").tree
    with pytest.raises(SideError, match=r"submodule lib does not have the commit .*; in it, .*--unshallow"):
        materialise(clone, base, tmp_path / "cache")
    git(clone / "lib", *allow, "fetch", "-q", "--unshallow")
    assert (materialise(clone, base, tmp_path / "cache")[0] / "lib/b.py").read_text() == "old"


def test_a_submodule_that_the_change_removes_is_extracted_once_the_other_commit_was_checked_out(moved, tmp_path):
    clone, allow = tmp_path / "clone", ("-c", "protocol.file.allow=always")
    git(tmp_path, "clone", "-q", moved, clone)
    git(clone, "rm", "-q", "lib")
    git(clone, "commit", "-qm", "removes the submodule")
    base = code_of(clone, "HEAD~1").tree
    with pytest.raises(SideError, match="with the other commit checked out if this one lacks it"):
        materialise(clone, base, tmp_path / "cache")
    git(clone, "checkout", "-q", "HEAD~1")
    git(clone, *allow, "submodule", "--quiet", "update", "--init")
    git(clone, "checkout", "-q", "-")
    assert (materialise(clone, base, tmp_path / "cache")[0] / "lib/b.py").read_text() == "new"


def test_edits_in_a_submodule_count_and_cannot_be_kept(moved, checkout):
    git(checkout / "lib", "config", "submodule.recurse", "true")
    clean, files, digest = snapshot(checkout, f"{KEPT}first"), code_files(checkout), code_digest(checkout)
    assert (clean.dirty, clean.edited, digest) == (False, (), clean.tree)
    (checkout / "lib" / "b.py").write_text("edited")
    found = snapshot(checkout)
    assert (found.tree, found.dirty, found.edited) == (clean.tree, True, ("lib",))
    assert source_tree.working_code(checkout).dirty
    assert edited_files(checkout, files) == ["lib/b.py"]
    with pytest.raises(SideError, match="lib has edits, and git keeps only its commits; commit them in lib"):
        snapshot(checkout, f"{KEPT}first")
    first = code_digest(checkout)
    (checkout / "lib" / "b.py").write_text("edited again")
    assert len({digest, first, code_digest(checkout)}) == 3
    git(checkout / "lib", "commit", "-qam", "edited again")
    assert snapshot(checkout, f"{KEPT}first").dirty


def test_a_saved_baseline_is_not_the_working_tree_with_edits_in_a_submodule(moved, checkout, tmp_path, monkeypatch):
    contender = Side("contender", "python", checkout)
    saved = SimpleNamespace(tree=snapshot(checkout, f"{KEPT}first").tree)
    monkeypatch.setattr(strategies, "describe", lambda saved: "the baseline")
    assert strategies.source_of(saved, contender, tmp_path / "cache").root == checkout
    (checkout / "lib" / "b.py").write_text("edited")
    assert (strategies.source_of(saved, contender, tmp_path / "cache").root / "lib" / "b.py").read_text() == "new"


def test_a_file_is_read_as_a_tree_has_it(checkout, tmp_path):
    tree = code_of(checkout, "HEAD").tree
    (checkout / "sub" / "a.py").write_text("two")
    for folder, path in ((checkout, "sub/a.py"), (checkout / "sub", "a.py"), (checkout, checkout / "sub" / "a.py")):
        assert source_tree.file_in(folder, tree, Path(path)) == "one"
    for path in ("b.py", "../b.py"):
        assert source_tree.file_in(checkout, tree, Path(path)) == ""
    with pytest.raises(SideError, match="is not in a git checkout"):
        source_tree.file_in(tmp_path, tree, Path("checkout/sub/a.py"))
    with pytest.raises(SideError, match=r"this clone does not have the tree 000000000000: run `git fetch --unshallow`"):
        source_tree.file_in(checkout, "0" * 40, Path("sub/a.py"))


def test_a_dropped_tree_has_no_ref(checkout):
    snapshot(checkout, f"{KEPT}first")
    source_tree.drop(checkout, f"{KEPT}first")
    source_tree.drop(checkout, f"{KEPT}first")
    assert git(checkout, "for-each-ref", KEPT) == ""


def test_an_environment_that_git_does_not_ignore_is_no_part_of_a_tree(checkout):
    before, code, files = snapshot(checkout).tree, code_digest(checkout), code_files(checkout)
    package = checkout / "an [env]" / "lib" / "tensorflow.py"
    package.parent.mkdir(parents=True)
    package.write_text("NAME = 'quoted'\n")
    (checkout / "an [env]" / "data.txt").write_text("data")
    assert snapshot(checkout).tree != before, "without pyvenv.cfg, it is a folder like others"
    (checkout / "an [env]" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert (snapshot(checkout).tree, code_digest(checkout), code_files(checkout)) == (before, code, files)
    assert not source_tree.new_files(checkout)


def test_the_data_folder_is_no_part_of_a_tree(checkout):
    clean = snapshot(checkout).tree
    for folder in (checkout, checkout / "sub"):
        (folder / DATA_FOLDER / "history").mkdir(parents=True)
        (folder / DATA_FOLDER / "history" / "x.json").write_text("{}")
    assert snapshot(checkout).tree == clean


def test_a_repository_without_a_commit_in_the_checkout_is_named(checkout):
    nested = checkout / "sub" / "its own"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "b.py").touch()
    with pytest.raises(SideError, match=r"sub/its own/' does not have a commit checked out"):
        snapshot(checkout)
    (checkout / ".gitignore").write_text("ignored\nits own\n")
    assert snapshot(checkout).dirty


def test_outside_version_control_there_is_no_snapshot_and_the_folder_is_named_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert snapshot(Path()) is None
    with pytest.raises(SideError, match=f"{re.escape(str(tmp_path))} is not in a git checkout; run `git init`"):
        code_of(Path(), "main")


NONE = Environments(Path("/nowhere"))
"""The specifications here need no environment."""


def test_a_specification_changes_only_what_it_names(checkout, tmp_path):
    contender = Side("contender", "/usr/bin/python", checkout, slowdown=0.1)
    same = parse("self", contender, tmp_path, NONE)
    assert (same.name, same.slowdown, same.root) == ("baseline", 0.0, checkout)
    set_ = parse("self+env:A=b=c", contender, tmp_path, NONE)
    assert (set_.env, set_.named) == ({"A": "b=c"}, ("A",))
    assert parse(f"python:{sys.executable}", contender, tmp_path, NONE).executable == sys.executable
    assert (parse("git:HEAD", contender, tmp_path / "cache", NONE).root / "sub" / "a.py").read_text() == "one"


UNCLEAR = {
    **dict.fromkeys(["", "selfish", "env:", "env:=x", "self:x", "python:", "tensor", "self+"], "is not understood"),
    "HEAD": "'HEAD' is not understood; write git:HEAD for this commit",
    "env:A=2.20.0+cpu": "no part can contain a +, such as the local version",
    "env:A=1+env:A=2": "it names A twice; leave one of them out",
    "git:HEAD+git:HEAD~0": "it names the source tree twice",
    "python==3.10+python==3.11": "it names the Python twice",
    "tensorflow==2.20.0+tensorflow_cpu==2.19.0": "it names TensorFlow twice",
    "keras==3.9.0+Keras==3.8.0": "it names keras twice",
}


@pytest.mark.parametrize("spec", UNCLEAR)
def test_an_unclear_specification_is_refused_with_the_reason(checkout, tmp_path, spec):
    with pytest.raises(UsageError, match=re.escape(UNCLEAR[spec])):
        parse(spec, Side("contender", "python", checkout), tmp_path, NONE)


def test_missing_interpreters_and_revisions_are_reported(checkout, tmp_path):
    contender = Side("contender", "python", checkout)
    with pytest.raises(UsageError, match="no interpreter /nowhere"):
        parse("python:/nowhere", contender, tmp_path, NONE)
    for other in ("ls", "sh", "echo", "true"):
        with pytest.raises(UsageError, match=f"/{other} is no Python that starts; name a Python with TensorFlow"):
            parse(f"python:{other}", contender, tmp_path, NONE)
    (old := tmp_path / "python2").write_text("#!/bin/sh\necho 2.7.18\n")
    old.chmod(0o755)
    with pytest.raises(
        UsageError, match=r"is Python 2\.7\.18, on which tfbench cannot measure; name a Python with Tens"
    ):
        parse(f"python:{old}", contender, tmp_path, NONE)
    with pytest.raises(SideError, match="no such revision"):
        parse("git:nope", contender, tmp_path, NONE)


def test_a_revision_that_the_repository_does_not_have_is_told_with_the_fix(checkout):
    with pytest.raises(
        SideError, match=r"run `git fetch`, in a shallow clone .*, or write git:origin/NAME for a branch"
    ):
        code_of(checkout, "nowhere")


def committed(root, subject):
    """Commit a file of this name, and return the subject."""
    (root / subject).write_text(subject)
    commit(root, subject)
    return subject


def subjects(root, good, bad):
    return [subject for _, subject in source_tree.commits(root, good, bad)]


def merge_branch(checkout, subject):
    """Commit on a branch ``topic``, then ``second``, ``merge`` and ``last`` on the main branch."""
    main = git(checkout, "symbolic-ref", "--short", "HEAD")
    git(checkout, "switch", "-qc", "topic")
    committed(checkout, subject)
    git(checkout, "switch", "-q", main)
    committed(checkout, "second")
    git(checkout, "merge", "-q", "--no-ff", "-m", "merge", "topic")
    committed(checkout, "last")


def test_a_merge_is_one_step_between_two_commits(checkout):
    merge_branch(checkout, "beside")
    assert subjects(checkout, "HEAD~3", "HEAD") == ["first", "second", "merge", "last"]


def test_commits_that_do_not_have_the_good_end_are_no_steps(checkout):
    """What the good end, a commit of a branch, has made faster is slow in them, although they made nothing slower."""
    merge_branch(checkout, "faster")
    assert subjects(checkout, "topic", "HEAD") == ["faster", "merge", "last"]
    with pytest.raises(UsageError, match="topic is no ancestor of HEAD~2"):
        source_tree.commits(checkout, "topic", "HEAD~2")


def test_ends_of_a_shallow_clone_that_git_cannot_connect_are_told_with_the_fix(checkout, tmp_path):
    git(checkout, "tag", "old")
    for subject in ("second", "third"):
        committed(checkout, subject)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-tags", checkout.as_uri(), shallow)
    git(shallow, "fetch", "-q", "--depth", "1", "origin", "tag", "old")
    with pytest.raises(SideError, match="cannot tell whether old is an ancestor of HEAD; run `git fetch --unshallow`"):
        source_tree.commits(shallow, "old", "HEAD")


@pytest.mark.parametrize("setting", ["log.showSignature=true", "i18n.logOutputEncoding=latin1", "color.ui=always"])
def test_commits_are_listed_whatever_the_settings_of_git_are(checkout, setting):
    committed(checkout, "zweite Änderung")
    git(checkout, "config", *setting.split("="))
    assert subjects(checkout, "HEAD~1", "HEAD") == ["first", "zweite Änderung"]


def test_a_tree_is_no_end(checkout):
    with pytest.raises(SideError, match=r"git:HEAD\^\{tree\} is a tree without history; name a commit, branch or tag$"):
        source_tree.commits(checkout, "HEAD^{tree}", "HEAD")


def test_a_git_that_cannot_be_executed_is_as_none(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(source_tree.NoCheckout, match="git is not installed"):
        source_tree.checkout(tmp_path)
