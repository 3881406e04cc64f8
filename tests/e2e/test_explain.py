"""`tfbench explain` from end to end."""

import subprocess
import sys

import pytest

CASES = """
    import tensorflow as tf

    from tfbench import Axis, Level, across

    REMAPPING = Axis("fusion",
        Level("fused", setup=lambda: tf.config.optimizer.set_experimental_options({"remapping": True})),
        Level("unfused", setup=lambda: tf.config.optimizer.set_experimental_options({"remapping": False})))

    @across(REMAPPING)
    def test_dense(bench, variant):
        step = tf.function(lambda x, w, b: tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b)), jit_compile=False)
        bench(step, tf.ones([64, 32]), tf.ones([32, 128]), tf.ones([128]))
"""


def explain(project, *arguments):
    done = project.tfbench("explain", *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.smoke
@pytest.mark.tensorflow
def test_a_lost_fusion_is_explained(project):
    project.write(CASES)
    code, output = explain(project, "test_dense[fusion=fused]", "test_dense[fusion=unfused]")
    assert code == 0, output
    assert "from test_dense[fusion=fused] to test_dense[fusion=unfused]" in output
    assert "fused_ops" in output
    assert "lost BiasAdd in _FusedMatMul, Relu in _FusedMatMul" in output.replace("\n", " ").replace("  ", " ")
    assert "the outputs are the same" in output or "the outputs differ by" in output


REFUSED = [
    (
        ["test_dense[fusion=fused]"],
        "give --against SPEC or a second case to compare with, or --profile DIR to read",
    ),
    (["test_dense[fusion=fused]", "test_dense[fusion=unfused]", "--repro", "x"], "--repro races two interpreters"),
    (["test_other", "--against", "self"], "no benchmark matches 'test_other'"),
    (["test_dense", "--against", "self"], "'test_dense' matches 2 benchmarks: benchmarks/"),
    (["test_dense[fusion=fused]", "--against", "sometimes"], "'sometimes' is not understood"),
    (["x", "--against", "self", "--paths", "nowhere"], "pytest could not collect the benchmarks"),
    (["x", "--against", "self", "-k", "a=b"], "benchmarks:\nERROR: Wrong expression passed to '-k': a=b"),
]


def test_an_impossible_explanation_is_refused_in_one_line(project):
    project.write(CASES)
    for arguments, words in REFUSED:
        done = project.tfbench("explain", *arguments)
        assert done.returncode == 2, (arguments, done)
        assert words in done.stderr, arguments
        assert "Traceback" not in done.stderr


@pytest.mark.tensorflow
def test_a_difference_becomes_a_folder_that_runs_without_tfbench(project):
    project.write("""
        import os

        import tensorflow as tf

        from sizes import SIZE

        def test_stack(bench):
            @tf.function
            def stack(x):
                for _ in range(10 * int(os.environ.get("TIMES", "1"))):
                    x = tf.nn.relu(tf.matmul(x, x)) / 64.0
                return x

            bench(stack, tf.ones([SIZE, SIZE]), flops=1)
    """)
    project.write("SIZE = 64\n", "benchmarks/sizes.py")
    code, output = explain(project, "test_stack", "--against", "env:TIMES=3", "--repro", "shown")
    assert code == 0, output
    assert "faster in every launch" in output
    assert (project.root / "shown/benchmarks/sizes.py").exists()
    command = [sys.executable, "-I", "shown/race.py", "--launches", "1"]
    again = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
