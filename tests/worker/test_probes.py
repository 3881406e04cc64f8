"""Probes without TensorFlow: causes of traces, sizes of artifacts, memory of a separate process."""

import os
import re
import subprocess
import sys
import textwrap
from collections import namedtuple
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from tfbench.metrics.graphs import of_module
from tfbench.worker import tf_runtime
from tfbench.worker.probes import MOST_ON_GPU, Artifact, DevicePeak, Outputs, Traces, Xla
from tfbench.worker.tf_runtime import MetricUnavailable


class Shape(tuple):
    rank = 1


def tensor(*shape, dtype="float32"):
    return SimpleNamespace(shape=Shape(shape), dtype=SimpleNamespace(name=dtype))


def traced(*signatures):
    traces = Traces()
    for signature in signatures:
        traces._traced("f", SimpleNamespace(structured_input_signature=(signature, {})), 0.1, None)
        traces._in_first = False
    return traces.found()


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        (
            (tensor(2), 1),
            (tensor(2), 2),
            "argument 1 was the Python value 1, then the Python value 2; pass it as a tensor",
        ),
        ((tensor(2),), (tensor(3),), "argument 0 was float32[2], then float32[3]; give it an input_signature"),
        ((tensor(2),), (tensor(2, dtype="float64"),), "argument 0 was float32[2], then float64[2]"),
        ((tensor(None),), (tensor(None),), "a new tf.function is made for each call"),
        ((tensor(2),), (tensor(2), tensor(2)), "called with 1 arguments, then with 2"),
    ],
)
def test_a_retrace_states_its_cause(first, second, cause):
    found = traced(first, second)
    assert found["first"] == ["f"]
    assert cause in found["later"][0]


def test_an_address_is_no_cause_of_a_retrace():
    assert "a new tf.function" in traced((object(),), (object(),))["later"][0]


def test_artifacts_are_bytes_files_and_folders(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(os.urandom(500))
    whole = Artifact(tmp_path).found()
    assert whole["bytes"] == 1500
    assert 500 < whole["gzipped"] < 700
    assert Artifact(b"x" * 1000).found() == Artifact(tmp_path / "a").found()
    assert Artifact(tmp_path / "a").found() == Artifact(str(tmp_path / "a")).found()
    for nothing in (None, tmp_path / "missing"):
        with pytest.raises(MetricUnavailable):
            Artifact(nothing).found()


@pytest.fixture
def gpu(monkeypatch):
    """A TensorFlow that sees a GPU with CUDA's own allocator, which counts nothing."""

    def refuse(name):
        raise ValueError(f"Allocator stats not available for device '{name}'")

    listed = SimpleNamespace(name="/physical_device:GPU:0")
    config = SimpleNamespace(list_physical_devices=lambda kind: [listed])
    config.experimental = SimpleNamespace(get_memory_info=refuse)
    tensorflow = SimpleNamespace(config=config)
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: tensorflow)


def test_an_allocator_without_statistics_is_named_as_the_reason(gpu):
    with pytest.raises(MetricUnavailable, match=r"the allocator of GPU:0 does not count its bytes: .*not available"):
        DevicePeak().before()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "kept"), [(1000, 1000), (4000, 1000), (4097, 820)])
def test_on_a_gpu_the_same_part_of_a_large_result_is_written_in_every_precision(
    gpu, tmp_path, monkeypatch, rows, kept, dtype
):
    probe = Outputs(tmp_path)
    monkeypatch.setattr("tfbench.worker.probes.MOST_ON_GPU", MOST_ON_GPU >> 12)
    large = np.arange(rows * 4).reshape(rows, 4).astype(dtype)
    probe._first = [tf_runtime.Part("large", "", large), tf_runtime.Part("loss", "", np.array(1.0))]
    with np.load(tmp_path / probe.found()["file"]) as arrays:
        assert arrays["arr_0"].shape == (kept, 4)
        assert np.array_equal(arrays["arr_0"], large[:: -(-rows // kept)])
        assert arrays["arr_1"] == 1.0


def test_on_a_cpu_a_large_result_is_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("tfbench.worker.probes.MOST_ON_GPU", 1)
    probe = Outputs(tmp_path)
    probe._first = [tf_runtime.Part("", "", np.ones(1000))]
    with np.load(tmp_path / probe.found()["file"]) as arrays:
        assert arrays["arr_0"].shape == (1000,)


def test_the_peak_counts_memory_that_was_released():
    done = run_alone("""
        import numpy as np
        from tfbench.worker.probes import HostPeak

        peak = HostPeak()
        block = np.ones(64 << 17)  # 64 MiB
        del block
        peak.mark()
        again = np.ones(16 << 17)
        peak.mark()
        del again
        print(-1 if peak.bytes is None else peak.bytes >> 20)
    """)
    assert int(done) == -1 or 60 <= int(done) <= 72


def run_alone(code):
    """Runs code in a new process, which is small, so that the kernel reclaims none of its memory meanwhile."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


Pair = namedtuple("Pair", "first second")


class Unreadable:
    """Like a tensor of variants and a symbolic tensor, which have no numbers."""

    def numpy(self):
        raise TypeError("a variant has no numbers")


def test_the_results_of_two_calls_are_written(tmp_path):
    outputs, array = Outputs(tmp_path), np.ones(3)
    outputs.between(array)
    array[:] = 2.0  # the step writes into the same array again
    outputs.later(6, {"loss": array})
    found = outputs.found()
    assert (found["names"], found["calls"]) == (["", "['loss']"], [1, 6])
    with np.load(tmp_path / "outputs.npz") as arrays:
        assert [arrays[name].tolist() for name in sorted(arrays.files)] == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("limit", ["MOST", "LARGEST"])
def test_a_later_result_is_left_out_where_both_are_too_large(tmp_path, monkeypatch, limit):
    outputs = Outputs(tmp_path)
    monkeypatch.setattr(f"tfbench.worker.probes.{limit}", {"MOST": 1, "LARGEST": 24}[limit])
    for keep in (outputs.between, partial(outputs.later, 6)):
        keep(np.ones(3))
    assert outputs.found()["calls"] == [1]


def test_numbers_are_found_in_nested_results(tmp_path):
    outputs = Outputs(tmp_path)
    outputs.between({"a": [np.ones(3), 2.0], "b": ("text", np.array([1, 2]))})
    found = outputs.found()
    assert found["names"] == ["['a'][0]", "['a'][1]", "['b'][1]"]
    assert found["dtypes"] == ["float64", "float64", "int64"]
    assert found["inside"] == ["dict list", "dict list", "dict tuple"]
    with np.load(tmp_path / "outputs.npz") as arrays:
        assert [arrays[name].shape for name in sorted(arrays.files)] == [(3,), (), (2,)]
    outputs.between({"b": 1, "a": 2.0})
    assert outputs.found()["names"] == ["['a']", "['b']"]  # whatever the order of insertion
    outputs.between({object: 1.0, object(): Pair(1.0, 2.0)})
    assert outputs.found()["names"] == ["[<class 'object'>]", "[<object object at …>][0]", "[<object object at …>][1]"]
    assert outputs.found()["inside"] == ["dict", "dict Pair", "dict Pair"]
    outputs.between(np.float32(1))
    assert (outputs.found()["names"], outputs.found()["dtypes"]) == ([""], ["float32"])
    outputs.between({"loss": 0.5, "table": Unreadable()})
    assert outputs.found()["names"] == ["['loss']"]
    outputs.between(
        {"path": "/tmp/x", "texts": np.array([b"a", b"b", b"a"], object), "things": np.array([{}, b"a"], object)}
    )
    assert outputs.found()["names"] == ["['texts']"]
    with np.load(tmp_path / "outputs.npz") as arrays:
        first, second, third = arrays["arr_0"]
    assert first == third != second
    outputs.between("no number")
    with pytest.raises(MetricUnavailable, match="no numbers"):
        outputs.found()
    outputs.between([0.5] * 5000)
    with pytest.raises(MetricUnavailable, match="returns 5,000 arrays, more than the limit of 4,096"):
        outputs.found()


def test_only_modules_of_the_step_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    probe = Xla(tmp_path)
    assert os.environ["XLA_FLAGS"].startswith("--mine --xla_dump_to=")
    folder = tmp_path / "xla"
    folder.mkdir()
    (folder / "module_0000.setup.cpu_after_optimizations.txt").touch()
    probe.before()
    name = "module_0001.a_inference_step_42__XlaMustCompile_true_config_proto_1_executor_type_2_.9.cpu_after_optimizations.txt"
    (folder / name).touch()
    (folder / name.replace(".txt", "-buffer-assignment.txt")).touch()
    probe.after(4)
    assert probe.found() == {"modules": [name]}
    assert of_module(name) == "step"


def test_on_a_gpu_only_modules_of_tensorflow_are_dumped_and_not_what_xla_tries(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    Xla(tmp_path, driver=tmp_path)
    filtered = os.environ["XLA_FLAGS"].split()[-1]
    assert filtered.startswith("--xla_dump_hlo_module_re=")
    of_tensorflow = re.compile(filtered.partition("=")[2])
    names = (
        "a_inference_f_12__XlaMustCompile_true",
        "a_forward_f_95",
        "a_inference_one_step_on_data_452__",
        "cluster_0__",
    )
    assert all(map(of_tensorflow.search, names))
    assert not any(map(of_tensorflow.search, ("gemm_fusion_dot.3", "triton_softmax", "cublas-gemm.1", "wrapped_add")))


ON_A_GPU = """
import os, sys
from pathlib import Path

from tfbench.worker.probes import Xla

probe = Xla(Path(sys.argv[1]), driver=Path(sys.argv[1]))
import tensorflow as tf

probe.before()
tf.function(lambda x: tf.nn.softmax(x), jit_compile=True)(tf.ones([4, 4]))
probe.after(1)
print(len(probe.found()["modules"]))
"""


@pytest.mark.tensorflow
def test_xla_knows_the_flags_of_a_gpu(tmp_path):
    """XLA ends the process at a flag that it does not know, such as those of the documentation and the axis autotuning."""
    flags = f"--xla_gpu_per_fusion_autotune_cache_dir={tmp_path} --xla_gpu_autotune_level=0"
    done = subprocess.run(
        [sys.executable, "-c", ON_A_GPU, tmp_path],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "1\n", done.stderr[-2000:]


COUNTED = """
import tensorflow as tf
from tfbench.worker.tf_runtime import MetricUnavailable
from tfbench.worker import tf_runtime

product = tf.function(lambda x: tf.matmul(x, x))
steps = [
    product,
    tf.function(lambda x: product(x) + product(x)),
    tf.function(lambda x: (tf.debugging.assert_equal(x[0, 0], 1.0), product(x))[1]),
    tf.function(lambda x: tf.map_fn(lambda row: row * 2.0, x)),
    tf.function(lambda x: tf.switch_case(tf.constant(0), [lambda: x, lambda: x * 2.0])),
    tf.function(lambda x: tf.data.Dataset.from_tensors(x).reduce(x, lambda old, new: old + new) * 3.0),
]
for step in steps:
    try:
        print(tf_runtime.flops(step.get_concrete_function(tf.ones([64, 64])).graph))
    except MetricUnavailable as error:
        print(error)
"""


@pytest.mark.tensorflow
def test_operations_of_called_functions_count_and_those_of_loops_are_unknown():
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, timeout=300, check=False)
    *numbers, loop, branch, pipeline = done.stdout.splitlines()
    product = 2 * 64**3
    assert list(map(int, numbers)) == [product, 2 * product + 64**2, product + 1], done.stderr[-2000:]
    assert loop == "the step has a loop or a branch (StatelessWhile), which TensorFlow does not count"
    assert "StatelessCase" in branch
    assert int(pipeline) == 64**2


def test_probes_report_that_tensorflow_is_missing(monkeypatch):
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: None)
    with pytest.raises(MetricUnavailable, match="does not use TensorFlow"):
        tf_runtime.collect_graphs(True)
    assert tf_runtime.device_peaks() == {}
    tf_runtime.on_trace(lambda *reported: None)()
