"""Seeded leaks of a step are found by their own rows, and steps without any have none."""

import pytest

from tests.e2e.test_other_metrics import QUICKLY

BRIEFLY = """
    from tfbench.race import prober

    prober.MANY_SECONDS = 0.25  # whether later calls take longer is none of the questions here
"""

LEAKS = """
    import itertools
    import logging
    import os

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
    def test_retrace(bench):
        numbers = itertools.count()
        step = tf.function(lambda x, n: x * n, reduce_retracing=False)

        def call(x):
            number = next(numbers)
            return step(x, float(number if FAULT and number % 10 == 0 else 1))

        bench(call, tf.ones([16]))

    @no_leak
    def test_draw(bench):
        bench(lambda x: tf.nn.dropout(x + tf.random.uniform([16]), 0.5), tf.ones([16]))

    @no_leak
    def test_log(bench):
        bench(lambda x: logging.getLogger("mine").warning("%s", x.shape) or x + 1.0, tf.ones([16]))
"""
UNHARMED = ("test_draw", "test_log")
"""Eager random ops, which leak once tfbench seeds them, and records of a log, which pytest would keep."""
ROWS = {"test_bytes": "leaked_bytes", "test_retrace": "retraces_per_call"}


@pytest.mark.tensorflow
def test_each_seeded_leak_has_its_row_and_breaks_its_contract(project, monkeypatch):
    project.write(QUICKLY + BRIEFLY, "conftest.py")
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
