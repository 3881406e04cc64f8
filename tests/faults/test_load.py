"""Load: memory with six environments, the controller's cost per case, and many launches."""

from __future__ import annotations

import time

import pytest

from tests.faults.processes import Run, private_bytes, processes

SIX = """
    import tensorflow as tf
    from tfbench import Axis, Level, across

    START = Axis("start", Level("0"), *(Level(str(i), env={"START": str(i)}) for i in range(1, 6)))

    @across(START)
    def test_matmul(bench, variant):
        a = tf.random.normal([256, 256])
        bench(tf.matmul, a, a)
"""
UNDECIDED = """
    import dataclasses

    from tfbench import policy

    # Enough launches before the first look for every pair of zygotes.
    policy.PRESETS["standard"] = dataclasses.replace(policy.PRESETS["standard"], looks=(4,), case_seconds=600.0)
"""


@pytest.mark.tensorflow
@pytest.mark.chaos
def test_six_environments_at_once_stay_under_4_gb_of_private_memory(tmp_path, record_property):
    run = Run(tmp_path, full=True)
    run.write(SIX)
    run.write(UNDECIDED, "undecided.py")
    (tmp_path / "conftest.py").unlink()
    process = run.start("-p", "undecided", "--policy", "standard")
    most, count = 0, 0
    while process.poll() is None:
        sizes = [private_bytes(one) for one in processes(str(tmp_path))]
        most, count = max(most, sum(sizes)), max(count, len(sizes))
        time.sleep(0.5)
    done = run.ended(process)
    assert done.code == 0, done.output
    assert len(done.outcomes()) == 6
    print(f"six environments: at most {most / 1e9:.2f} GB of private memory in {count} processes")
    assert count >= 12
    assert most < 4e9
    run.check_clean()
