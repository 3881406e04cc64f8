"""Shared set-ups, with real processes and files: who builds them, when they are rebuilt, and their errors."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tfbench.errors import BenchmarkError
from tfbench.worker import tf_runtime
from tfbench.worker.own_files import OwnFiles
from tfbench.worker.shared import Shared

OWN = OwnFiles(str(Path(__file__).parent))


def write(folder: Path, text: str = "made", source: Path | None = None) -> None:
    """Writes a file into the folder, and a line elsewhere for each call."""
    time.sleep(0.05)
    (folder / "deeper").mkdir()
    (folder / "deeper" / "file.txt").write_text(text + ((source / "deeper" / "file.txt").read_text() if source else ""))
    with Path(os.environ["TRACE"]).open("a") as trace:
        trace.write(f"{os.getpid()}\n")


def fail(folder: Path, how: str) -> None:
    (folder / "half.txt").write_text("half")
    if how == "raises":
        raise ValueError("no such model\nin two lines")
    os._exit(3)


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACE", str(tmp_path / "trace.txt"))
    return lambda: (tmp_path / "trace.txt").read_text().split()


def content(folder: Path) -> str:
    return (folder / "deeper" / "file.txt").read_text()


def test_a_set_up_is_built_once_in_a_process_of_its_own(tmp_path, trace):
    shared = Shared(tmp_path / "made", OWN)
    first, second = shared(write, "text"), Shared(tmp_path / "made", OWN)(write, "text")
    assert first == second
    assert content(first) == "text"
    (pid,) = trace()
    assert int(pid) != os.getpid()
    assert [path.name for path in (tmp_path / "made").iterdir() if path.name.startswith(".")] == []


def test_other_arguments_and_other_versions_lead_to_another_build(tmp_path, trace, monkeypatch):
    shared = Shared(tmp_path / "made", OWN)
    folders = [shared(write, "text"), shared(write, "other"), shared(write, "text", shared(write, "text"))]
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    for version in ("1.0", "2.0"):  # of whatever package: a build may use it
        record = tmp_path / "installed" / f"some_tool-{version}.dist-info"
        record.mkdir(parents=True)
        folders.append(shared(write, "text"))
        record.rmdir()
    assert len(set(folders)) == len(trace()) == 5
    assert content(folders[2]) == "texttext"


def test_processes_that_ask_at_the_same_time_build_once(tmp_path, trace):
    children = []
    for _ in range(3):
        if (pid := os.fork()) == 0:
            try:
                os._exit(content(Shared(tmp_path / "made", OWN)(write, "text")) != "text")
            finally:
                os._exit(9)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert len(trace()) == 1


@pytest.mark.parametrize(
    ("how", "reported"), [("raises", "ValueError: no such model$"), ("ends", "its process ended with status 3")]
)
def test_a_failed_build_is_reported_and_leaves_no_folder(tmp_path, how, reported):
    with pytest.raises(BenchmarkError, match=reported):
        Shared(tmp_path, OWN)(fail, how)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_changed_set_up_is_refused_with_the_fix(tmp_path, trace):
    shared = Shared(tmp_path, OWN)
    folder = shared(write)
    (folder / "deeper" / "file.txt").write_text("changed")
    with pytest.raises(
        BenchmarkError, match=r"file\.txt was changed after it was built; delete the folder to build it again"
    ):
        shared(write)
    (folder / "made.json").write_text("{")
    with pytest.raises(BenchmarkError, match=r"made\.json was changed"):
        shared(write)


def test_only_plain_arguments_are_accepted(tmp_path):
    for odd in (object(), np.eye(3)):  # an array has several lines
        with pytest.raises(BenchmarkError, match="pass strings, numbers and folders") as caught:
            Shared(tmp_path, OWN)(write, odd)
        assert not caught.value.rest


def test_shared_must_come_before_the_first_op_even_if_the_folder_exists(tmp_path, trace, monkeypatch):
    Shared(tmp_path, OWN)(write)
    monkeypatch.setattr(tf_runtime, "has_run_an_op", lambda: True)
    with pytest.raises(BenchmarkError, match="before the first op"):
        Shared(tmp_path, OWN)(write)


def read(folder: Path) -> None:
    """Writes what a file of the side's tree contains."""
    write(folder, Path(os.environ["TREE"], "data.txt").read_text())


@pytest.fixture
def side(tmp_path, trace, monkeypatch):
    """Returns the content of a set-up that is built from a file of this tree."""

    def ask(tree, text, other=""):
        (tmp_path / tree).mkdir(exist_ok=True)
        (tmp_path / tree / "data.txt").write_text(text)
        (tmp_path / tree / "other.txt").write_text(other)
        monkeypatch.setenv("TREE", str(tmp_path / tree))
        own = OwnFiles(str(tmp_path / tree))
        own.watch()
        folder = Shared(tmp_path / "made", own)(read)
        own.rest()
        assert "data.txt" in own.read()  # also if an earlier launch has read it, see --changed-only
        return content(folder), len(trace())

    return ask


def test_two_trees_with_the_same_files_share_a_build_and_other_files_lead_to_another(side):
    assert side("a", "first") == ("first", 1)
    assert side("b", "first", "not read by the build") == ("first", 1)
    assert side("b", "second") == ("second", 2)
    assert side("a", "first") == ("first", 2)


def test_a_module_that_is_loaded_counts_as_read(tmp_path, trace, monkeypatch):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "helper_of_a_build.py").write_text("TEXT = 'first'\n")
    monkeypatch.syspath_prepend(tmp_path / "tree")
    monkeypatch.delitem(sys.modules, "helper_of_a_build", raising=False)
    __import__("helper_of_a_build")
    shared = Shared(tmp_path / "made", OwnFiles(str(tmp_path / "tree")))
    first = shared(write)
    assert shared(write) == first
    (tmp_path / "tree" / "helper_of_a_build.py").write_text("TEXT = 'second'\n")
    assert shared(write) != first
    assert len(trace()) == 2


def test_where_reads_cannot_be_noted_every_file_of_the_tree_counts(tmp_path, trace, monkeypatch):
    monkeypatch.setattr(OwnFiles, "watch", lambda own: None)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("a")
    shared = Shared(tmp_path / "made", OwnFiles(str(tree)))
    first = shared(write)
    assert shared(write) == first
    (tree / "a.txt").write_text("b")
    assert shared(write) != first
