"""An interrupted run goes on with ``--resume``."""

import signal

import pytest

pytestmark = pytest.mark.slow

CODE = """
import os
from pathlib import Path
from tests.fakes.steps import taking

SIZE = os.environ.get("SIZE")

def test_first(bench):
    with open("measured.txt", "a") as file:
        file.write("first ")
    bench(taking(bench, 1e-5))

def test_second(bench):
    import time
    Path("here").touch()
    if not Path("go").exists():
        time.sleep(60)
    bench(taking(bench, 1e-5))
"""


def interrupted(project, ending):
    project.write(CODE)
    project.write("measured.txt\nhere\ngo\n__pycache__\n", ".gitignore")
    project.commit("first")
    project.write("1", "data.txt")
    project.write("", "report.json")
    done = project.ended_by(ending, "here", "--against", "self")
    (project.root / "go").touch()
    assert ending == signal.SIGKILL or "with --resume goes on" in done.output
    return launches(project)


def launches(project):
    return (project.root / "measured.txt").read_text().count("first")


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_finished_cases_are_used_again(project, ending):
    before = interrupted(project, ending)
    done = project.run("--against", "self", "--resume")
    assert done.code == 0, done.output
    assert launches(project) == before
    assert "1 of 2 cases taken from the interrupted run" in done.output
    assert done.outcomes() == {"test_first": "unchanged", "test_second": "unchanged"}
    assert done.report["complete"] is True
    assert "first_call" in done.metrics("test_first")
    assert not (project.root / ".tfbench/journal.jsonl").exists()
    again = project.run("--against", "self", "--resume", "--save-baseline", "x")
    assert "there is no interrupted run" in again.output
