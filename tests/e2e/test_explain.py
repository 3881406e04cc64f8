"""`tfbench explain` from end to end."""

import pytest

CASES = """
    import tensorflow as tf

    from tfbench import Axis, Level, across

    REMAPPING = Axis("fusion",
        Level("fused", setup=lambda: tf.config.optimizer.set_experimental_options({"remapping": True})),
        Level("unfused", setup=lambda: tf.config.optimizer.set_experimental_options({"remapping": False})))

    @across(REMAPPING)
    def test_dense(bench, variant):
        step = tf.function(lambda x, w, b: tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b)), jit_compile=False)
        bench(step, tf.ones([64, 32]), tf.ones([32, 128]), tf.ones([128]))
"""


@pytest.mark.smoke
@pytest.mark.tensorflow
def test_a_lost_fusion_is_explained(project):
    project.write(CASES)
    done = project.tfbench("explain", "test_dense[fusion=fused]", "test_dense[fusion=unfused]")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "from test_dense[fusion=fused] to test_dense[fusion=unfused]" in output
    assert "fused_ops" in output
    assert "lost BiasAdd in _FusedMatMul, Relu in _FusedMatMul" in output.replace("\n", " ").replace("  ", " ")
    assert "the outputs are the same" in output or "the outputs differ by" in output
