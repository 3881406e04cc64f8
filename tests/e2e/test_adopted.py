"""Plain tests of pytest-benchmark race like benchmarks of tfbench, and each wrong use is a row with its reason."""

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.project import Project

FOLDER = Path(__file__).parent / "adopted"
PREAMBLE = """
import threading
import pytest

def fine():
    return sum(range(300))
"""
BROKEN = {
    "never_calls": ("fine()", "never called benchmark(function, ...)"),
    "in_a_thread": ("t = threading.Thread(target=benchmark, args=(fine,)); t.start(); t.join()", "in the thread"),
    "asserts": ("assert benchmark(fine) == 1", "after it had been timed: assert"),
    "counts_calls": ("calls = []; benchmark(lambda: calls.append(1)); assert calls == [1]", "a test must not count its calls"),
    "asserts_stats": ("benchmark(fine); assert benchmark.stats['mean'] < 1e-12", "holds the times of this launch alone"),
}  # fmt: skip
"""Name -> body of a wrong test, and text of its reason. Unit tests have the other ones."""
CLASSES = """
class TestConstructor:
    def __init__(self):
        raise ValueError("never reached")

    def test_x(self, benchmark):
        benchmark(fine)


class TestSetup:
    def setup_method(self):
        raise ValueError("no set-up here")

    def test_x(self, benchmark):
        benchmark(fine)


async def test_async(benchmark):
    benchmark(fine)
"""
FOREIGN = """
import os
import pytest

HERE = os.environ["CONTROLLER"]

@pytest.fixture(scope="session", autouse=True)
def expensive():
    assert str(os.getppid()) != HERE and "PYTEST_CURRENT_TEST" in os.environ
    with open("ran", "a") as file:
        file.write(os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "") + "\\n")

@pytest.fixture
def benchmark(benchmark):
    benchmark.group = "theirs"
    return benchmark
"""
MIXED = """
import unittest
import pytest

def test_ours(bench):
    bench(sum, range(300))

@pytest.mark.parametrize("n", [300], ids=["n: 300/x"])
def test_theirs(benchmark, n):
    benchmark.extra_info["n"] = n
    assert benchmark(sum, range(n)) == sum(range(n))
    benchmark.extra_info["after"] = True

class Theirs(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, benchmark):
        self.benchmark = benchmark

    def test_method(self):
        self.benchmark(sum, range(300))

def test_no_benchmark():
    raise AssertionError("not touched")
"""


ROUNDS = """
import dataclasses

from tfbench import policy

policy.PRESETS["quick"] = dataclasses.replace(policy.PRESETS["quick"], rounds_max=150)
"""


@pytest.mark.slow
def test_each_wrong_use_is_an_error_with_its_reason(project):
    bodies = "".join(f"def test_{name}(benchmark):\n    {body}\n\n" for name, (body, _) in BROKEN.items())
    project.write(f"{PREAMBLE}{bodies}{CLASSES}\n\ndef test_fine(benchmark):\n    benchmark(fine)\n")
    done = project.run("--against", "self")
    assert done.code == 1
    rows = {row["case"].partition("::")[2]: row for row in done.report["verdicts"] if row["metric"] == "time"}
    assert rows.pop("test_fine")["outcome"] in ("unchanged", "inconclusive")
    assert {row["outcome"] for row in rows.values()} == {"error"}, done.output
    for name, (_, reason) in BROKEN.items():
        assert reason in rows[f"test_{name}"]["reason"]["message"]
    assert "has a constructor (__init__)" in rows["TestConstructor"]["reason"]["message"]
    assert "no set-up here" in rows["TestSetup::test_x"]["reason"]["message"]
    assert "async def functions" in rows["test_async"]["reason"]["message"]
    assert done.report["complete"]


@pytest.mark.smoke
@pytest.mark.slow
def test_ours_and_theirs_race_and_their_fixtures_run_in_measuring_processes_only(project, monkeypatch):
    project.write(MIXED)
    project.write('import os\nos.environ.setdefault("CONTROLLER", str(os.getpid()))\n' + FOREIGN, "conftest.py")
    stored = project.root / "stored.json"
    done = project.run("--against", "self", "--inject-slowdown", "0.5", f"--benchmark-json={stored}")
    names = {"test_ours", "test_theirs[n: 300/x]", "test_method"}
    assert done.outcomes() == dict.fromkeys(names, "regressed"), done.output
    assert "test_no_benchmark" in done.output  # left out, and named
    assert set((project.root / "ran").read_text().split()) == {"1"}
    assert not [row for row in done.report["verdicts"] if row["metric"] == "live_tensors"]


@pytest.mark.slow
def test_their_groups_and_notes_reach_pytest_benchmark(project):
    project.write(MIXED)
    project.write(ROUNDS, "conftest.py")
    stored = project.root / "stored.json"
    project.run("--against", "self", f"--benchmark-json={stored}", "-k", "theirs", "-m", "not slow")
    found = {one["name"]: one for one in json.loads(stored.read_text())["benchmarks"]}
    assert {"n": 300, "after": True}.items() <= found["test_theirs[n: 300/x]"]["extra_info"].items()
    assert found["test_theirs[n: 300/x]"]["stats"]["rounds"] > 100


@pytest.mark.slow
def test_without_a_side_they_behave_as_ever_and_a_baseline_has_them(project):
    project.write(MIXED)
    done = project.run("-k", "theirs")
    assert done.report["verdicts"] == []
    assert "2 passed" in done.output
    kept = project.run("--history", "-k", "theirs")
    assert "pytest-benchmark's numbers are not kept in the history; add --against or --baseline" in kept.output
    saved = project.run("--save-baseline", "then", "-k", "theirs")
    assert set(saved.outcomes()) == {"test_theirs[n: 300/x]", "test_method"}
    again = project.run("--baseline", "then", "--replay", "never", "-k", "theirs")
    assert set(again.outcomes()) == {"test_theirs[n: 300/x]", "test_method"}, again.output


@pytest.fixture
def foreign(tmp_path):
    """A project of others: its tests, and no file of ours."""
    project = Project(tmp_path)
    shutil.rmtree(project.root / "benchmarks")
    for file in FOLDER.glob("test_*.py"):
        shutil.copy(file, project.root)
    return project


@pytest.mark.tensorflow
def test_a_folder_of_plain_tests_is_raced_as_it_is(foreign):
    slower = foreign.run("--against", "self", "--inject-slowdown", "0.5", "--policy", "quick")
    found = list(slower.outcomes().values())
    assert (len(found), slower.code, slower.report["complete"]) == (6, 1, True), slower.output
    assert found.count("regressed") > 4, slower.output  # the rest undecided, where other processes are busy
    assert set(found) <= {"regressed", "inconclusive"}, slower.output
