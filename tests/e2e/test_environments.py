"""Cases that need environments of their own: their order, and when their zygotes end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.project import Project

BENCHMARKS = """
    import os, pathlib

    from tests.fakes.steps import taking
    from tfbench import Axis, Level, across

    START = Axis("start", Level("one"), Level("two", env={"START": "two"}))

    def alive(pid):
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return False
        return True

    @across(START)
    def test_first(bench, variant):
        bench(taking(bench, 1e-5))

    @across(START)
    def test_second(bench, variant):
        zygotes = pathlib.Path("zygotes").read_text().split()
        with open("seen", "a") as file:
            print(os.environ.get("START", "one"), sum(map(alive, zygotes)), file=file)
        bench(taking(bench, 1e-5))
"""
NOTES_ITS_ZYGOTES = """
    import os, sys

    if "tfbench.worker.zygote" in sys.modules:
        with open("zygotes", "a") as file:
            print(os.getpid(), file=file)
"""


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    made.write(BENCHMARKS)
    made.write(NOTES_ITS_ZYGOTES, "benchmarks/conftest.py")
    return made


def test_where_sides_race_one_environment_after_the_other_is_raced_and_released(project):
    done = project.run("--against", "self")
    assert list(done.outcomes()) == [
        f"test_{name}[start={start}]" for start in ("one", "two") for name in ("first", "second")
    ]
    assert set(done.outcomes().values()) == {"unchanged"}, done.output
    started = len((project.root / "zygotes").read_text().split())  # more than four if imports are read again
    seen = [line.split() for line in (project.root / "seen").read_text().splitlines()]
    assert {start for start, _ in seen} == {"one", "two"}
    assert max(int(alive) for _, alive in seen) <= started - 2  # those of the first environment have ended


def test_variants_that_race_each_other_keep_their_order_and_their_zygotes(project):
    done = project.run()
    assert list(done.outcomes()) == [
        f"test_{name}[start={start}]" for name in ("first", "second") for start in ("one", "two")
    ]
    assert len((project.root / "zygotes").read_text().split()) == 2
    assert set((project.root / "seen").read_text().splitlines()) == {"one 2", "two 2"}


THREADED = """
    import os, pathlib

    from tests.fakes.steps import taking

    def test_plain(bench):
        pathlib.Path(f"seen-{os.environ.get('OPENBLAS_NUM_THREADS', '')}").touch()
        bench(taking(bench, 1e-5))
"""


def test_a_sides_number_of_threads_reaches_its_processes_alone_and_is_at_most_that_of_its_processors(project):
    project.write(THREADED)
    done = project.run("--against", "env:OPENBLAS_NUM_THREADS=1")
    assert done.outcomes() == {"test_plain": "unchanged"}, done.output
    assert {file.name for file in project.root.glob("seen-*")} == {"seen-", "seen-1"}
    (project.root / "seen-").unlink()
    done = project.run("--against", "env:OMP_NUM_THREADS=2")
    text = "baseline: OMP_NUM_THREADS=2 asks for 2 threads on 1 processor, where they would wait for each other"
    assert (done.code, text in done.output) == (4, True), done.output
    assert not (project.root / "seen-").exists()  # no process has started


BUSY = "def work():\n    return sum(range({size}))\n"
IMPORTING = """
    from busy import work


    def test_mine(bench):
        bench(work)


    def test_late(bench):
        import other

        bench(other.work)
"""


def install(folder: Path, name: str, version: str, size: int) -> None:
    """Install a distribution with one module, as pip does."""
    (folder / f"{name}.py").write_text(BUSY.format(size=size))
    for earlier in folder.glob(f"{name}-*"):
        shutil.rmtree(earlier)
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "RECORD").write_text(f"{name}.py,,\n")
    (facts / "top_level.txt").write_text(f"{name}\n")


@pytest.mark.slow
def test_a_baseline_knows_each_package_that_its_benchmarks_import(project, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    for name in ("busy", "other", "unused"):
        install(folder, name, "1.0", 1000)
    given = project.environment()
    monkeypatch.setattr(
        project, "environment", lambda: {**given, "PYTHONPATH": f"{given['PYTHONPATH']}:{folder}", "UV_OFFLINE": "1"}
    )
    project.forked = False  # the path is read when Python starts
    project.write(IMPORTING)
    project.write("site-packages\n", ".gitignore")
    project.commit("benchmarks")
    assert project.run("--save-baseline", "main").code == 0
    install(folder, "unused", "2.0", 1)
    assert project.run("--baseline", "main").outcomes() == {"test_mine": "unchanged", "test_late": "unchanged"}
    install(folder, "other", "2.0", 3000)
    done = project.run("--baseline", "main")
    assert set(done.outcomes().values()) == {"incomparable"}, done.output
    assert "other 1.0 there, 2.0 here" in done.reason("test_mine")
