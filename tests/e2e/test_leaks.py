"""Seeded leaks of a step are found by their own rows, and steps without any have none."""

import pytest

from tests.e2e.test_other_metrics import QUICKLY

LEAKS = """
    import itertools
    import logging
    import os
    import threading

    import numpy as np
    import tensorflow as tf

    from tfbench import no_leak

    FAULT = os.environ.get("FAULT") == "1"
    kept = []

    def keep(thing):
        if FAULT:
            kept.append(thing)

    @no_leak
    def test_bytes(bench):
        bench(lambda x: keep(np.ones(128)) or x + 1.0, tf.ones([16]))

    @no_leak
    def test_thread(bench):
        stop = threading.Event()

        def step(x):
            if FAULT:
                threading.Thread(target=stop.wait, daemon=True).start()
            return x + 1.0

        bench(step, tf.ones([16]))

    @no_leak
    def test_retrace(bench):
        numbers = itertools.count()
        step = tf.function(lambda x, n: x * n, reduce_retracing=False)

        def call(x):
            number = next(numbers)
            return step(x, float(number if FAULT and number % 10 == 0 else 1))

        bench(call, tf.ones([16]))

    @no_leak
    def test_file(bench):
        bench(lambda x: keep(open(os.devnull)) or x + 1.0, tf.ones([16]))

    @no_leak
    def test_object(bench):
        bench(lambda x: keep([[], [], []]) or x + 1.0, tf.ones([16]))

    @no_leak
    def test_cache(bench):
        numbers, cache = itertools.count(), {}
        bench(lambda x: cache.setdefault(next(numbers) % 30, x + 1.0), tf.ones([1024]))

    @no_leak
    def test_draw(bench):
        bench(lambda x: tf.nn.dropout(x + tf.random.uniform([16]), 0.5), tf.ones([16]))

    @no_leak
    def test_log(bench):
        bench(lambda x: logging.getLogger("mine").warning("%s", x.shape) or x + 1.0, tf.ones([16]))
"""
UNHARMED = ("test_cache", "test_draw", "test_log")
"""A full cache, eager random ops, which leak once tfbench seeds them, and records of a log, which pytest would keep."""
ROWS = {
    "test_bytes": "leaked_bytes",
    "test_thread": "leaked_threads",
    "test_retrace": "retraces_per_call",
    "test_file": "leaked_files",
    "test_object": "leaked_objects",
}


@pytest.mark.tensorflow
def test_each_seeded_leak_has_its_row_and_breaks_its_contract(project, monkeypatch):
    project.write(QUICKLY, "conftest.py")
    project.write(LEAKS)
    clean = project.run("--against", "self")
    assert clean.sound, clean.output
    for test in (*ROWS, *UNHARMED):
        rows = clean.metrics(test)
        assert {rows[metric] for metric in rows if metric.startswith(("leaked_", "retraces_per"))} == {"unchanged"}, (
            clean.output
        )
        assert rows["contract:no_leak"] == "unchanged", clean.output
    monkeypatch.setenv("FAULT", "1")
    done = project.run("--against", "env:FAULT=0")
    assert done.code == 1, done.output
    for test, metric in ROWS.items():
        rows = done.metrics(test)
        assert rows["contract:no_leak"] == "regressed", done.output
        assert rows[metric] == "regressed", (test, rows)
    for test in UNHARMED:
        assert done.metrics(test)["contract:no_leak"] == "unchanged", done.output


SLOW = """
    import threading
    import time

    import numpy as np
    import tensorflow as tf

    from tfbench import no_leak

    kept, models = [], []

    def fitted(keep):
        model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(16), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((64, 8)), np.ones((64, 1)), verbose=0)
        if keep:
            models.append(model)
        return model.weights[0]

    @no_leak
    def test_model(bench):
        bench(lambda: fitted(True))

    @no_leak("bytes")
    def test_table(bench):
        words = [f"word {number}" for number in range(20_000)]

        def step():
            pairs = tf.lookup.KeyValueTensorInitializer(words, list(range(20_000)))
            kept.append(tf.lookup.StaticHashTable(pairs, -1))
            return kept[-1].size()

        bench(step)

    @no_leak
    def test_second(bench):
        def step():
            time.sleep(0.4)
            kept.append(np.ones(64_000))
            return kept[-1]

        bench(step)

    @no_leak
    def test_nothing(bench):
        model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        values = np.ones((2, 8)), np.ones((2, 1))  # fit itself keeps 1 kB of each call, and traces three functions

        def step():
            for _ in range(40):
                model.train_on_batch(*values)
            return model.weights[0]

        bench(step)

    @no_leak("threads", "files")
    def test_kinds(bench):
        bench(lambda: kept.append(np.ones(64_000)) or kept[-1])
"""


@pytest.mark.tensorflow
@pytest.mark.slow
def test_leaks_of_slow_steps_are_found_by_few_calls_and_name_their_place(project):
    project.write(QUICKLY, "conftest.py")
    project.write(SLOW)
    done = project.run()
    reasons = {
        test: done.reason(test, "contract:no_leak")
        for test in ("test_model", "test_table", "test_second", "test_nothing", "test_kinds")
    }
    assert {test: done.metrics(test)["contract:no_leak"] for test in reasons} == {
        "test_model": "regressed",
        "test_table": "regressed",
        "test_second": "regressed",
        "test_nothing": "unchanged",
        "test_kinds": "unchanged",
    }, done.output
    assert ".py:" in reasons["test_second"], reasons
    assert "outside of Python" in reasons["test_table"], reasons
