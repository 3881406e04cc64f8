"""Every benchmark can be traced at its GPU shapes, see `gpu_shapes`."""

import json
import os
import subprocess
import sys

import pytest

from tests.benchmarks import gpu_shapes

LARGER = {"test_matmul", "test_conv2d_3x3", "test_attention", "test_mirrored_step", "test_softmax", "test_tf32_product"}
"""Workloads of several families, whose arguments take at least 10 MB on a GPU."""


TF32, HALF, MEMORY = 494e12, 989e12, 4.8e12
"""Peak rates of an H200 SXM in operations without sparsity and bytes per second, by NVIDIA's data sheet."""
BUSY = ("precision=", "layout=", "alignment=", "fusion=", "normalization=")
"""Axes whose levels choose other kernels, which must not hide behind the 0.3 to 0.5 ms of a step's dispatch."""
SHORTER = {"test_row_sums", "test_batchnorm_inference", "test_batchnorm_inference_xla"}
"""Read one array once, which would need 2**31 numbers to take 2 ms."""


def traced(tmp_path, *arguments, **variables):
    """Return a row for each traced case."""
    done = subprocess.run(
        [sys.executable, "-m", gpu_shapes.__name__, "--first", *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path), **variables},  # TensorFlow leaves generated code there
        cwd=gpu_shapes.ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    broken = {row["case"]: row["failed"] for row in rows if "failed" in row}
    assert not broken, "\n\n".join(f"{case}: {text}" for case, text in broken.items())
    assert rows, done.stderr[-3000:]
    return {row["case"].partition("::")[2].partition("[")[0]: row for row in rows}


@pytest.mark.slow
@pytest.mark.tensorflow
def test_huge_shapes_keep_an_h200_busy_at_its_peak_rates(tmp_path):
    rows = traced(tmp_path, *BUSY, TFBENCH_SCALE="huge")
    assert len(rows) > 25
    short = {}
    for workload, row in rows.items():
        flops, moved = row["work"]["flops"], row["work"]["bytes"]
        single, half = max(flops / TF32, moved / MEMORY), max(flops / HALF, moved / 2 / MEMORY)
        if single < 2e-3 or half < 1e-3:
            short[workload] = f"{1e3 * single:.2f} ms in float32, {1e3 * half:.2f} ms in float16"
        assert row["largest"] < 2**31, workload
        assert row["bytes"] < 16 << 30, workload
    assert short.keys() == SHORTER, short


@pytest.mark.tensorflow
def test_every_workload_can_be_traced_at_its_shapes_on_a_gpu(tmp_path):
    rows = traced(tmp_path)
    assert len(rows) > 50
    assert {workload for workload in LARGER if rows[workload].get("bytes", 0) < 10e6} == set()
    skipped = [workload for workload, row in rows.items() if "skipped" in row]
    assert all("all_reduce" in workload for workload in skipped), skipped
