"""Every benchmark can be traced at its GPU shapes, see `gpu_shapes`."""

import json
import os
import subprocess
import sys

import pytest

from tests.benchmarks import gpu_shapes

LARGER = {"test_matmul", "test_conv2d_3x3", "test_attention", "test_mirrored_step", "test_softmax", "test_tf32_product"}
"""Workloads of several families, whose arguments take at least 10 MB on a GPU."""


@pytest.mark.tensorflow
def test_every_workload_can_be_traced_at_its_shapes_on_a_gpu(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", gpu_shapes.__name__, "--first"],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # TensorFlow leaves generated code there
        cwd=gpu_shapes.ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) > 50, done.stderr[-3000:]
    broken = {row["case"]: row["failed"] for row in rows if "failed" in row}
    assert not broken, "\n\n".join(f"{case}: {text}" for case, text in broken.items())
    sizes = {row["case"].partition("::")[2].partition("[")[0]: row.get("bytes", 0) for row in rows}
    assert {workload for workload in LARGER if sizes[workload] < 10e6} == set()
    skipped = [row["case"] for row in rows if "skipped" in row]
    assert all("all_reduce" in case for case in skipped), skipped
