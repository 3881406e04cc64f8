"""Optimized models: the reason for a missing one is reported, and the others go on."""

import importlib.util
import re
from importlib import metadata

import pytest

from tests.e2e.project import ROOT, Project
from tfbench.suite.tensorflow_stub import stub_tensorflow

with stub_tensorflow():  # the real one would cost every process of the tests seconds
    from benchmarks import levels


def test_a_missing_or_mismatched_tf_keras_is_reported_with_its_fix(monkeypatch):
    assert levels.needs_optimization() is None

    installed = {"tensorflow": metadata.version("tensorflow")}
    monkeypatch.setattr(metadata, "version", {**installed, "tf-keras": "2.15.1"}.__getitem__)
    assert re.search(
        r"tf_keras 2\.15\.1 is not for TensorFlow .*; pip install 'tf-keras~=", levels.needs_optimization()
    )

    def missing(name):
        if name not in installed:
            raise metadata.PackageNotFoundError
        return installed[name]

    monkeypatch.setattr(metadata, "version", missing)
    assert levels.needs_optimization().startswith("tf_keras is not installed; pip install")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert levels.needs_optimization() == (
        "tensorflow-model-optimization is not installed; pip install tensorflow-model-optimization"
    )


LACKING = """
    import tensorflow as tf

    from benchmarks import levels, optimized


    def make(folder, op):
        signature = [tf.TensorSpec([4, 4], tf.float32)]
        function = tf.function({"svd": lambda x: tf.linalg.svd(x, compute_uv=False), "relu": tf.nn.relu}[op], signature)
        made = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
        (folder / "model.tflite").write_bytes(optimized.convert(made))


    def _bench(bench, shared, op):
        file = optimized.file(shared(make, op))
        bench(lambda: file.stat().st_size, items=1, artifact=file, accuracy=0.5)


    def test_lacking(bench, shared):
        _bench(bench, shared, "svd")


    def test_fine(bench, shared):
        _bench(bench, shared, "relu")
"""


@pytest.mark.tensorflow
def test_a_missing_tflite_operation_and_a_corrupt_file_are_reported_and_the_rest_goes_on(tmp_path):
    project = Project(tmp_path)
    project.write(LACKING, "test_lacking.py")
    (tmp_path / "benchmarks").rmdir()  # this repository's is meant
    done = project.run("test_lacking.py")
    assert done.outcomes() == {"test_lacking": "error", "test_fine": "new"}, done.output
    assert "make failed: NotImplementedError: TFLite has no Svd; replace it in the model" in done.reason("test_lacking")
    assert {"artifact_bytes", "accuracy"} <= set(done.metrics("test_fine"))
    (file,) = tmp_path.glob(".tfbench/made/make-*/model.tflite")
    file.write_bytes(b"corrupt")
    done = project.run("test_lacking.py")
    assert done.outcomes() == {"test_lacking": "error", "test_fine": "error"}
    assert "model.tflite was changed after it was built; delete the folder" in done.reason("test_fine")


def test_no_contract_of_the_suite_claims_that_two_times_are_equal():
    """Whether two kernels take the same time depends on the processor."""
    texts = [file.read_text() for file in (ROOT / "benchmarks").glob("test_*.py")]
    assert texts
    assert not [text for text in texts if "@as_fast(" in text]
