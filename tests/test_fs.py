"""Files and folders appear whole or not at all, and a lock has one holder."""

import errno
import os
import shutil
import stat
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from tfbench import fs
from tfbench.errors import ReportError, UsageError
from tfbench.fs import atomic_dir, check_outputs, locked, read_text, remove_half_dirs, try_lock, write_whole


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def place(tmp_path):
    return tmp_path / "deep" / "down" / "place"


@pytest.fixture
def filled(place):
    with atomic_dir(place) as folder:
        (folder / "file").write_text("old")
    return place


def test_a_folder_appears_when_it_is_complete_and_nothing_else_stays(place):
    before = len(os.listdir("/proc/self/fd"))
    for replace in (True, False):
        with atomic_dir(place, replace=replace) as folder:
            (folder / "file").touch()
            assert folder.parent.parent == place.parent  # one file system, so that renaming is atomic
            assert not place.exists()
        assert names(place.parent) == ["place", "place/file"]
        shutil.rmtree(place)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fs.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*report.json'"):
        write_whole(tmp_path / "report.json", "text")
    assert names(tmp_path) == []


def test_a_folder_that_exists_stays_unless_it_is_to_be_replaced(filled):
    with pytest.raises(OSError, match="place"), atomic_dir(filled) as folder:
        (folder / "other").touch()
    with pytest.raises(KeyError), atomic_dir(filled, replace=True):
        raise KeyError
    assert names(filled.parent) == ["place", "place/file"]
    with atomic_dir(filled, replace=True) as folder:
        (folder / "other").touch()
        assert names(filled) == ["file"]
    assert names(filled.parent) == ["place", "place/other"]


def test_a_half_made_folder_that_is_gone_before_it_is_locked_is_made_again(place, monkeypatch):
    made = []

    def mkdtemp(**where):
        made.append(real(**where))
        if len(made) == 1:
            os.rmdir(made[0])
        elif len(made) == 2:  # `open` finds a folder
            monkeypatch.setattr(fs, "hold", lambda *_: os.rmdir(made[1]) if os.path.isdir(made[1]) else None)
        return made[-1]

    real = tempfile.mkdtemp
    monkeypatch.setattr(fs.tempfile, "mkdtemp", mkdtemp)
    with atomic_dir(place) as folder:
        assert str(folder.parent) == made[2]
    assert place.is_dir()


def test_only_abandoned_half_made_folders_are_removed(tmp_path):
    left, other, linked = (tmp_path / name for name in (".half-left", "half-other", ".half-link"))
    left.mkdir()
    other.mkdir()
    linked.symlink_to(other)
    (left / "file").touch()
    with atomic_dir(tmp_path / "place") as folder:
        remove_half_dirs(tmp_path)
        assert folder.is_dir()
        assert not left.exists()
    assert names(tmp_path) == [".half-link", "half-other", "place"]


def test_the_folder_of_another_user_is_not_touched(tmp_path, monkeypatch):
    (tmp_path / ".half-theirs").mkdir()
    monkeypatch.setattr(fs.os, "getuid", lambda: os.geteuid() + 1)
    remove_half_dirs(tmp_path)
    assert names(tmp_path) == [".half-theirs"]


def test_an_abandoned_folder_is_locked_until_the_next_one(tmp_path):
    for name in "ab":
        (tmp_path / f".half-{name}").mkdir()
    descriptors = len(os.listdir("/proc/self/fd"))
    found = fs._abandoned(".half-", tmp_path, stat.S_ISDIR)
    first = next(found)
    assert list(fs._abandoned(".half-", tmp_path, stat.S_ISDIR)) == [tmp_path / ".half-b"]
    assert (first, next(found)) == (tmp_path / ".half-a", tmp_path / ".half-b")
    assert next(fs._abandoned(".half-", tmp_path, stat.S_ISDIR)) == first
    assert next(found, None) is None
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_file_system_without_locks_has_half_made_folders_too(place, monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fs, "hold", refuse)
    with atomic_dir(place):
        pass
    assert place.is_dir()


def test_the_scratch_folder_is_one_a_process_and_removed_by_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    registered = []
    monkeypatch.setattr(fs.atexit, "register", lambda *call: registered.append(call))
    folder = fs.scratch_dir.__wrapped__()
    assert (folder.parent, folder.name[:16]) == (tmp_path, "tfbench-scratch-")
    left = tmp_path / "tfbench-scratch-left"
    left.mkdir()
    assert list(fs.abandoned_scratch_dirs()) == [left]  # its own is locked
    ((remove, *given),) = registered
    assert given == [folder, os.getpid()]
    remove(folder, os.getpid() + 1)
    assert folder.is_dir()
    (folder / "file").touch()
    remove(*given)
    assert not folder.exists()
    remove(*given)


def test_a_lock_whose_file_is_removed_while_a_process_waits_is_taken_on_the_new_file(place, monkeypatch):
    first, take = locked(place), fs.hold

    def removed_meanwhile(file, **how):
        monkeypatch.setattr(fs, "hold", take)
        place.unlink()
        first.close()
        take(file, **how)

    monkeypatch.setattr(fs, "hold", removed_meanwhile)
    with locked(place):
        assert place.exists()
        assert try_lock(place) is None


def test_a_taken_lock_is_refused_until_it_is_closed(place):
    try_lock(place).close()
    place.write_text("kept")
    for _ in range(2):
        with locked(place):
            assert try_lock(place) is None
    try_lock(place).close()
    assert place.read_text() == "kept"


def test_another_tree_finds_this_package_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(fs, "scratch_dir", lambda: tmp_path)
    folder = fs.isolated_package_dir.__wrapped__()
    assert folder == str(tmp_path / "package")
    assert os.listdir(folder) == ["tfbench"]
    assert Path(folder, "tfbench").resolve() == Path(fs.__file__).resolve().parent
    monkeypatch.setattr(fs, "isolated_package_dir", lambda: folder)
    given = os.pathsep.join(["lib", "", "/abs"])
    assert fs.python_path(Path("/root"), given).split(os.pathsep) == [folder, "/root/lib", "/abs"]


def test_an_unreadable_file_is_named_with_its_reason(tmp_path):
    with pytest.raises(ReportError) as caught:
        read_text(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path / 'none'} cannot be read: No such file or directory"
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ReportError, match=r"bytes is not UTF-8 text; unpack it, or save it as UTF-8$"):
        read_text(tmp_path / "bytes")
    for mark in ("", "\ufeff"):
        (tmp_path / "good").write_bytes(f"{mark}größer".encode())
        assert read_text(tmp_path / "good") == "größer"


def test_a_named_pipe_is_refused_and_one_of_a_shell_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(ReportError, match="is a named pipe, which would be waited for; remove it"):
            read_text(tmp_path / name)
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    assert read_text(Path(f"/dev/fd/{reading}")) == "text"
    os.close(reading)


def test_a_file_is_on_disk_before_it_has_its_name(place, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(fs.os, "fsync", lambda file: (steps.append(os.fstat(file).st_size), fsync(file)))
    monkeypatch.setattr(fs.os, "replace", lambda old, new: (steps.append(Path(old).parent), replace(old, new)))
    write_whole(place, "größer\n")
    assert steps == [9, place.parent]  # whole on disk, then renamed within the folder
    assert place.read_bytes() == "größer\n".encode()
    assert stat.S_IMODE(place.stat().st_mode) == 0o644
    write_whole(place, "")
    assert names(place.parent) == ["place"]


def test_a_file_that_cannot_get_its_name_leaves_nothing(place, monkeypatch):
    write_whole(place, "old")

    def refuse(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fs.os, "replace", refuse)
    with pytest.raises(KeyboardInterrupt):
        write_whole(place, "new")
    assert (names(place.parent), place.read_text()) == (["place"], "old")


def test_a_folder_in_place_of_a_file_is_named_with_the_fix(place):
    place.mkdir(parents=True)
    with pytest.raises(OSError, match="this is a folder; name a file in it") as caught:
        write_whole(place, "text")
    assert caught.value.filename == str(place)  # no file that tfbench made up
    assert names(place.parent) == ["place"]


def test_a_place_that_cannot_be_written_is_named_by_the_users_word(place, monkeypatch):
    def refuse(prefix, dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), f"{dir}/{prefix}1")

    monkeypatch.setattr(fs.tempfile, "mkstemp", refuse)
    with pytest.raises(OSError, match="Read-only file system") as caught:
        write_whole(place, "text")
    assert (caught.value.errno, caught.value.filename) == (errno.EROFS, str(place))


def test_one_file_for_two_outputs_is_refused(place, monkeypatch):
    place.parent.mkdir(parents=True)
    monkeypatch.chdir(place.parent)
    check_outputs({"--html": place, "--markdown": None, "--report-json": "other"})
    with pytest.raises(UsageError, match=r"--html and --report-json both write \./place; name two files"):
        check_outputs({"--html": place, "--report-json": "./place"})


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ('{"schema":"tfbench-report/1",\n', True), ('{\n "schema": "tfbench-bisect/1",\n', True), ("", True),
        ("of two files\n\n| case | 1 | 2 |\n", True),
        ('{"$schema": "https://example.org", "name": "mine"}', False), ("import tfbench\n", False),
        ("<!DOCTYPE html>\n<html></html>\n", False), ("# tfbench: how we use it\n", False),
    ],
)  # fmt: skip
def test_only_an_output_of_tfbench_is_overwritten(tmp_path, text, own):
    (tmp_path / "r").write_text(text)
    with nullcontext() if own else pytest.raises(UsageError, match="tfbench has not written this file; remove it"):
        check_outputs({"--report-json": tmp_path / "r"})


@pytest.mark.parametrize("path", ["-", Path("-")])
def test_the_sign_of_the_standard_output_is_no_file(path):
    with pytest.raises(UsageError, match="--html writes a file, and - is none; name one"):
        check_outputs({"--html": path})
