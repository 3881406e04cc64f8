"""Metrics other than time, from end to end: faults that times may miss, contracts, and saved metrics."""

import pytest

QUICKLY = """
    import dataclasses

    from tfbench import policy

    # These tests are not about times, so two launches will do. Beside other tests, slow calls may stay open, and a first
    # call of few milliseconds varies by more than that.
    quick = policy.PRESETS["quick"]
    policy.PRESETS["quick"] = dataclasses.replace(
        quick, looks=(2,), confirm=False, tail_tolerance=0.99, first_call_abs_tolerance=0.05
    )
"""

FAULTS = """
    import itertools
    import os

    import tensorflow as tf

    FAULT = os.environ.get("FAULT") == "1"

    def block(images, filters, bias):
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, filters, 1, "SAME"), bias))

    def images():
        draw = tf.random.stateless_normal
        return draw([2, 32, 32, 8], [1, 1]), draw([3, 3, 8, 16], [1, 2]), draw([16], [1, 3])

    def test_control(bench):
        bench(tf.function(block, jit_compile=False), *images())

    def test_remapping_off(bench):
        if FAULT:
            tf.config.optimizer.set_experimental_options({"remapping": False})
        bench(tf.function(block, jit_compile=False), *images())

    def test_python_ints(bench):
        step = tf.function(lambda x, n: x * tf.cast(n, tf.float32), jit_compile=False)
        numbers = itertools.count()
        x = tf.ones([64])
        bench(lambda: step(x, next(numbers) if FAULT else tf.constant(next(numbers))))

    def test_float64(bench):
        def scaled(x):
            return tf.cast(tf.cast(x, tf.float64) * 2.0, tf.float32) if FAULT else x * 2.0

        bench(tf.function(scaled, jit_compile=False), tf.ones([64]))

    def test_float64_xla(bench):
        def scaled(x):
            return tf.cast(tf.cast(x, tf.float64) * 2.0, tf.float32) if FAULT else x * 2.0

        bench(tf.function(scaled, jit_compile=True), tf.ones([64]))

    def test_kept_alive(bench):
        kept = []

        def step(x):
            y = x + 1.0
            if FAULT:
                kept.append(y)
            return y

        bench(step, tf.ones([256]))

    def test_copy(bench):  # between two logical devices of the CPU, in place of two GPUs
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

        @tf.function(jit_compile=False)
        def product_elsewhere(a):
            with tf.device("CPU:1" if FAULT else "CPU:0"):
                product = tf.matmul(a, a)
            with tf.device("CPU:0"):
                return tf.reduce_sum(product)

        with tf.device("CPU:0"):
            bench(product_elsewhere, tf.ones([64, 64]))
"""
CAUGHT = {
    "test_remapping_off": {"fused_ops", "graph_ops"},
    "test_python_ints": {"retraces"},
    "test_float64": {"casts", "float64_ops", "graph_ops"},
    "test_float64_xla": {"xla_casts", "xla_float64"},
    "test_kept_alive": {"live_tensors", "live_bytes"},
    "test_copy": {"copies"},
}
"""Case -> the metrics that must detect its fault."""


def with_fault(project, monkeypatch, benchmarks):
    """Race the benchmarks with their faults against themselves without."""
    project.write(benchmarks)
    project.write(QUICKLY, "conftest.py")
    monkeypatch.setenv("FAULT", "1")
    return project.run("--against", "env:FAULT=0")


@pytest.mark.smoke
@pytest.mark.tensorflow
def test_each_fault_is_detected_by_its_own_metric(project, monkeypatch):
    done = with_fault(project, monkeypatch, FAULTS)
    assert done.code == 1, done.output
    for case, wanted in CAUGHT.items():
        regressed = {metric for metric, outcome in done.metrics(case).items() if outcome == "regressed"}
        assert wanted <= regressed, (case, done.metrics(case))
        # A retrace keeps what it traced, and a graph with a cast more has an op more.
        side_effects = {"time", "first_call", "peak_host_memory", "flops", "graph_ops", "live_tensors", "live_bytes"}
        leaks = {metric for metric in regressed if metric.startswith(("leaked_", "retraces_per"))}
        assert regressed <= wanted | side_effects | leaks, (case, done.metrics(case))
        assert done.metrics(case)["parity"] == "unchanged"
    assert "lost BiasAdd in _FusedConv2D, Relu in _FusedConv2D" in done.reason("test_remapping_off", "fused_ops")
    assert "argument 1 was the Python value" in done.reason("test_python_ints", "retraces")
    assert "float32 to float64" in done.reason("test_float64", "casts")
    assert "0 before, 1 now" in done.reason("test_kept_alive", "live_tensors")
    assert "CPU:0 to CPU:1" in done.reason("test_copy", "copies")
    exact = done.metrics("test_control").items()
    assert {outcome for metric, outcome in exact if metric not in ("time", "first_call", "peak_host_memory")} == {
        "unchanged"
    }


RACING = """
    from tests.fakes.steps import taking
    from tfbench import Axis, Level, across, faster

    PIPELINE = Axis("pipeline", Level("naive"), Level("good"), Level("bad"))

    @faster("pipeline=good", than="pipeline=naive", by=1.5)
    @faster("pipeline=bad", than="pipeline=naive", by=1.5)
    @across(PIPELINE)
    def test_feed(bench, variant):
        bench(taking(bench, {"naive": 3e-5, "good": 1e-5, "bad": 2.9e-5}[variant["pipeline"]]))
"""


def test_a_variant_that_must_be_faster_races_the_other_in_every_kind_of_run(project):
    project.write(RACING)
    project.write(QUICKLY, "conftest.py")
    for options in ((), ("--against", "self")):
        done = project.run(*options)
        assert done.code == 1, done.output
        reported = done.reason("test_feed[pipeline=good]", "contract:faster_than")
        assert done.metrics("test_feed[pipeline=good]")["contract:faster_than"] == "unchanged", reported
        assert done.metrics("test_feed[pipeline=bad]")["contract:faster_than"] == "regressed"
        assert "1.5x is claimed" in done.reason("test_feed[pipeline=bad]", "contract:faster_than")


WRONG = """
    import itertools
    import os

    import numpy as np
    from tests.fakes.steps import taking

    FAULT = os.environ.get("FAULT", "1") == "1"
    LARGE = np.random.RandomState(1).standard_normal(100_000)

    def checked(bench, good, wrong):
        timed = taking(bench, 1e-5)
        bench(lambda: (timed(), {"large": LARGE, "small": wrong if FAULT else good})[1])

    def test_same(bench):
        checked(bench, 3.7, 3.7)

    def test_loss(bench):
        checked(bench, 3.7, -250.0)

    def test_later(bench):
        timed, calls = taking(bench, 1e-5), itertools.count()
        bench(lambda: (timed(), 0.0 if FAULT and next(calls) > 2 else 3.7)[1])
"""


def test_an_output_that_is_wrong_beside_a_large_one_or_in_later_calls_is_a_regression_that_names_it(
    project, monkeypatch
):
    done = with_fault(project, monkeypatch, WRONG)
    reason = done.reason("test_loss", "parity")
    assert reason == "differs from the baseline's result by 69 in the output ['small'], by 0 before", done.output
    assert "in call 6, by 0 before" in done.reason("test_later", "parity"), done.output
    outcomes = {name: done.metrics(f"test_{name}")["parity"] for name in ("same", "loss", "later")}
    assert outcomes == {"same": "unchanged", "loss": "regressed", "later": "regressed"}


RELEASED = """
    import weakref

    import numpy as np

    def test_released(bench):
        last = []

        def step():
            assert not any(result() is not None for result in last), "the result of the call before is alive"
            result = np.ones(3)
            last[:] = [weakref.ref(result)]
            return result

        bench(step)
"""


def test_no_call_holds_the_result_of_the_one_before(project):
    project.write(RELEASED)
    done = project.run("--against", "self")
    assert done.metrics("test_released")["parity"] == "unchanged", done.output
