"""The main job once on real TensorFlow: race the variants, save a baseline, gate against it, detect a slowdown."""

import json

import pytest

from tests.e2e.project import Project
from tests.report.test_html_page import unpacked

pytestmark = [pytest.mark.tensorflow, pytest.mark.smoke]
BENCHMARK = """
    import tensorflow as tf
    from tfbench import Axis, Level, across

    COMPILER = Axis("compiler",
        Level("none", compile=lambda function: tf.function(function, jit_compile=False)),
        Level("xla", compile=lambda function: tf.function(function, jit_compile=True)))

    @across(COMPILER)
    def test_square(bench, variant):
        x = tf.random.stateless_normal([96, 96], [1, 2])
        bench(variant.compile(lambda a: tf.nn.relu(tf.matmul(a, a))), x, flops=2 * 96**3)

    ONEDNN = Axis("onednn", Level("off", env={"TF_ENABLE_ONEDNN_OPTS": "0"}), Level("on", env={"TF_ENABLE_ONEDNN_OPTS": "1"}))

    @across(ONEDNN)
    def test_setting(bench, variant):
        import os
        assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == ("1" if variant["onednn"] == "on" else "0")
        assert tf.config.threading.get_intra_op_parallelism_threads() == 1
        bench(tf.add, tf.constant(1.0), tf.constant(2.0))

    class Scale(tf.keras.layers.Layer):
        def call(self, x):
            return 2 * x

    def test_keras(bench):
        bench(Scale(), tf.ones([8]))
"""
NO_TENSORFLOW_HERE = """
    import sys

    def pytest_sessionfinish(session):
        print("imported:", "tensorflow" in sys.modules)
"""
PLAIN = "test_square[compiler=none]"
XLA = "test_square[compiler=xla]"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("smoke"))
    project.write(BENCHMARK)
    project.write(NO_TENSORFLOW_HERE, "conftest.py")
    project.commit("first")
    return project


@pytest.fixture(scope="module")
def saved(project):
    """The run that saves a baseline."""
    done = project.run("-s", "--save-baseline", "first", f"--benchmark-json={project.root}/plain.json")
    assert done.code == 0, done.output
    return done


@pytest.fixture(scope="module")
def slowed(project, saved):
    """A run against the baseline that is slower by half, and the result of `tfbench gate`."""
    files = ("--report-html=r.html", "--report-markdown=r.md")
    done = project.run("--baseline", "first", "--inject-slowdown", "0.5", "-k", "none", *files)
    return done, project.tfbench("gate", "report.json")


def test_variants_race_and_are_new_without_a_baseline(saved):
    others = ("test_setting[onednn=off]", "test_setting[onednn=on]", "test_keras")
    assert saved.outcomes() == dict.fromkeys((PLAIN, XLA, *others), "new")
    reference, other, *_ = saved.report["variant_results"]
    assert ("ratio" in reference, other["reference"]) == (False, reference["case"])
    assert 0.1 < other["ratio"]["center"] < 10
    assert other["facts"]["flops"] == 2 * 96**3
    assert other["facts"]["first_call"] > 0
    assert "imported: False" in saved.output
    side = saved.report["sides"]["contender"]
    assert 0.5 < side["import_seconds"] < 60
    assert "TF_ENABLE_ONEDNN_OPTS" not in side["settings"]


def test_a_baseline_and_the_file_of_pytest_benchmark_are_saved(project, saved):
    content = json.loads((project.root / ".tfbench/baselines/first.json").read_text())
    assert content["tfbench"]["context"]["environment"]["packages"]["tensorflow"].startswith("2.")
    rows = json.loads((project.root / "plain.json").read_text())["benchmarks"]
    assert [row["params"] for row in rows[:2]] == [{"compiler": "none"}, {"compiler": "xla"}]


def test_an_injected_slowdown_fails_the_gate(slowed):
    done, gated = slowed
    assert (done.code, done.outcomes()[PLAIN]) == (1, "regressed"), done.output
    assert "found twice" in done.reason(PLAIN)
    assert gated.returncode == 1, gated.stdout + gated.stderr


def test_reports_for_people_show_the_regression_and_pytest_benchmark_is_silent(project, slowed):
    done, _ = slowed
    assert (project.root / "r.md").read_text().startswith("**tfbench: regressed: 1 regressed**")
    html = (project.root / "r.html").read_text()
    (row,) = unpacked(html, "case-0")
    assert set(row["rounds"]) == {"baseline", "contender"}
    assert "Regressions (1)" in html
    assert "regressions (1, by size above the threshold of" in done.output
    assert "Name (time in" not in done.output


def test_the_slowdown_changes_no_other_metric(slowed):
    metrics = slowed[0].metrics(PLAIN)
    exact = {"graph_ops", "retraces", "parity", "casts", "live_tensors"} & metrics.keys()
    assert exact
    assert {metrics[name] for name in exact} == {"unchanged"}
