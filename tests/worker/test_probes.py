"""Probes without TensorFlow: causes of traces, sizes of artifacts, memory of a separate process."""

import os
import re
import sys
from collections import namedtuple
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from tests.fakes.alone import run_alone
from tfbench.worker import probes, tf_runtime
from tfbench.worker.probes import MOST_ON_GPU, Probes
from tfbench.worker.tf_runtime import MetricUnavailable


class Shape(tuple):
    rank = 1


def tensor(*shape, dtype="float32"):
    return SimpleNamespace(shape=Shape(shape), dtype=SimpleNamespace(name=dtype))


def found(probe, *points):
    """Returns the evidence of a probe that is sent these values at these points, or why it has none."""
    led = Probes()
    led.start("it", probe)
    for point, value in (*points, (probes.END, None)):
        led.reach(point, value)
    return (led.found | led.absent)["it"]


def traced(*signatures):
    """Returns the evidence of traces of a function, one of them in the first call."""
    reported = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf_runtime, "on_trace", lambda callback: reported.append(callback) or nullcontext())
        led = Probes()
        led.start("it", probes.traces({}))
    for signature in signatures:
        reported[0]("f", SimpleNamespace(structured_input_signature=(signature, {})), 0.1, None)
        led.reach(probes.FIRST)
    led.reach(probes.RELEASED, 2)
    return led.found["it"]


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        ((tensor(2), 1), (tensor(2), 2), "argument 1 was the Python value 1, then the Python value 2; pass it as a"),
        ((tensor(2),), (tensor(3),), "argument 0 was float32[2], then float32[3]; give it an input_signature"),
        ((tensor(None),), (tensor(None),), "a new tf.function is made for each call"),
        ((object(),), (object(),), "a new tf.function is made for each call"),  # an address is no cause
        ((tensor(2),), (tensor(2), tensor(2)), "called with 1 arguments, then with 2"),
    ],
)
def test_a_retrace_states_its_cause(first, second, cause):
    found = traced(first, second)
    assert found["first"] == ["f"]
    assert cause in found["later"][0]


def test_artifacts_are_bytes_files_and_folders(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(os.urandom(500))
    whole = found(probes.artifact(tmp_path))
    assert whole["bytes"] == 1500
    assert 500 < whole["gzipped"] < 700
    (file,) = {str(found(probes.artifact(one))) for one in (b"x" * 1000, tmp_path / "a", str(tmp_path / "a"))}
    assert file.startswith("{'bytes': 1000, ")
    assert found(probes.artifact(None)) == "the benchmark names no artifact"
    assert found(probes.artifact(tmp_path / "missing")) == f"the artifact {tmp_path / 'missing'} does not exist"


@pytest.fixture
def gpu(monkeypatch):
    """A TensorFlow that sees a GPU with CUDA's own allocator, which counts nothing."""

    def refuse(name):
        raise ValueError(f"Allocator stats not available for device '{name}'")

    listed = SimpleNamespace(name="/physical_device:GPU:0")
    config = SimpleNamespace(list_physical_devices=lambda kind: [listed])
    config.experimental = SimpleNamespace(get_memory_info=refuse)
    tensorflow = SimpleNamespace(
        config=config, nest=SimpleNamespace(flatten=lambda part, expand_composites: [part]), Tensor=()
    )
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: tensorflow)


def test_an_allocator_without_statistics_is_named_as_the_reason(gpu):
    assert re.search(r"the allocator of GPU:0 does not count its bytes: .*not available", found(probes.device_memory()))


def written(folder, first, later=(1, None)):
    """Returns what the probe of results finds, and the arrays that it writes."""
    evidence = found(probes.outputs(folder), (probes.FIRST, first), (probes.LAST, later))
    if isinstance(evidence, str):
        return evidence, []
    with np.load(folder / evidence["file"]) as arrays:
        return evidence, [arrays[f"arr_{place}"] for place in range(len(arrays.files))]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "kept"), [(1000, 1000), (4000, 1000), (4097, 820)])
def test_on_a_gpu_the_same_part_of_a_large_result_is_written_in_every_precision(
    gpu, tmp_path, monkeypatch, rows, kept, dtype
):
    monkeypatch.setattr(probes, "MOST_ON_GPU", MOST_ON_GPU >> 12)
    monkeypatch.setattr(probes, "LARGEST", 9 * 4096)  # what is written counts, of the results of both calls
    large = np.arange(rows * 4).reshape(rows, 4).astype(dtype)
    _, (part, loss, *later) = written(tmp_path, [large, np.array(1.0)], (6, [large, np.array(1.0)]))
    assert len(later) == 2
    assert part.shape == (kept, 4)
    assert np.array_equal(part, large[:: -(-rows // kept)])
    assert loss == 1.0


def test_on_a_cpu_larger_results_are_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "MOST_ON_GPU", 1)
    _, (whole,) = written(tmp_path, np.ones(1000))
    assert whole.shape == (1000,)
    monkeypatch.setattr(probes, "MOST_NUMBERS", 500)
    _, (half,) = written(tmp_path, np.ones(1000))
    assert half.shape == (500,)


class Lite:
    """Like an interpreter of TFLite that has handed a part of its ops to a delegate."""

    def __init__(self, *ops):
        self.ops = ops

    def _get_ops_details(self):
        return [{"index": place, "op_name": op} for place, op in enumerate(self.ops)]


def test_the_ops_of_interpreters_are_listed_as_long_as_these_live():
    none = "the step uses no interpreter of TFLite, and neither returns nor names a model of it"
    assert found(probes.lite(None), (probes.FIRST, None)) == none
    assert found(probes.lite(b"other"), (probes.FIRST, b"bytes")) == none
    kept = [Lite("WHILE", "FlexTensorListStack"), Lite("FULLY_CONNECTED", "DELEGATE")]
    Lite("ADD")
    assert sorted(found(probes.lite(b"....TFL3"), (probes.FIRST, None))["ops"]) == sorted(kept[0].ops + kept[1].ops)


@pytest.mark.tensorflow
def test_the_ops_of_an_interpreter_or_a_converted_model_are_listed(tmp_path):
    done = run_alone(f"""
        from pathlib import Path

        import tensorflow as tf
        from tfbench.worker import probes

        def ops(artifact, result):
            led = probes.Probes()
            led.start("lite", probes.lite(artifact))
            led.reach(probes.FIRST, result)
            led.reach(probes.END)
            print(*led.found["lite"]["ops"])

        x = tf.TensorSpec([4], tf.float32)
        function = tf.function(lambda x: tf.raw_ops.Atan(x=tf.nn.relu(x))).get_concrete_function(x)
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
        model = converter.convert()
        file = Path({str(tmp_path)!r}, "model.tflite")
        file.write_bytes(model)
        ops(file, None)
        ops(None, model)
        ops(file, model)
        interpreter = tf.lite.Interpreter(model_content=model)
        ops(None, None)
    """)
    lines = [line.split() for line in done.splitlines()]
    assert len(lines) == 4
    assert all({"RELU", "FlexAtan"} <= set(line) for line in lines)
    assert all(line.count("RELU") == 1 for line in lines)


def test_the_peak_leaves_out_what_a_set_up_has_released_and_counts_what_it_holds():
    done = run_alone("""
        import numpy as np
        from tfbench.worker.probes import HostPeak

        peak = HostPeak()
        block = np.ones(64 << 17)  # 64 MiB
        del block
        held = np.ones(8 << 17)
        peak.mark(counts=False)
        again = np.ones(16 << 17)
        del again
        peak.mark()
        print(-1 if peak.bytes is None else peak.bytes >> 20)
    """)
    assert int(done) == -1 or 22 <= int(done) <= 34


Pair = namedtuple("Pair", "first second")


class Unreadable:
    """Like a tensor of variants and a symbolic tensor, which have no numbers."""

    def numpy(self):
        raise TypeError("a variant has no numbers")


def test_the_results_of_two_calls_are_written(tmp_path):
    array, led = np.ones(3), Probes()
    led.start("it", probes.outputs(tmp_path))
    led.reach(probes.FIRST, array)
    array[:] = 2.0  # the step writes into the same array again
    led.reach(probes.LAST, (6, {"loss": array}))
    led.reach(probes.END)
    assert (led.found["it"]["names"], led.found["it"]["calls"]) == (["", "['loss']"], [1, 6])
    with np.load(tmp_path / "outputs.npz") as arrays:
        assert [arrays[name].tolist() for name in sorted(arrays.files)] == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("limit", ["MOST", "LARGEST"])
def test_a_later_result_is_left_out_where_both_are_too_large(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(probes, limit, {"MOST": 1, "LARGEST": 24}[limit])
    evidence, _ = written(tmp_path, np.ones(3), (6, np.ones(3)))
    assert evidence["calls"] == [1]


TEXTS, KINDS = np.array([b"a", b"b"], object), ("float64", "int64")


@pytest.mark.parametrize(
    ("result", "parts"),
    [
        (
            {"a": [np.ones(3), 2.0], "b": ("text", np.array([1, 2]))},
            ["['a'][0] float64 in dict list", "['a'][1] float64 in dict list", "['b'][1] int64 in dict tuple"],
        ),
        ({"b": 1, "a": 2.0}, ["['a'] float64 in dict", "['b'] int64 in dict"]),  # whatever the order of insertion
        (
            {object(): Pair(1.0, 2)},
            [f"[<object object at …>][{at}] {kind} in dict Pair" for at, kind in enumerate(KINDS)],
        ),
        ({"loss": 0.5, "table": Unreadable()}, ["['loss'] float64 in dict"]),
        ({"path": "/tmp/x", "texts": TEXTS, "things": np.array([{}, b"a"], object)}, ["['texts'] int64 in dict"]),
    ],
)
def test_numbers_are_found_in_nested_results(tmp_path, result, parts):
    evidence, arrays = written(tmp_path, result)
    found = zip(evidence["names"], evidence["dtypes"], evidence["inside"], strict=True)
    assert [f"{name} {dtype} in {inside}" for name, dtype, inside in found] == parts
    assert len(arrays) == len(parts)


def test_arrays_keep_their_shapes_and_equal_texts_have_equal_numbers(tmp_path):
    _, arrays = written(tmp_path, {"a": [np.ones(3), 2.0], "texts": np.array([b"a", b"b", b"a"], object)})
    assert [array.shape for array in arrays] == [(3,), (), (3,)]
    first, second, third = arrays[2]
    assert first == third != second


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("no number", "the step returns no numbers"),
        ([0.5] * 5000, "the step returns 5,000 arrays, more than the limit of 4,096"),
    ],
)
def test_results_that_cannot_be_compared_have_a_reason(tmp_path, result, reason):
    assert written(tmp_path, result)[0] == reason


def test_only_modules_of_the_step_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    led = Probes()
    led.start("xla", probes.xla(tmp_path))
    assert os.environ["XLA_FLAGS"].startswith("--mine --xla_dump_to=")
    folder = tmp_path / "xla"
    folder.mkdir()
    (folder / "module_0000.setup.cpu_after_optimizations.txt").touch()
    led.reach(probes.BEFORE)
    name = "module_0001.a_inference_step_42__XlaMustCompile_true_config_proto_1_executor_type_2_.9.cpu_after_optimizations.txt"
    (folder / name).touch()
    (folder / name.replace(".txt", "-buffer-assignment.txt")).touch()
    led.reach(probes.RELEASED, 4)
    assert led.found == {"xla": {"modules": [name]}}


def test_on_a_gpu_only_modules_of_tensorflow_are_dumped_and_not_what_xla_tries(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    next(probes.xla(tmp_path, driver=tmp_path))
    filtered = os.environ["XLA_FLAGS"].split()[-1]
    assert filtered.startswith("--xla_dump_hlo_module_re=")
    of_tensorflow = re.compile(filtered.partition("=")[2])
    names = ("a_inference_f_12__XlaMustCompile_true", "a_forward_f_95", "a_inference_one_step_on_452__", "cluster_0__")
    assert all(map(of_tensorflow.search, names))
    assert not any(map(of_tensorflow.search, ("gemm_fusion_dot.3", "triton_softmax", "cublas-gemm.1", "wrapped_add")))


ON_A_GPU = """
import os, sys
from pathlib import Path

from tfbench.worker import probes

led = probes.Probes()
led.start("xla", probes.xla(Path(sys.argv[1]), driver=Path(sys.argv[1])))
import tensorflow as tf

led.reach(probes.BEFORE)
tf.function(lambda x: tf.nn.softmax(x), jit_compile=True)(tf.ones([4, 4]))
led.reach(probes.RELEASED, 1)
print(len(led.found["xla"]["modules"]))
"""


@pytest.mark.tensorflow
def test_xla_knows_the_flags_of_a_gpu(tmp_path):
    """XLA ends the process at a flag that it does not know, such as those of the documentation and the axis autotuning."""
    flags = f"--xla_gpu_per_fusion_autotune_cache_dir={tmp_path} --xla_gpu_autotune_level=0"
    assert run_alone(ON_A_GPU, tmp_path, env={**os.environ, "XLA_FLAGS": flags}) == "1\n"


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
    *numbers, loop, branch, pipeline = run_alone(COUNTED).splitlines()
    product = 2 * 64**3
    assert list(map(int, numbers)) == [product, 2 * product + 64**2, product + 1]
    assert loop == "the step has a loop or a branch (StatelessWhile), which TensorFlow does not count"
    assert "StatelessCase" in branch
    assert int(pipeline) == 64**2


def test_probes_report_that_tensorflow_is_missing(monkeypatch):
    monkeypatch.setattr(tf_runtime, "tensorflow", lambda: None)
    with pytest.raises(MetricUnavailable, match="does not use TensorFlow"):
        tf_runtime.collect_graphs(True)
    assert tf_runtime.device_peaks() == {}
    monkeypatch.delitem(sys.modules, "tensorflow.python.framework.func_graph", raising=False)
    with tf_runtime.on_trace(lambda *reported: None):
        pass


def test_a_probe_that_fails_costs_no_other_one_and_has_its_reason():
    def fails():
        yield probes.FIRST
        raise ValueError("an internal name has moved")

    led = Probes()
    led.start("odd", fails())
    led.start("artifact", probes.artifact(b"x"))
    led.reach(probes.FIRST, 1)
    led.reach(probes.END)
    assert led.absent == {"odd": "the probe failed (ValueError: an internal name has moved)"}
    assert led.found["artifact"]["bytes"] == 1
