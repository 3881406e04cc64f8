"""A module that uses values of TensorFlow while it is imported races like any other."""

import pytest

BENCHMARKS = """
import tensorflow as tf

KINDS = {tf.float32.size: "float", tf.float64.size: "double"}
SPEC = tf.TensorSpec([None, 4], tf.float32)
assert issubclass(tf.keras.layers.Dense, tf.keras.layers.Layer)
assert isinstance(SPEC, (tf.TensorSpec, tf.SparseTensorSpec))
assert SPEC.shape.rank == 2


def test_double(bench):
    bench(tf.function(lambda x: x + x), tf.ones([64], KINDS[8]))
"""


@pytest.mark.tensorflow
def test_it_is_collected_with_one_note_and_raced(project):
    project.write(BENCHMARKS)
    project.write("[pytest]\n", "pytest.ini")
    project.commit("base")
    done = project.run("--against", "git:HEAD")
    assert done.sound, done.output
    found = done.metrics("test_double")
    assert found["time"] in ("unchanged", "inconclusive"), done.output
    assert found["graph_ops"] == found["flops"] == "unchanged", done.output
    assert (
        done.output.count("benchmarks/test_mine.py was collected with the real TensorFlow, because its import uses")
        == 1
    )
    assert "TypeError" not in done.output
