"""Whether TensorFlow uses oneDNN, where TensorFlow denies it as 2.10 does."""

import os

import pytest

from tests.fakes.alone import run_alone

PROGRAM = """
import sys
import tensorflow as tf
from tensorflow.python import util
from tensorflow.python.util import _pywrap_util_port

class Denies:
    IsMklEnabled = staticmethod(lambda: False)

claimed = bool(_pywrap_util_port.IsMklEnabled())
sys.modules["tensorflow.python.util._pywrap_util_port"] = util._pywrap_util_port = Denies
from tfbench.worker import tf_runtime
print(claimed, tf_runtime.has_onednn(), tf_runtime.has_run_an_op(), tf_runtime.defaults()["oneDNN"])
"""


def answers(setting):
    return run_alone(PROGRAM, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": setting}).split(maxsplit=3)


@pytest.mark.tensorflow
def test_a_graph_tells_whether_onednn_is_used_and_leaves_the_process_without_ops():
    claimed, used, ran, words = answers("1")
    assert used == claimed
    assert ran == "False"
    assert words.strip() == ("used" if claimed == "True" else "not used")
    assert answers("0")[1] == "False"
