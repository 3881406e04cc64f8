"""Cases that need environments of their own: their order, and when their zygotes end."""

from __future__ import annotations

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
    assert len((project.root / "zygotes").read_text().split()) == 4
    assert set((project.root / "seen").read_text().splitlines()) == {"one 2", "two 2"}


def test_variants_that_race_each_other_keep_their_order_and_their_zygotes(project):
    done = project.run()
    assert list(done.outcomes()) == [
        f"test_{name}[start={start}]" for name in ("first", "second") for start in ("one", "two")
    ]
    assert len((project.root / "zygotes").read_text().split()) == 2
    assert set((project.root / "seen").read_text().splitlines()) == {"one 2", "two 2"}
