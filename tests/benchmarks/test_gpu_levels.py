"""Benchmarks on a GPU that is not there: what they ask of TensorFlow, and in which order."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.benchmarks import gpu_shapes
from tfbench.errors import UsageError
from tfbench.suite.axes import VARIABLE, set_scale
from tfbench.suite.tensorflow_stub import stub_tensorflow

with stub_tensorflow():  # the real one would cost every process of the tests seconds
    from benchmarks import axes, levels
    from benchmarks import test_devices as devices


@pytest.fixture
def asked(monkeypatch):
    """Lets TensorFlow see a GPU; returns XLA's flags at each question for it."""
    flags = []

    def list_physical_devices(kind):
        flags.append(os.environ.get("XLA_FLAGS", ""))
        return ["GPU:0"]

    monkeypatch.setenv("XLA_FLAGS", "")
    tensorflow = SimpleNamespace(__version__="2", config=SimpleNamespace(list_physical_devices=list_physical_devices))
    for module in (axes, levels):
        monkeypatch.setattr(module, "tf", tensorflow)
    return flags


@pytest.mark.parametrize(
    ("level", "flag"),
    [("each", ""), ("cached", "--xla_gpu_per_fusion_autotune_cache_dir="), ("off", "--xla_gpu_autotune_level=0")],
)
def test_flags_of_xla_are_set_before_tensorflow_is_asked_for_gpus(asked, level, flag):
    (mark,) = (mark for mark in devices.test_autotuned_layer.pytestmark if mark.name == "parametrize")
    (variant,) = (one.values[0] for one in mark.args[1] if one.values[0]["autotuning"] == level)
    assert variant.enter() is None
    assert asked
    assert all(flag in flags for flags in asked)
    assert any(asked) == bool(flag)


def test_on_a_gpu_fusion_has_no_contract(asked):
    """Its grappler fuses other patterns, and its clusters leave constants and small ops out."""
    proved = {level.name: level.helpers["proves"]("_FusedConv2D") for level in axes.FUSION.levels}
    assert proved == {"fused": {}, "unfused": {}, "xla": {"compiled": True}, "autocluster": {}}


@pytest.mark.parametrize(
    ("scale", "n", "shapes", "model"),
    [
        ("small", 384, (2, 28, (3, 7), 5), len),
        ("medium", 1024, (16, 28, (3, 7), 32), len),
        ("large", 4096, (128, 28, (3, 7), 256), sum),
        ("huge", 10240, (128, 28, (3, 7), 256), sum),
    ],
)
def test_the_suite_has_shapes_of_each_scale(monkeypatch, scale, n, shapes, model):
    no_gpu = SimpleNamespace(config=SimpleNamespace(list_physical_devices=lambda kind: []))
    monkeypatch.setattr(axes, "tf", no_gpu)
    monkeypatch.setenv(VARIABLE, scale)
    set_scale(scale)
    found = axes.by_scale(384, 4096, 10240), axes.by_scale((2, 28, (3, 7), 5), (128, 28, (3, 7), 256))
    assert (*found, axes.by_scale((len, 2, 3), (sum, 8, 9))[0]) == (n, shapes, model)
    with pytest.raises(UsageError, match="--scale 'vast': choose from small, medium, large, huge"):
        set_scale("vast")


def run(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=gpu_shapes.ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


@pytest.mark.tensorflow
def test_recurrent_layers_that_xla_compiles_leave_out_the_kernel_of_cudnn():
    cudnn = {row["case"].partition("::")[2]: row["cudnn"] for row in run("-m", gpu_shapes.__name__, "rolling=loop")}
    assert cudnn == {
        f"test_{layer}[compiler={compiler},rolling=loop]": compiler == "none"
        for layer in ("lstm", "gru")
        for compiler in ("none", "xla")
    }


HINTS = """
import inspect, json, os

import tensorflow as tf

from benchmarks import peer

first, second = peer.cluster(2)
other = peer.start(second, 10)
os.environ["TF_CONFIG"] = first
step = peer.reducing(10)
step()
reduced, gradient = map(inspect.getclosurevars(step).nonlocals.get, ("reduced", "gradient"))
graph = reduced.get_concrete_function(gradient).graph.as_graph_def()
nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
print(json.dumps([node.attr["communication_hint"].s.decode() for node in nodes if "CollectiveReduce" in node.op]))
other.kill()
os._exit(0)
"""


@pytest.mark.tensorflow
def test_two_workers_exchange_gradients_in_a_ring_since_nccl_refuses_two_on_one_gpu():
    (hints,) = run("-c", HINTS)
    assert set(hints) == {"ring"}
