"""Profiles of real TensorFlow: launches of their own, and the cause of a slowdown."""

from pathlib import Path

import pytest

from tfbench.session.profiling import LAUNCHES

pytestmark = pytest.mark.tensorflow
COUNTED = """
    import os
    import pathlib

    import tensorflow as tf
    from tensorflow.python.profiler import profiler_v2

    HERE = pathlib.Path(__file__).parent

    def test_counted(bench):
        x = tf.random.normal([256, 256])
        product = tf.function(lambda: tf.matmul(x, x), jit_compile=False)

        def step():
            kind = "profiled" if profiler_v2._profiler is not None else "plain"
            (HERE / f"{kind}.{os.getpid()}").touch()
            return product()

        bench(step)
"""


def test_profiling_has_a_launch_of_its_own_and_a_report(project):
    project.write(COUNTED)
    done = project.run("--profile", "prof")
    assert done.code == 0, done.output
    assert "profiles: prof; tfbench explain CASE --profile prof reads them" in done.output
    ran = [path.name.split(".") for path in (project.root / "benchmarks").glob("p*.*[0-9]")]
    profiled = {pid for kind, pid in ran if kind == "profiled"}
    (variant_result,) = done.report["variant_results"]
    assert len(profiled) == 1
    assert len({pid for _, pid in ran}) == variant_result["launches"] + 2  # and one in which it was probed
    (entry,) = done.report["profiles"]
    assert (entry["case"], entry["side"]) == ("benchmarks/test_mine.py::test_counted", "contender")
    assert entry["time"]["host compute"] <= entry["step"]
    assert project.tfbench("gate", "report.json").returncode == 4  # the report with profiles is read

    (file,) = Path(entry["folder"]).glob("plugins/profile/*/*.xplane.pb")
    file.write_bytes(file.read_bytes()[:-20])
    cut = project.tfbench("explain", "test_counted", "--profile", "prof")
    assert cut.returncode == 5
    assert "was cut short, or is damaged; profile again" in cut.stderr
    other = project.tfbench("explain", "test_other", "--profile", "prof")
    assert (other.returncode, "has no profile of 'test_other'; available: test_counted" in other.stderr) == (2, True)
    nowhere = project.tfbench("explain", "test_counted", "--profile", "nowhere")
    assert "nowhere is not a folder" in nowhere.stderr


SLOWED = """
    import os
    import time

    import tensorflow as tf

    MORE = bool(os.environ.get("MORE"))

    def test_product(bench):
        def step(x):
            y = tf.matmul(x, x)
            return tf.reduce_sum(tf.matmul(x, y) if MORE else y)

        bench(tf.function(step, jit_compile=False), tf.random.normal([512, 512]))

    def test_input(bench):
        def wait(value):
            time.sleep(0.003 if MORE else 0.001)
            return value

        data = tf.data.Dataset.range(10**9).map(lambda value: tf.numpy_function(wait, [value], tf.int64))
        data = data.map(lambda value: tf.ensure_shape(value, []) + 1).batch(2)
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        elements = iter(data.with_options(options))
        matrix = tf.random.normal([128, 128])
        step = tf.function(lambda value: tf.reduce_sum(matrix @ matrix) + tf.cast(value[0], tf.float32), jit_compile=False)
        bench(lambda: step(next(elements)))
"""
CAUSES = {
    "product": ("host compute grew most", "MatMul", "2 calls instead of 1"),
    "input": ("waiting for input grew most", "IteratorGetNext", "waiting for input"),
}
"""Case -> what its profile says first, and of the first cause."""


@pytest.mark.alone
def test_a_regression_names_its_cause_and_keeps_profiles_that_open_in_tensorboard(project, monkeypatch):
    monkeypatch.setenv("MORE", "1")
    project.write(SLOWED)
    done = project.run("--profile-on-regression", "--against", "env:MORE=")
    assert done.code == 1
    found = {(entry["side"], entry["case"].partition("::test_")[2]): entry["why"] for entry in done.report["profiles"]}
    assert found.keys() == {(side, case) for side in ("baseline", "contender") for case in CAUSES}, done.output
    for case, (most, *first) in CAUSES.items():
        takes, cause, *_ = why = found["contender", case]
        assert takes.startswith("profile: a step takes"), why
        assert most in takes, why
        assert all(words in cause for words in first), why
        assert takes in " ".join(done.output.split())
    folder = project.root / ".tfbench/profiles/benchmarks.test_mine.py.test_input"
    for side in ("baseline", "contender"):
        assert len(list(folder.glob(f"{side}/plugins/profile/*/*.xplane.pb"))) == LAUNCHES
    explained = project.tfbench("explain", "test_input", "--profile", ".tfbench/profiles")
    text = " ".join(explained.stdout.split())
    assert explained.returncode == 0, explained.stderr
    for words in (
        "waiting for input grew most", "waiting for input: IteratorGetNext +", "of a step waits for input",
        "all of it: xprof .tfbench/profiles",
    ):  # fmt: skip
        assert words in text, words
