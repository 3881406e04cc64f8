"""Plain tests of pytest-benchmark race like benchmarks of tfbench, and each wrong use is a row with its reason."""

import json

import pytest

PREAMBLE = """
import threading
import pytest

def fine():
    return sum(range(300))
"""
BROKEN = {
    "in_a_thread": ("t = threading.Thread(target=benchmark, args=(fine,)); t.start(); t.join()", "in the thread"),
    "asserts": ("assert benchmark(fine) == 1", "after it had been timed: assert"),
    "counts_calls": ("calls = []; benchmark(lambda: calls.append(1)); assert calls == [1]", "a test must not count its calls"),
    "asserts_stats": ("benchmark(fine); assert benchmark.stats['mean'] < 1e-12", "holds the times of this launch alone"),
}  # fmt: skip
"""Name -> body of a wrong test, and text of its reason. Unit tests have the other ones."""
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


@pytest.mark.slow
def test_each_wrong_use_is_an_error_with_its_reason(project):
    bodies = "".join(f"def test_{name}(benchmark):\n    {body}\n\n" for name, (body, _) in BROKEN.items())
    project.write(f"{PREAMBLE}{bodies}def test_fine(benchmark):\n    benchmark(fine)\n")
    done = project.run("--against", "self")
    assert done.code == 1
    rows = {row["case"].partition("::")[2]: row for row in done.report["verdicts"] if row["metric"] == "time"}
    assert rows.pop("test_fine")["outcome"] in ("unchanged", "inconclusive")
    assert {row["outcome"] for row in rows.values()} == {"error"}, done.output
    for name, (_, reason) in BROKEN.items():
        assert reason in rows[f"test_{name}"]["reason"]["message"]
    assert done.report["complete"]


@pytest.mark.smoke
@pytest.mark.slow
def test_ours_and_theirs_race_and_their_fixtures_run_in_measuring_processes_only(project, monkeypatch):
    project.write(MIXED)
    project.write('import os\nos.environ.setdefault("CONTROLLER", str(os.getpid()))\n' + FOREIGN, "conftest.py")
    done = project.run("--against", "self", "--inject-slowdown", "0.5")
    names = {"test_ours", "test_theirs[n: 300/x]", "test_method"}
    assert done.outcomes() == dict.fromkeys(names, "regressed"), done.output
    assert "test_no_benchmark" in done.output  # left out, and named
    assert set((project.root / "ran").read_text().split()) == {"1"}
    assert not [row for row in done.report["verdicts"] if row["metric"] == "live_tensors"]


@pytest.mark.slow
def test_without_a_side_they_behave_as_ever_and_a_baseline_has_them(project):
    project.write(MIXED)
    done = project.run("-k", "theirs")
    assert done.report["verdicts"] == []
    assert "2 passed" in done.output
    kept = project.run("--history", "-k", "theirs")
    assert "pytest-benchmark's numbers are not kept in the history; add --against or --baseline" in kept.output
    stored = project.root / "stored.json"
    saved = project.run("--save-baseline", "then", "-k", "theirs", f"--benchmark-json={stored}")
    assert set(saved.outcomes()) == {"test_theirs[n: 300/x]", "test_method"}
    found = {one["name"]: one["extra_info"] for one in json.loads(stored.read_text())["benchmarks"]}
    assert {"n": 300, "after": True}.items() <= found["test_theirs[n: 300/x]"].items()
    again = project.run("--baseline", "then", "--replay", "never", "-k", "theirs")
    assert set(again.outcomes()) == {"test_theirs[n: 300/x]", "test_method"}, again.output


TENSORFLOW = """
import pytest
import tensorflow as tf

assert tf.TensorSpec([None, 4], tf.float32).shape.rank == 2  # not known without TensorFlow either

def test_function(benchmark):
    x, w = tf.ones([64, 128]), tf.ones([128, 64])
    assert benchmark(tf.function(lambda x, w: tf.nn.relu(tf.matmul(x, w))), x, w).shape == (64, 64)

@pytest.mark.parametrize("op", [tf.nn.conv2d])  # its id is not known without TensorFlow
def test_op(benchmark, op):
    benchmark(op, tf.ones([1, 24, 24, 8]), tf.ones([3, 3, 8, 8]), strides=1, padding="SAME")

class TestModel:
    @pytest.fixture(autouse=True)
    def _build(self):
        self.model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(8)])

    def test_inference(self, benchmark):
        benchmark(tf.function(self.model), tf.ones([32, 64]))
"""


@pytest.mark.tensorflow
def test_a_folder_of_plain_tests_is_raced_as_it_is(project):
    (project.root / "benchmarks").rmdir()
    project.write(TENSORFLOW, "test_theirs.py")
    slower = project.run("--against", "self", "--inject-slowdown", "0.5", "--policy", "quick")
    found = list(slower.outcomes().values())
    assert (len(found), slower.code, slower.report["complete"]) == (3, 1, True), slower.output
    assert found.count("regressed") > 1, slower.output  # the rest undecided, where other processes are busy
    assert set(found) <= {"regressed", "inconclusive"}, slower.output
    assert "test_theirs.py was collected with the real TensorFlow, because its import uses" in " ".join(
        slower.output.split()
    )
