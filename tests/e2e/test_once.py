"""Steps that run once per process: ``bench.once``."""

from __future__ import annotations

import pytest

BENCHMARKS = """
    import time

    from tests.fakes.steps import taking
    from tfbench import Axis, Level, across

    calls = []

    def build(seconds):
        calls.append(seconds)
        assert len(calls) == 1, "it was called twice in a process"
        time.sleep(seconds)
        return seconds

    @across(Axis("size", Level("small", seconds=lambda: 0.1), Level("large", seconds=lambda: 0.2)))
    def test_build(bench, variant):
        bench.once(build, variant.seconds(), items=3)

    def test_step(bench):
        bench(taking(bench, 1e-5))
"""


@pytest.mark.slow
def test_one_sample_per_launch_is_raced_and_gated_like_a_time(project):
    project.write(BENCHMARKS)
    same = project.run("--against", "self")
    assert same.sound, same.output
    assert set(same.outcomes().values()) <= {"unchanged", "inconclusive"}, same.output
    (row,) = [one for one in same.report["verdicts"] if "small" in one["case"] and one["metric"] == "time"]
    assert row["rounds"] == row["launches"]
    assert row["outcome"] == "inconclusive" or "within 10.0% either way" in row["reason"]["message"]
    assert not {"leaked_bytes", "live_tensors", "retraces_per_call"} & set(same.metrics("test_build[size=small]"))
    slower = project.run("--against", "self", "--inject-slowdown", "0.5", "-k", "test_build")
    assert slower.code == 1
    assert set(slower.outcomes().values()) == {"regressed"}, slower.output
