"""Which code a side races, in real git repositories and outside of them."""

from pathlib import Path

import pytest

from tests.sides.test_source_tree import checkout, commit, git
from tfbench.errors import SideError
from tfbench.fs import DATA_FOLDER
from tfbench.sides.environments import Environments
from tfbench.sides.source_tree import SOURCES, Snapshot, code_of, snapshot, working_code
from tfbench.sides.spec import Side, parse

__all__ = ["checkout"]  # a fixture


def head(root):
    return Snapshot(git(root, "rev-parse", "HEAD^{tree}"), git(root, "rev-parse", "HEAD"), dirty=False)


def test_a_clean_checkout_races_its_commit(checkout):
    (checkout / "ignored").write_text("x")
    assert snapshot(checkout) == head(checkout)
    (checkout / "report.json").write_text("{}")  # of an earlier run
    assert working_code(checkout / "sub") == head(checkout)


@pytest.mark.parametrize("file", ["sub/a.py", "new.py"])
def test_a_changed_checkout_is_dirty_and_has_a_tree_of_its_own(checkout, file):
    (checkout / file).write_text("two")
    found = working_code(checkout)
    assert (found.commit, found.dirty) == (head(checkout).commit, True)
    assert found.tree != head(checkout).tree
    commit(checkout, "second")
    assert working_code(checkout) == Snapshot(found.tree, git(checkout, "rev-parse", "HEAD"), dirty=False)


def test_a_repository_without_a_commit_has_a_tree(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x")
    found = working_code(tmp_path)
    assert (found.commit, found.dirty, len(found.tree)) == ("", True, 40)


def test_without_git_the_sources_are_digested(tmp_path):
    def of(name, files):
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return working_code(tmp_path / name)

    code = {"a.py": "x = 1", "b/c.toml": "y"}
    found = of("one", code)
    assert found.tree.startswith(SOURCES)
    assert (found.commit, found.dirty) == ("", False)
    others = {"r.json": "{}", ".hidden/a.py": "x", "env/pyvenv.cfg": "", "env/a.py": "z", f"{DATA_FOLDER}/x.py": "1"}
    assert of("two", code | others) == found
    for number, changed in enumerate([{"a.py": "x = 2"}, {"b/d.py": ""}]):
        assert of(f"changed {number}", code | changed) != found
    assert of("moved", {"A.py": "x = 1", "b/c.toml": "y"}) != found


def test_a_file_that_cannot_be_read_or_named_stops_no_digest(tmp_path):
    (tmp_path / "a.py").symlink_to(tmp_path / "none.py")
    Path(tmp_path, "\udcff.py").write_text("x")
    assert working_code(tmp_path).tree.startswith(SOURCES)


def test_a_revision_is_a_commit_and_its_tree(checkout):
    first = head(checkout)
    (checkout / "sub/a.py").write_text("two")
    git(checkout, "commit", "-qam", "second")
    assert [code_of(checkout, one) for one in ("HEAD~1", first.commit, "HEAD")] == [first, first, head(checkout)]
    assert code_of(checkout, first.tree) == Snapshot(first.tree, "", dirty=False)
    with pytest.raises(SideError, match="no such revision"):
        code_of(checkout, "none")


def test_the_sides_of_a_specification_tell_their_code(checkout, tmp_path):
    code = working_code(checkout)
    contender = Side("contender", "python", checkout, code=code)
    (checkout / "sub/a.py").write_text("two")
    git(checkout, "commit", "-qam", "second")
    sides = [
        parse(spec, contender, tmp_path / "cache", Environments(Path("/nowhere"))) for spec in ("git:HEAD", "env:A=1")
    ]
    assert [side.code for side in sides] == [head(checkout), code]
