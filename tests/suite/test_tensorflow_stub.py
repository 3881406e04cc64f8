"""The stub of TensorFlow during collection, in separate processes, since modules are global."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(code, fails=False):
    names = "StubError, stub_tensorflow"
    program = f"import sys\nfrom tfbench.suite.tensorflow_stub import {names}\n{textwrap.dedent(code)}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == int(fails), done.stderr
    return done


def test_decorators_classes_and_submodules_import_no_tensorflow():
    run(
        """
        with stub_tensorflow():
            import tensorflow as tf
            import tensorflow.keras.layers as layers
            from tensorflow import keras
            from tensorflow.python.eager import context
            import keras as alone

            class Block(tf.keras.layers.Layer):
                def call(self, x): return x

            class Other(layers.Dense, keras.Model): pass

            class Many(tf.test.Benchmark, metaclass=tf.__internal__.test.ParameterizedBenchmark): pass

            @tf.function
            def plain(x): return x

            @tf.function(jit_compile=True)
            def options(x): return x

            assert plain.__name__ == "plain"
            assert options(3) == 3 if not callable(options) else options.__name__ == "options"
            assert tf.__version__.startswith("2.")
            assert not hasattr(tf, "__wrapped__")
        assert not [name for name in sys.modules if name.partition(".")[0] in ("tensorflow", "keras")]
        """
    )


def test_a_test_case_may_have_several_bases():
    run(
        """
        import unittest
        class Parameterized(unittest.TestCase): pass
        with stub_tensorflow():
            import tensorflow as tf
            class First(tf.test.TestCase, Parameterized): pass
            class Last(Parameterized, tf.test.TestCase): pass
            class Both(tf.test.TestCase, tf.compat.v1.test.TestCase): pass
        assert all(issubclass(kind, unittest.TestCase) for kind in (First, Last, Both))
        """
    )


def test_using_a_value_raises_an_error_that_names_the_fix():
    done = run(
        """
        with stub_tensorflow():
            import tensorflow as tf
            if tf.config.list_physical_devices("GPU"):
                pass
        """,
        fails=True,
    )
    assert "uses the value of tensorflow.config.list_physical_devices()" in done.stderr
    assert "requires=" in done.stderr


@pytest.mark.parametrize(
    "question",
    [
        'keras.backend.backend() == "tensorflow"',
        'keras.backend.backend() in ("tensorflow", "jax")',
        'keras.backend.backend() in {"tensorflow", "jax"}',
        'tf.version.VERSION == "2.20.0"',
        'tf.config.list_physical_devices("GPU") == tf.config.list_physical_devices("CPU")',
        '"GPU" in str(tf.config.list_physical_devices())',
        'f"{tf.keras.backend.floatx()}" == "float32"',
    ],
)
def test_a_question_that_values_decide_has_no_answer(question):
    done = run(
        f"""
        with stub_tensorflow():
            import tensorflow as tf
            from tensorflow import keras
            try:
                print("answer", {question})
            except (StubError, TypeError) as error:
                print("refused:", error)
        """
    )
    assert "refused: the" in done.stdout, done.stdout + done.stderr


def test_types_are_asked_about_and_looked_up_in_tables():
    done = run(
        """
        with stub_tensorflow():
            import tensorflow as tf
            SPEC = tf.TensorSpec([None, 4], tf.float32)
            assert isinstance(SPEC, (tf.TensorSpec, tf.SparseTensorSpec))
            assert not isinstance(SPEC, tf.SparseTensorSpec)
            assert not isinstance(3, tf.Tensor)
            assert {tf.float32: 4, tf.float16: 2}[tf.float32] == 4
            assert tf.float32 == tf.float32 in (tf.float32,)
            assert len({tf.float32, tf.float32}) == 1
            try:
                issubclass(tf.keras.layers.Dense, tf.keras.layers.Layer)
            except Exception as error:
                print(error)
        assert "tensorflow" not in sys.modules
        """
    )
    assert "the module uses the value of tensorflow.keras.layers.Layer at import; move that into" in done.stdout


def test_after_collection_the_names_refer_to_the_real_tensorflow():
    run(
        """
        import types
        with stub_tensorflow():
            import tensorflow as tf
            layers = tf.keras.layers
        real = types.ModuleType("tensorflow"); real.add = lambda a, b: a + b
        real.keras = types.SimpleNamespace(layers=types.SimpleNamespace(Dense=int))
        sys.modules["tensorflow"] = real
        assert tf.add(1, 2) == 3
        assert layers.Dense("7") == 7
        assert layers == real.keras.layers != tf.keras
        """
    )


@pytest.mark.parametrize("installed", [(), ("tensorflow",), ("tensorflow", "tf_keras")])
def test_a_package_that_is_not_installed_beside_tensorflow_cannot_be_imported(tmp_path, installed):
    for name in installed:
        (tmp_path / f"{name}.py").write_text("raise AssertionError('imported')")
    done = run(
        f"""
        import pytest
        sys.path[:] = [*(entry for entry in sys.path if "-packages" not in entry), {str(tmp_path)!r}]
        with stub_tensorflow():
            for name in ("tensorflow", "tf_keras", "tensorflow_probability"):
                try:
                    pytest.importorskip(name)
                    print("imported", name)
                except pytest.skip.Exception as skipped:
                    print(skipped)
        """
    )
    told = done.stdout.splitlines()
    names = ("tensorflow", "tf_keras", "tensorflow_probability")
    found = [name for name in names if name in installed or not installed]
    assert [line.removeprefix("imported ") for line in told if line.startswith("imported")] == found, done.stderr
    assert sum("could not import" in line for line in told) == len(names) - len(found)
