"""A cold cache is measurably slower than a warm one, and two sides have the same."""

import pytest

from tests.e2e.project import Project

# 1 MiB: neighbours of a virtual machine leave little more of a shared cache, and what does not fit is always cold. The
# sum of an array is mostly reads; TensorFlow's starts threads, which take a call longer than a cold cache does.
READS = """
    import numpy as np
    import tensorflow as tf
    from tfbench import Axis, Level, across

    CACHE = Axis("cache", Level("warm"), Level("cold"))
    add_up = tf.function(lambda x: tf.reduce_sum(x), jit_compile=False)

    @across(CACHE)
    def test_argument(bench, variant):
        bench(np.sum, np.ones([1 << 18], np.float32), cache=variant["cache"])

    @across(CACHE)
    def test_usual(bench, variant):
        bench(add_up, tf.ones([1 << 18]))
"""


@pytest.mark.alone
@pytest.mark.tensorflow
def test_a_read_that_fits_into_the_cache_is_slower_where_the_cache_is_cold(project: Project):
    project.write(READS)
    done = project.run()
    assert done.code == 0, done.output
    cold = {
        row["case"].partition("::")[2]: row for row in done.report["variant_results"] if row["case"] != row["reference"]
    }
    row = cold["test_argument[cache=cold]"]
    assert row["ratio"]["center"] > 1.05, row
    assert row["ratio"]["low"] > 1, row
    assert row["facts"]["cache"] == "cold"
    assert "cache" not in cold["test_usual[cache=cold]"]["facts"]
    assert done.reason("test_argument[cache=cold]").endswith("; cold cache")
