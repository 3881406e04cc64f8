"""The timer of TensorFlow's import, and a Keras that cannot be loaded."""

import importlib
import sys

import pytest

from tfbench.worker import tf_runtime


def test_the_first_import_is_timed_and_the_module_is_itself(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.05)\nVALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tf_runtime, "_MODULE", "slow_to_import")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    timer = tf_runtime.ImportTimer()
    sys.meta_path.insert(0, timer)
    import json  # noqa: F401 - other imports pass

    assert timer.seconds is None
    module = importlib.import_module("slow_to_import")
    assert module.VALUE == 3
    assert 0.05 <= timer.seconds < 5
    assert timer not in sys.meta_path
    assert module.__spec__.loader.path.endswith("slow_to_import.py")
    del sys.modules["slow_to_import"]


def test_a_missing_module_is_not_found(monkeypatch):
    monkeypatch.setattr(tf_runtime, "_MODULE", "no_such_module")
    assert tf_runtime.ImportTimer().find_spec("other", None) is None


@pytest.mark.parametrize("error", [ImportError, AttributeError, RecursionError])
def test_a_keras_that_cannot_be_loaded_is_left_out(monkeypatch, error):
    class TensorFlow:
        function = None

        @property
        def keras(self):
            raise error

    monkeypatch.setitem(sys.modules, "tensorflow", TensorFlow())
    assert tf_runtime.keras() is None
    tf_runtime.import_all()
