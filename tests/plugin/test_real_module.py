"""A module that uses values of TensorFlow while it is imported, and a TensorFlow of a few lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TENSORFLOW = """
import os

assert os.getpid() != int(os.environ["CONTROLLER"])

class Layer: ...
class Dense(Layer): ...
class DType:
    size = 4
float32 = DType()
"""
MODULE = """
import pytest
import tensorflow as tf

from tfbench import Axis, Level, across, faster

assert issubclass(tf.Dense, tf.Layer)
KIND = Axis("kind", Level("x"), Level("y"))

@faster("kind=y", than="kind=x", by=2)
@across(KIND)
@pytest.mark.tfbench(minimum_effect=0.05, tolerance=0.1)
def test_axis(bench, variant): ...

@pytest.mark.parametrize("size", [2 * tf.float32.size])
def test_size(bench, size): ...

@pytest.mark.skipif(tf.float32.size == 4, reason="four bytes")
def test_skipped(bench): ...

@pytest.mark.special
def test_plain(benchmark): ...

def test_other(): ...
"""
CASES = """
import sys
from tfbench.plugin.collect import collect

found = collect(sys.argv[1:])
for name, case in found.cases.items():
    print("CASE", name, case.group, [claim.bound for claim in case.claims], case.thresholds, name in found.skipped,
          *found.functions[name]._fixtureinfo.argnames)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = special\n")
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    (tmp_path / "test_real.py").write_text(MODULE)
    (tmp_path / "test_usual.py").write_text("import tensorflow as tf\ndef test_usual(bench): ...\n")
    return tmp_path


def run(folder, *words):
    program = f"import os; os.environ['CONTROLLER'] = str(os.getpid())\n{CASES}"
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", program, "-p", "pytest_benchmark.plugin", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return [line.removeprefix("CASE ") for line in done.stdout.splitlines() if line.startswith("CASE ")], done.stderr


def test_it_is_collected_with_the_real_one_in_a_process_of_its_own(folder):
    cases, error = run(folder)
    own = "(('minimum_effect', 0.05), ('tolerance', 0.1))"
    assert cases == [
        f"test_real.py::test_axis[kind=x] test_real.py::test_axis [] {own} False bench",
        f"test_real.py::test_axis[kind=y] test_real.py::test_axis [2.0] {own} False bench",
        "test_real.py::test_size[8] test_real.py::test_size[8] [] () False bench",
        "test_real.py::test_skipped test_real.py::test_skipped [] () True bench",
        "test_real.py::test_plain test_real.py::test_plain [] () False benchmark",
        "test_usual.py::test_usual test_usual.py::test_usual [] () False bench",
    ], error


def test_one_that_fails_there_as_well_has_both_errors(folder):
    (folder / "test_real.py").write_text(MODULE + "\nraise ValueError('broken anyway')\n")
    cases, error = run(folder)
    assert cases == []
    assert "test_real.py - tfbench.suite.tensorflow_stub.StubError: the module uses" in error
    assert "with the real TensorFlow" in error
    assert "broken anyway" in error
