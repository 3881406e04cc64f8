"""The temporary folder of the workers, and what killed runs have left."""

import os
import subprocess
import sys
import tempfile

import pytest

from tfbench import fs
from tfbench.errors import SideError
from tfbench.fs import abandoned_scratch_dirs, atomic_dir, remove_half_dirs
from tfbench.race import workers
from tfbench.race.workers import Scratch, end_processes

HOLDS = """
import os, sys, time
from tfbench.fs import atomic_dir, scratch_dir
from pathlib import Path

print(scratch_dir(), flush=True)
with atomic_dir(Path(sys.argv[1], "place")) as half:
    print(half, flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def holder(tmp_path):
    """A process with a scratch folder and a half-made folder, and the two folders."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, [process.stdout.readline().strip() for _ in range(2)]
        process.kill()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folders_of_a_killed_process_are_removed_and_those_of_a_running_one_stay(temporary, holder):
    process, (used, half) = holder
    assert list(abandoned_scratch_dirs()) == []
    remove_half_dirs(temporary)
    assert os.path.isdir(half)
    process.kill()
    process.wait()
    assert [str(folder) for folder in abandoned_scratch_dirs()] == [used]
    workers._remove_abandoned.__wrapped__()
    remove_half_dirs(temporary)
    assert list(temporary.iterdir()) == []


def test_links_and_files_of_that_name_are_not_touched(temporary):
    (temporary / "tfbench-scratch-link").symlink_to(temporary)
    (temporary / "tfbench-scratch-file").touch()
    assert list(abandoned_scratch_dirs()) == []


def test_a_half_made_folder_that_was_removed_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    made = []

    def mkdtemp(**where):
        made.append(real(**where))
        if len(made) == 1:
            os.rmdir(made[0])
            os.mkdir(made[0])  # `open` finds a folder
            monkeypatch.setattr(fs, "hold", lambda *_: os.rmdir(made[0]) if os.path.isdir(made[0]) else None)
        return made[-1]

    real = tempfile.mkdtemp
    monkeypatch.setattr(fs.tempfile, "mkdtemp", mkdtemp)
    with atomic_dir(tmp_path / "place") as half:
        assert str(half.parent) == made[1]
    assert (tmp_path / "place").is_dir()


def test_processes_with_the_folder_in_their_environment_are_killed(tmp_path):
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    env = {**os.environ, "TMPDIR": f"{tmp_path}/mine"}
    with subprocess.Popen(sleep, env=env) as one, subprocess.Popen(sleep, env={**env, "TMPDIR": "/other"}) as other:
        end_processes(tmp_path / "mine")
        assert one.wait(timeout=5) == -9
        assert other.poll() is None
        other.kill()


def test_closing_removes_the_folder_and_its_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "scratch_dir", lambda: tmp_path)
    opened = Scratch(str(tmp_path / "made"))
    opened.close()
    folder = opened.folder
    (folder / "left").touch()
    env = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], env=env) as process:
        opened.close()
        assert process.wait(timeout=5) == -9
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_an_error_with_its_fix(monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workers, "scratch_dir", full)
    with pytest.raises(
        SideError, match=r"no temporary folder can be created in .*: No space left on device; make room"
    ):
        Scratch("").folder  # noqa: B018
