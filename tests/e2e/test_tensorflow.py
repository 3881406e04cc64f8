"""The main job on real TensorFlow, in one run: variants and process settings."""

import re
from pathlib import Path

import pytest

AXES = """
    import tensorflow as tf
    from tfbench import Axis, Level, across

    COMPILER = Axis("compiler",
        Level("none", compile=lambda function: tf.function(function)),
        Level("xla", compile=lambda function: tf.function(function, jit_compile=True)))
    ONEDNN = Axis("onednn", Level("off", env={"TF_ENABLE_ONEDNN_OPTS": "0"}), Level("on", env={"TF_ENABLE_ONEDNN_OPTS": "1"}))

    class Scale(tf.keras.layers.Layer):
        def call(self, x):
            return 2 * x

    @across(COMPILER)
    def test_square(bench, variant):
        x = tf.random.normal([64, 64])
        bench(variant.compile(lambda a: tf.matmul(a, a)), x, flops=2 * 64**3)

    @across(ONEDNN)
    def test_setting(bench, variant):
        import os
        assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == ("1" if variant["onednn"] == "on" else "0")
        assert tf.config.threading.get_intra_op_parallelism_threads() == 1
        bench(tf.add, tf.constant(1.0), tf.constant(2.0))

    def test_keras(bench):
        layer = Scale()
        bench(layer, tf.ones([8]))
"""
NO_TENSORFLOW_HERE = """
    import dataclasses
    import sys

    from tfbench import policy

    # What is decided is not the matter here, so two launches will do.
    policy.PRESETS["quick"] = dataclasses.replace(policy.PRESETS["quick"], looks=(2,), sampled_seconds=0.0)

    def pytest_sessionfinish(session):
        print("imported:", "tensorflow" in sys.modules)
"""


DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDES = [DOCS / name for name in ("../README.md", "writing-a-benchmark.md", "metrics.md")]


def examples():
    """Return the examples of the guides, each of which is a whole module."""
    return [block for guide in GUIDES for block in re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)]


@pytest.mark.tensorflow
def test_the_examples_of_the_guides_run(project):
    assert len(examples()) >= 10
    for number, example in enumerate(examples()):
        project.write(example, f"benchmarks/test_example_{number}.py")
    project.write(NO_TENSORFLOW_HERE, "conftest.py")
    done = project.run()
    contracts = {
        row["metric"]: row["outcome"] for row in done.report["verdicts"] if row["metric"].startswith("contract:")
    }
    assert set(contracts.values()) == {"unchanged"}, done.output
    assert set(done.outcomes().values()) == {"new"}, done.output


@pytest.mark.smoke
@pytest.mark.tensorflow
def test_the_main_job_runs_on_tensorflow(project):
    project.write(AXES)
    project.write(NO_TENSORFLOW_HERE, "conftest.py")
    done = project.run("-s")
    rows = done.report["verdicts"]
    reported = {row["case"]: row["outcome"] for row in rows if row["metric"] == "time"}
    assert {case.rpartition("::")[2]: outcome for case, outcome in reported.items()} == {
        "test_square[compiler=none]": "new",
        "test_square[compiler=xla]": "new",
        "test_setting[onednn=off]": "new",
        "test_setting[onednn=on]": "new",
        "test_keras": "new",
    }, done.output
    assert "imported: False" in done.output
    side = done.report["sides"]["contender"]
    assert 0.5 < side["import_seconds"] < 60
    assert side["packages"]["tensorflow"].startswith("2.")
    assert "TF_ENABLE_ONEDNN_OPTS" not in side["settings"]
    facts = {row["case"].rpartition("::")[2]: row["facts"] for row in done.report["variant_results"]}
    assert facts["test_square[compiler=xla]"]["flops"] == 2 * 64**3
    assert facts["test_square[compiler=xla]"]["first_call"] > 0


@pytest.mark.tensorflow
def test_a_plain_benchmark_finds_the_real_tensorflow_in_the_controller(project):
    project.write(
        """
        import tensorflow as tf

        def test_plain(benchmark):
            assert float(benchmark(tf.add, 1.0, 2.0)) == 3.0
        """
    )
    done = project.run("--benchmark-max-time=0.1")
    assert done.code == 0, done.output
    assert "1 passed" in done.output


@pytest.mark.tensorflow
def test_a_missing_gpu_is_an_error_if_one_is_required(project):
    project.write("import tensorflow as tf\n\ndef test_mine(bench):\n    bench(tf.add, 1.0, 2.0)\n")
    project.write(NO_TENSORFLOW_HERE, "conftest.py")
    done = project.run("--require-gpu", "--device", "cpu")
    assert done.outcomes() == {"test_mine": "error"}
    assert "TensorFlow sees no GPU" in done.reason("test_mine")


LAZY = """
    import itertools
    import tensorflow as tf

    def matrix():
        return tf.ones([64, 64])

    def test_dataset(bench):
        bench(lambda: tf.data.Dataset.range(8).map(lambda x: x + 1))

    def test_iterator(bench):
        batches = tf.data.Dataset.range(8)
        bench(lambda: {"batches": iter(batches)})

    def test_uncalled(bench):
        bench(lambda: tf.function(matrix))

    def test_remote(bench):
        bench(lambda: tf.distribute.experimental.coordinator.PerWorkerValues([]))

    def test_asynchronous(bench):
        tf.config.experimental.set_synchronous_execution(False)
        bench(lambda: matrix() @ matrix())

    def test_asynchronous_later(bench):
        calls = itertools.count()

        def step():
            if next(calls) == 5:
                tf.config.experimental.set_synchronous_execution(False)
            return matrix() @ matrix()

        bench(step)

    def test_asynchronous_scope(bench):
        def step():
            with tf.experimental.async_scope():
                return matrix() @ matrix()

        bench(step)

    def test_batches(bench):
        batches = iter(tf.data.Dataset.range(8).repeat())
        bench(lambda: next(batches))

    def test_built(bench):
        def build():
            built = tf.function(matrix)
            return built, built.get_concrete_function(), tf.keras.Sequential([tf.keras.layers.Dense(1)])

        bench.once(build)
"""


@pytest.mark.tensorflow
def test_work_that_was_not_done_is_an_error(project):
    project.write(LAZY)
    project.write(NO_TENSORFLOW_HERE, "conftest.py")
    done = project.run()
    reasons = {
        "dataset": "for batch in dataset",
        "iterator": "the step's result['batches'] is an OwnedIterator",
        "uncalled": "call it in the step",
        "remote": "coordinator.fetch",
        "asynchronous": "ops return before they are done",
        "asynchronous_later": "ops return before they are done",
    }
    for name, reason in reasons.items():
        assert reason in done.reason(f"test_{name}"), done.output
    assert {name.removeprefix("test_"): outcome for name, outcome in done.outcomes().items()} == {
        **dict.fromkeys(reasons, "error"), **dict.fromkeys(("asynchronous_scope", "batches", "built"), "new"),
    }  # fmt: skip
