"""Real TensorFlow: the examples of the guides, plain benchmarks, a missing GPU, and work that was not done."""

import re
from pathlib import Path

import pytest

from tests.e2e.test_other_metrics import QUICKLY

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
    project.write(QUICKLY, "conftest.py")
    done = project.run()
    contracts = {
        row["metric"]: row["outcome"] for row in done.report["verdicts"] if row["metric"].startswith("contract:")
    }
    assert set(contracts.values()) == {"unchanged"}, done.output
    assert set(done.outcomes().values()) == {"new"}, done.output


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
    project.write(QUICKLY, "conftest.py")
    done = project.run("--require-gpu", "--device", "cpu")
    assert done.outcomes() == {"test_mine": "error"}
    assert "TensorFlow sees no GPU" in done.reason("test_mine")


LAZY = """
    import tensorflow as tf

    def test_dataset(bench):
        bench(lambda: tf.data.Dataset.range(8).map(lambda x: x + 1))

    def test_remote(bench):
        bench(lambda: tf.distribute.experimental.coordinator.PerWorkerValues([]))

    def test_asynchronous(bench):
        bench(lambda: tf.config.experimental.set_synchronous_execution(False) or tf.ones([64, 64]) @ tf.ones([64, 64]))

    def test_batches(bench):
        batches = iter(tf.data.Dataset.range(8).repeat())
        bench(lambda: next(batches))

    def test_built(bench):
        bench.once(lambda: (tf.function(tf.ones), tf.keras.Sequential([tf.keras.layers.Dense(1)])))
"""


@pytest.mark.tensorflow
def test_work_that_was_not_done_is_an_error(project):
    project.write(LAZY)
    project.write(QUICKLY, "conftest.py")
    done = project.run()
    reasons = {
        "dataset": "for batch in dataset",
        "remote": "coordinator.fetch",
        "asynchronous": "ops return before they are done",
    }
    for name, reason in reasons.items():
        assert reason in done.reason(f"test_{name}"), done.output
    assert [name for name, outcome in done.outcomes().items() if outcome == "new"] == ["test_batches", "test_built"]
