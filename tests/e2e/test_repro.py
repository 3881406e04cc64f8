"""A file for a bug report, from a project to the file, on real TensorFlow."""

import subprocess
import sys

import pytest

STEPS = """
    import os

    import tensorflow as tf

    from tfbench import Axis, Level, across

    TIMES = int(os.environ.get("TIMES", "1"))
    COMPILER = Axis(
        "compiler",
        Level("none", compile=lambda step: tf.function(step)),
        Level("xla", compile=lambda step: tf.function(step, jit_compile=True)),
    )

    def stack(x):
        for _ in range(10 * TIMES):
            x = tf.nn.relu(tf.matmul(x, x)) / 64.0
        return x

    @across(COMPILER)
    def test_stack(bench, variant):
        bench(variant.compile(stack), tf.ones([64, 64]), flops=1)
"""


@pytest.mark.tensorflow
def test_a_difference_becomes_a_file_and_a_report(project):
    project.write(STEPS)
    done = project.tfbench(
        "repro",
        "test_stack[compiler=none]",
        "--against",
        "env:TIMES=3",
        "--present",
        "env:TIMES=1",
        "--policy",
        "quick",
        "--no-profile",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    code, report = ((project.root / f"repro_stack.{kind}").read_text() for kind in ("py", "md"))
    assert "'TIMES': '3'" in code or '"TIMES": "3"' in code
    assert "import tfbench" not in code
    assert "faster with env:TIMES=1 than with env:TIMES=3" in report.partition("\n")[0]
    assert code.rstrip() in report
    assert "--present env:TIMES=1" in report
    assert "faster in every launch" in done.stdout  # of the file, which the command has run
    again = subprocess.run(
        [sys.executable, "-I", "repro_stack.py", "--launches", "1"],
        cwd=project.root, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert "faster in every launch" in again.stdout


@pytest.mark.slow
def test_what_shows_no_difference_or_would_replace_a_file_is_refused(project):
    project.write("def test_sum(bench):\n    bench(sum, range(500))\n")
    project.write("mine", "repro_sum.py")
    command = ["repro", "test_sum", "--against", "self", "--policy", "quick"]
    assert "exists; remove it" in project.tfbench(*command).stderr
    assert "unlike a module" in project.tfbench(*command, "--output", "json.py").stderr
    same = project.tfbench(*command, "--output", "other.py")
    assert same.returncode == 5
    assert "there is no difference to show" in same.stderr
    assert not (project.root / "other.py").exists()
    assert (project.root / "repro_sum.py").read_text() == "mine"
