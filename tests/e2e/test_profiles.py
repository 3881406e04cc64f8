"""Profiles of real TensorFlow: launches of their own, and the cause of a slowdown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.project import Project, environment
from tfbench.session.profiling import LAUNCHES

CASES = """
    import time

    import tensorflow as tf

    from tfbench import Axis, Level, across

    WORK = Axis("work", Level("plain"), Level("more"))
    REMAPPING = Axis("fusion",
        Level("fused", setup=lambda: tf.config.optimizer.set_experimental_options({"remapping": True})),
        Level("unfused", setup=lambda: tf.config.optimizer.set_experimental_options({"remapping": False})))

    def more(variant):
        return dict(variant)["work"] == "more"

    @across(WORK)
    def test_product(bench, variant):
        def step(x):
            y = tf.matmul(x, x)
            return tf.reduce_sum(tf.matmul(x, y) if more(variant) else y)

        bench(tf.function(step, jit_compile=False), tf.random.normal([512, 512]))

    @across(WORK)
    def test_layout(bench, variant):
        def step(x):
            y = tf.nn.relu(x)
            return tf.reduce_sum(tf.transpose(y, [5, 3, 1, 4, 2, 0]) if more(variant) else y)

        bench(tf.function(step, jit_compile=False), tf.random.normal([8, 8, 8, 8, 8, 8]))

    @across(REMAPPING)
    def test_dense(bench, variant):
        step = tf.function(lambda x, w, b: tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b)), jit_compile=False)
        bench(step, tf.random.normal([3072, 8]), tf.random.normal([8, 512]), tf.random.normal([512]))

    @across(WORK)
    def test_input(bench, variant):
        def wait(value):
            time.sleep(0.003 if more(variant) else 0.001)
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
PAIRS = {
    "a doubled product": ("test_product[work=plain]", "test_product[work=more]"),
    "an extra transpose": ("test_layout[work=plain]", "test_layout[work=more]"),
    "a lost fusion": ("test_dense[fusion=fused]", "test_dense[fusion=unfused]"),
    "a slow map": ("test_input[work=plain]", "test_input[work=more]"),
}
pytestmark = pytest.mark.tensorflow


def program(name, *arguments, folder):
    done = subprocess.run(
        [sys.executable, "-m", f"tests.e2e.{name}", *map(str, arguments)],
        cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("cases"))
    project.write(CASES)
    return project


@pytest.fixture(scope="module")
def causes(cases):
    found = measured(cases, PAIRS)
    # Another program may disturb one side of a pair: three launches in ten of the lost fusion showed a share below 0.8
    # on a busy machine. So a small share is measured again, up to three times.
    for _ in range(3):
        found |= measured(cases, {name: PAIRS[name] for name, one in found.items() if one["share"] < 0.8})
    return found


def measured(cases, pairs):
    names = [name for pair in pairs.values() for name in pair]
    reported = json.loads(program("causes", cases.root / "prof", *names, folder=cases.root)) if names else []
    return dict(zip(pairs, reported, strict=True))


@pytest.mark.alone
class TestCauses:
    """The injected cause comes first, and explains at least four fifths of the slowdown."""

    def test_a_doubled_product(self, causes):
        found = causes["a doubled product"]
        assert found["kinds"][0].endswith("MatMul")
        assert found["share"] >= 0.8, found
        assert "2 calls instead of 1" in found["why"][1]

    def test_an_extra_transpose(self, causes):
        found = causes["an extra transpose"]
        assert "Transpose" in found["kinds"][0]
        assert found["share"] >= 0.8, found

    def test_a_lost_fusion(self, causes):
        found = causes["a lost fusion"]
        assert found["after"] == "fused"
        assert found["share"] >= 0.8, found
        assert "lost fusion" in found["why"][1]

    def test_a_slow_map(self, causes):
        found = causes["a slow map"]
        assert (found["kinds"], found["where"]) == (["IteratorGetNext"], "waiting for input")
        assert found["share"] >= 0.8, found
        assert all(len(one["why"]) <= 5 for one in causes.values())

    def test_kept_profiles_open_in_tensorboard_and_are_explained_in_full(self, cases, causes):
        (folder,) = (cases.root / "prof").glob("*test_input.work=more")
        for side in ("baseline", "contender"):
            assert len(list(folder.glob(f"{side}/plugins/profile/*/*.xplane.pb"))) == LAUNCHES
        done = cases.tfbench("explain", "…input[work=more]", "--profile", "prof")
        text = " ".join(done.stdout.split())
        assert done.returncode == 0, done.stderr
        for words in (
            "waiting for input grew most", "waiting for input: IteratorGetNext +", "of a step waits for input",
            "Longest work per step", "all of it: xprof prof",
        ):  # fmt: skip
            assert words in text, words


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
    assert entry["parts"][0]["kind"] == "MatMul"
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

    import tensorflow as tf

    def test_product(bench):
        def step(x):
            y = tf.matmul(x, x)
            return tf.matmul(x, y) if os.environ.get("TWICE") else y

        bench(tf.function(step, jit_compile=False), tf.random.normal([384, 384]))
"""


def test_a_regression_names_its_cause(project, monkeypatch):
    monkeypatch.setenv("TWICE", "1")
    project.write(SLOWED)
    done = project.run("--profile-on-regression", "--against", "env:TWICE=")
    assert done.code == 1
    lines = done.output[done.output.index("profile: a step takes") :].splitlines()
    assert "host compute grew most" in lines[0]
    assert "MatMul +" in lines[1]
    sides = {entry["side"]: entry for entry in done.report["profiles"]}
    assert set(sides) == {"baseline", "contender"}
    assert sides["contender"]["why"][0].startswith("profile: a step takes")
    assert (project.root / ".tfbench" / "profiles" / "benchmarks.test_mine.py.test_product" / "case.json").exists()
