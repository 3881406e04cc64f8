"""The temporary folder of the workers, and what killed runs have left."""

import os
import subprocess
import sys
import tempfile

import pytest

from tfbench.errors import SideError
from tfbench.fs import abandoned_scratch_dirs, remove_half_dirs
from tfbench.race import workers
from tfbench.race.workers import made_scratch, remove_scratch

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


def test_closing_removes_the_folder_and_the_processes_with_it_in_their_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "scratch_dir", lambda: tmp_path)
    folder = made_scratch()
    (folder / "left").touch()
    sleep, env = [sys.executable, "-c", "import time; time.sleep(1000)"], {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(sleep, env=env) as one, subprocess.Popen(sleep, env={**env, "TMPDIR": "/other"}) as other:
        remove_scratch(folder, str(tmp_path / "made"))
        assert one.wait(timeout=5) == -9
        assert other.poll() is None
        other.kill()
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_an_error_with_its_fix(monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workers, "scratch_dir", full)
    with pytest.raises(
        SideError, match=r"no temporary folder can be created in .*: No space left on device; make room"
    ):
        made_scratch()
