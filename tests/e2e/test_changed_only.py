"""``--changed-only`` on real TensorFlow, in a git repository."""

import pytest

from tests.e2e.test_other_metrics import QUICKLY

MODELS = "TIMES = {times}\n"
MINE = """
    import tensorflow as tf

    import models

    def test_used(bench):
        def step(x):
            for _ in range(30 * models.TIMES):
                x = tf.matmul(x, x) / 100.0
            return x
        bench(tf.function(step), tf.ones([100, 100]))
"""
OTHERS = """
    import pytest
    import tensorflow as tf

    @pytest.mark.parametrize("size", range(1, 4))
    def test_other(bench, size):
        bench(tf.function(lambda x: tf.tanh(x) * size), tf.ones([64, 64]))
"""
LATE = """
    import pathlib

    import tensorflow as tf

    DATA = pathlib.Path(__file__).parents[1].joinpath("data.bin")

    def test_reads(bench):
        x = tf.fill([64, 64], float(tf.strings.length(tf.io.read_file(str(DATA)))))  # Python sees no file being opened
        bench(tf.function(tf.tanh), x)
"""


@pytest.mark.tensorflow
def test_only_the_cases_that_read_a_changed_file_and_a_sample_are_raced(project):
    project.write(QUICKLY, "conftest.py")
    project.write(MINE, "benchmarks/test_used.py")
    project.write(OTHERS, "benchmarks/test_others.py")
    project.write(LATE, "benchmarks/test_late.py")
    project.write("one", "data.bin")
    project.write("unread", "notes.txt")
    project.write(MODELS.format(times=1), "models.py")
    project.write("[pytest]\npythonpath = .\n", "pytest.ini")
    project.commit("before")
    project.write(MODELS.format(times=2), "models.py")
    project.write("two", "data.bin")
    project.write("changed", "notes.txt")
    done = project.run("--changed-only", "--against", "git:HEAD")
    rows = {row["case"]: row for row in done.report["verdicts"] if row["metric"] == "time"}
    assert done.code == 1, done.output
    assert rows["benchmarks/test_used.py::test_used"]["outcome"] == "regressed"
    assert rows["benchmarks/test_late.py::test_reads"]["reason"]["code"] != "same-code", done.output
    others = [row for name, row in rows.items() if "test_other" in name]
    spared = [row for row in others if row["reason"]["code"] == "same-code"]
    assert len(others) == 3
    # The drawn case may be the changed one. On a busy machine, another one races until a time is decided.
    assert len(spared) in (1, 2, 3), done.output
    assert {row["outcome"] for row in spared} == {"new"}
    assert f"{len(spared)} same code" in done.output
    graphs = [
        row for row in done.report["verdicts"] if row["case"] == spared[0]["case"] and row["metric"] == "graph_ops"
    ]
    assert [row["outcome"] for row in graphs] == ["unchanged"]
