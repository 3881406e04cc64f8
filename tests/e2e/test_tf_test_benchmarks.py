"""Classes of ``tf.test.Benchmark`` in the files that the ini option names."""

import json

import pytest

from tests.e2e.project import Project
from tests.e2e.test_other_metrics import QUICKLY

CLASSES = """
import time

import tensorflow as tf
from absl import flags
from tensorflow.python.client import session
from tensorflow.python.framework import ops

flags.DEFINE_integer("small_size", 48, "size of the small product")


class SessionBenchmark(tf.test.Benchmark):
    def benchmarkProducts(self):
        for size in (flags.FLAGS.small_size, 64):
            with ops.Graph().as_default():
                x = tf.random.uniform([size, size])
                with session.Session() as sess:
                    found = self.run_op_benchmark(sess, tf.matmul(x, x).op, min_iters=5, name=f"size{size}")
                    assert found["wall_time"] > 0

    def helper(self):
        raise AssertionError


class LoopBenchmark(tf.test.Benchmark, metaclass=tf.__internal__.test.ParameterizedBenchmark):
    _benchmark_parameters = [("small", 100), ("large", 10000)]

    def benchmark_add(self, size):
        x = tf.ones([size])
        began = time.perf_counter()
        for _ in range(500):
            x + x
        self.report_benchmark(iters=500, wall_time=(time.perf_counter() - began) / 500, extras={"batch": 8})
        with open(f"ran-{size}", "a") as file:
            file.write("x")


class OnGpu(tf.test.Benchmark):
    def benchmark_gpu(self):
        if tf.config.list_physical_devices("GPU"):
            self.report_benchmark(wall_time=1.0)
"""


@pytest.mark.tensorflow
def test_their_ops_take_turns_and_their_reported_times_are_compared_launch_by_launch(project: Project):
    project.write(CLASSES, "ops_benchmark.py")
    project.write(QUICKLY, "conftest.py")
    project.write("[pytest]\ntfbench_tf_test_benchmarks =\n    *_benchmark.py\n", "pytest.ini")
    done = project.run("--against", "self", f"--benchmark-json={project.root}/stored.json")
    found = done.outcomes()
    names = {
        "SessionBenchmark.benchmarkProducts",
        *(f"LoopBenchmark.benchmark_add__{size}" for size in ("small", "large")),
    }
    assert found.keys() == names, done.output
    assert "regressed" not in found.values()
    assert "one time per launch" in done.reason("LoopBenchmark.benchmark_add__small")
    assert "one time per launch" not in done.reason("SessionBenchmark.benchmarkProducts")
    # A method that takes its own time runs in timed launches only.
    row, *others = [row for row in done.report["verdicts"] if "add__small" in row["case"]]
    assert (row["metric"], {other["metric"] for other in others} - {"import", "import_memory"}) == ("time", set())
    assert len((project.root / "ran-100").read_text()) == 2 * row["launches"]
    stored = {
        one["name"]: one["extra_info"] for one in json.loads((project.root / "stored.json").read_text())["benchmarks"]
    }
    assert stored["LoopBenchmark.benchmark_add__small"]["0"] == {"extras": {"batch": 8}}
    (skipped,) = done.report["skips"]
    assert "reported no wall_time" in skipped["reason"]
    slower = project.run("--against", "self", "--inject-slowdown", "0.3", "-k", "Products or small")
    assert slower.outcomes()["SessionBenchmark.benchmarkProducts"] == "regressed", slower.output
    assert "cannot slow down a method that loops by itself" in slower.reason("LoopBenchmark.benchmark_add__small")


UNLISTED = """
import tensorflow as tf
from tensorflow.python.framework import test_util


class Plain(tf.test.Benchmark):
    def benchmark_x(self):
        self.report_benchmark(wall_time=1.0)


def test_ours(bench):
    bench(sum, range(300))
"""


@pytest.mark.slow
def test_classes_in_files_that_the_ini_option_does_not_name_are_left_out_with_a_note(project: Project):
    project.write(UNLISTED)
    done = project.run("--against", "self", "-W", "error::pytest.PytestCollectionWarning")
    assert list(done.outcomes()) == ["test_ours"], done.output
    assert (
        "left out, because tfbench_tf_test_benchmarks in the ini file does not name them: "
        "benchmarks/test_mine.py (Plain)"
    ) in done.output
