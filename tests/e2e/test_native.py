"""Native code and ignored modules of the working tree that the other commit has loaded, or lacks."""

import pytest

from tests.fakes.libraries import library

MINE = """
    import ctypes
    import os
    import time

    import native

    def test_mine(bench):
        bench(lambda: time.sleep(0.002) or 1)
"""
BY_PATH = "import ctypes, os\nctypes.CDLL(os.environ['MY_OPS'])\n"
IN_PLACE = (
    "import ctypes, pathlib\nfile = pathlib.Path(__file__).with_name('fast.so')\nfile.exists() and ctypes.CDLL(file)\n"
)


@pytest.mark.parametrize(
    ("source", "text"),
    [(BY_PATH, "the baseline side (git:HEAD) has loaded"), (IN_PLACE, "only the contender side has loaded")],
)
def test_native_code_that_is_no_part_of_both_commits_is_incomparable(project, monkeypatch, source, text):
    project.write(MINE)
    project.write(source, "native.py")
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.write("*.so\n", ".gitignore")
    project.commit("before")
    monkeypatch.setenv("MY_OPS", str(library(project.root / "fast.so")))
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_mine": "incomparable"}
    assert done.reason("test_mine").startswith(f"{text} fast.so")
    assert done.metrics("test_mine") == {"time": "incomparable"}


BY_VARIABLE = """
    import os
    import time
    from pathlib import Path

    SECONDS = float(Path(os.environ["PWD"], "seconds.txt").read_text())

    def test_mine(bench):
        bench(lambda: time.sleep(SECONDS) or 1)
"""


@pytest.mark.slow
def test_code_that_asks_the_environment_for_its_folder_finds_that_of_its_side(project, monkeypatch):
    monkeypatch.setenv("PWD", str(project.root))  # as a shell sets it
    project.write(BY_VARIABLE)
    project.write("0.002\n", "seconds.txt")
    project.commit("before")
    project.write("0.004\n", "seconds.txt")
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_mine": "regressed"}, done.output


GENERATED = """
    import time

    try:
        from generated import SECONDS
    except ImportError:
        SECONDS = 0.004

    def test_mine(bench):
        bench(lambda: time.sleep(SECONDS) or 1)
"""


@pytest.mark.slow
def test_a_module_that_git_ignores_and_that_the_other_commit_replaces_is_incomparable(project):
    project.write(GENERATED)
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.write("generated.py\n", ".gitignore")
    project.commit("before")
    project.write("SECONDS = 0.002\n", "generated.py")
    done = project.run("--against", "git:HEAD")
    assert done.outcomes() == {"test_mine": "incomparable"}, done.output
    assert done.reason("test_mine").startswith("only the contender side has generated.py, which git ignores")
    assert done.code == 1
