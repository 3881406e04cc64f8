"""Place ops on two logical devices of one CPU, in place of two GPUs."""

import pytest

from tests.e2e.project import Project
from tests.e2e.test_other_metrics import QUICKLY

pytestmark = pytest.mark.tensorflow


def test_a_new_copy_between_devices_is_a_regression(project: Project):
    project.write(QUICKLY, "conftest.py")
    project.write("""
        import os

        import tensorflow as tf

        from tfbench import Axis, Level, across


        def split():
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


        DEVICES = Axis("devices", Level("two", setup=split))


        @across(DEVICES)
        def test_placed(bench, variant):
            @tf.function(jit_compile=False)
            def product_elsewhere(a, b):
                with tf.device(os.environ.get("PLACE", "CPU:1")):
                    product = tf.matmul(a, b)
                with tf.device("CPU:0"):
                    return tf.reduce_sum(product)

            with tf.device("CPU:0"):
                bench(product_elsewhere, tf.ones([64, 64]), tf.ones([64, 64]))
    """)
    done = project.run("--against", "env:PLACE=CPU:0")
    (row,) = [row for row in done.report["verdicts"] if row["metric"] == "copies" and "test_placed" in row["case"]]
    assert row["outcome"] == "regressed", done.output
    assert "CPU:0 to CPU:1" in row["reason"]["message"]
    assert done.code == 1
