"""Measure the harness: its share of a block, the hand-over of a turn, and the cost of a launch besides measuring.

With ``--bare``, compare 40 steps under tfbench with the same steps in a script of their own.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tfbench.model import Case, Plan
from tfbench.model.measurement import STEP
from tfbench.plugin.options import available_cpus
from tfbench.policy import Policy
from tfbench.protocol import Prepared
from tfbench.race.lanes import processors
from tfbench.race.launch import Entrant, make_plan, orders
from tfbench.race.process_launch import ProcessLaunch
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.workers import Suite
from tfbench.sides.spec import Side

ROOT = Path(__file__).resolve().parents[2]
STEPS = "benchmarks/harness/test_steps.py"
TENSORFLOW = "benchmarks/test_linear.py"
ITERATIONS = 30
STEP_SECONDS = 10e-6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description=__doc__)
    parser.add_argument("--launches", type=int, default=8, help="launches of each measurement")
    parser.add_argument("--bare", action="store_true", help="run 40 steps bare and under tfbench, and print both")
    parser.add_argument(
        "--journal", type=Path, default=Path(".tfbench/bare.jsonl"), help="keeps what --bare has measured"
    )
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="with --bare, start no other step after this; run again"
    )
    parser.add_argument("-k", dest="only", default="", help="with --bare, only steps with this in their names")
    arguments = parser.parse_args()
    if arguments.bare:
        compare_with_bare(arguments.journal, arguments.minutes * 60, arguments.only)
        return
    launches = arguments.launches
    policy, rng = Policy(), random.Random(1)
    launcher = ProcessLauncher(
        Suite((STEPS, TENSORFLOW), "pytest.ini", "importlib", "", available_cpus()),
        policy,
        processors(None, available_cpus()),
    )
    sides = [Side("baseline", sys.executable, ROOT), Side("contender", sys.executable, ROOT)]

    def opened(name: str, pair: int) -> tuple[ProcessLaunch, list[Entrant]]:
        entrants = [Entrant(Case(name, name, name), side) for side in sides]
        launch = launcher.open(entrants, pair)
        assert isinstance(launch, ProcessLaunch)
        return launch, entrants

    def blocks(name: str, iterations: int, prime: int, pair: int) -> list[tuple[int, int]]:
        """Return every block of a launch of two entrants, in time order."""
        launch, _ = opened(name, pair)
        launch.prepare((0, 1))
        plan = Plan(300, (iterations,) * 2, (prime,) * 2, (0.0, 0.0))
        found = launch.blocks(plan, orders([0, 1], plan.rounds, rng))
        launch.finish()
        return sorted(block for turns in found.values() for block in turns)

    began = time.perf_counter()
    policy = policy.with_common_ancestors()
    launcher.ready([(side, ()) for side in sides], range(policy.zygotes))
    print(f"{policy.zygotes} ancestors with {2 * policy.zygotes} zygotes ready in {time.perf_counter() - began:.1f} s")

    shares, gaps, overlaps = [], [], 0
    for number in range(launches):
        empty = blocks(f"{STEPS}::test_nothing", ITERATIONS, 1, number % policy.zygotes)
        shares.append(median(end - start for start, end in empty) / (ITERATIONS * STEP_SECONDS * 1e9))
        turns = blocks(f"{STEPS}::test_ten_microseconds", ITERATIONS, 0, number % policy.zygotes)
        gaps += [after[0] - before[1] for before, after in pairwise(turns)]
        overlaps += sum(after[0] < before[1] for before, after in pairwise(turns))
    print(f"share of the harness in a block of {ITERATIONS} x 10 µs: {median(shares):.2%} (largest {max(shares):.2%})")
    tenths = quantiles(gaps, n=10)
    print(f"hand-over of a turn: median {median(gaps) / 1e3:.1f} µs, p90 {tenths[8] / 1e3:.1f} µs")
    print(f"blocks that overlap: {overlaps} of {len(gaps)}")

    overheads = []
    for number in range(launches):
        start = time.perf_counter()
        launch, entrants = opened(
            f"{TENSORFLOW}::test_matmul[compiler=none,precision=float32]", number % policy.zygotes
        )
        iteration = {index: one.iteration for index, one in launch.prepare((0, 1)).items() if isinstance(one, Prepared)}
        plan = make_plan(entrants, iteration, policy)
        measuring = time.perf_counter()
        launch.blocks(plan, orders([0, 1], plan.rounds, rng))
        measured = time.perf_counter()
        launch.finish()
        overheads.append(time.perf_counter() - start - (measured - measuring))
    print(
        f"a launch of two matmuls, besides measuring: median {median(overheads):.2f} s, largest {max(overheads):.2f} s"
    )
    launcher.close()


# The same steps under tfbench and in a script of their own


CASES = (
    "benchmarks/test_attention.py::test_attention[compiler=none,precision=float32]",
    "benchmarks/test_attention.py::test_keras_attention[compiler=none,precision=float32]",
    "benchmarks/test_convolution.py::test_conv2d_3x3[compiler=none,precision=float32]",
    "benchmarks/test_convolution.py::test_depthwise[compiler=none,precision=float32]",
    "benchmarks/test_convolution.py::test_conv2d_gradient[compiler=none]",
    "benchmarks/test_embedding.py::test_sparse_adam[compiler=none]",
    "benchmarks/test_fusion.py::test_conv2d_bias_relu[fusion=fused]",
    "benchmarks/test_fusion.py::test_dense_bias_relu[fusion=fused]",
    "benchmarks/test_fusion.py::test_gelu[fusion=fused]",
    "benchmarks/test_host.py::test_eager_add",
    "benchmarks/test_host.py::test_function_call[arguments=1]",
    "benchmarks/test_host.py::test_keras_invocation[invocation=function]",
    "benchmarks/test_host.py::test_tracing",
    "benchmarks/test_linear.py::test_matmul[compiler=none,precision=float32]",
    "benchmarks/test_linear.py::test_batched_product[compiler=none,precision=float32]",
    "benchmarks/test_linear.py::test_vector_matrix[compiler=none]",
    "benchmarks/test_linear.py::test_gram_sum[compiler=none]",
    "benchmarks/test_normalization.py::test_batchnorm_training[compiler=none,normalization=fused]",
    "benchmarks/test_normalization.py::test_layer_norm[compiler=none,precision=float32]",
    "benchmarks/test_normalization.py::test_softmax[compiler=none,precision=float32]",
    "benchmarks/test_operations.py::test_top_k[compiler=none]",
    "benchmarks/test_operations.py::test_sort[compiler=none]",
    "benchmarks/test_operations.py::test_resize[compiler=none]",
    "benchmarks/test_operations.py::test_fft[compiler=none]",
    "benchmarks/test_operations.py::test_cumulative_sum[compiler=none]",
    "benchmarks/test_operations.py::test_row_sums[compiler=none,precision=float32]",
    "benchmarks/test_pipelines.py::test_pipeline_memory[converted=early]",
    "benchmarks/test_pipelines.py::test_shuffle[shuffle=none]",
    "benchmarks/test_recurrent.py::test_lstm[compiler=none,rolling=loop]",
    "benchmarks/test_recurrent.py::test_gru[compiler=none,rolling=loop]",
    "benchmarks/test_training.py::test_training_step[compiler=none,precision=float32]",
    "benchmarks/test_training.py::test_execution[execution=eager]",
    "benchmarks/test_training.py::test_training_on_batch[compiler=none]",
    "benchmarks/test_training.py::test_metrics[metrics=every_step]",
    "benchmarks/test_training.py::test_sgd[compiler=none,parameters=few]",
    "benchmarks/test_training.py::test_adam[compiler=none,parameters=few]",
    "benchmarks/test_convolution.py::test_conv2d_1x1[compiler=none,precision=float32]",
    "benchmarks/harness/drawing.py::test_uniform",
    "benchmarks/harness/drawing.py::test_dropout",
    "benchmarks/harness/drawing.py::test_log",
)
Found = dict[str, float]
"""Seconds of a call, the peak of memory in bytes, and bytes leaked per call."""


def compare_with_bare(journal: Path, seconds: float, only: str) -> None:
    """Run the steps that the journal lacks, each bare, under plain pytest, under tfbench and again; print all."""
    known = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    done, until = {row["case"]: row for row in known}, time.monotonic() + seconds
    chosen = [case for case in CASES if only in case]
    for case in chosen:
        if case not in done and time.monotonic() < until:
            row: dict[str, Any] = {"case": case, "bare": [bare(case)], "pytest": [bare(case, "--pytest")]}
            row["tfbench"] = under_tfbench(case)
            row["pytest"].append(bare(case, "--pytest"))
            row["bare"].append(bare(case))
            done[case] = row
            journal.parent.mkdir(exist_ok=True)
            with journal.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print_table([done[case] for case in chosen if case in done])
    if left := sum(case not in done for case in chosen):
        print(f"{left} of {len(chosen)} steps are left: run the command again")


def bare(case: str, option: str = "") -> Found:
    """Run a case in a script of its own, or under plain pytest, on the processor and with the threads that tfbench gives it."""
    file, _, test = case.partition("::")
    name, _, variant = test.removesuffix("]").partition("[")
    who = [option, case] if option else [file, name, *([variant] if variant else [])]
    words = [sys.executable, "-m", "benchmarks.harness.bare", *who]
    cpus = processors(None, available_cpus()).of(Case(case, name, name))
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, cpus)), *words], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr[-2000:]}")
    found: Found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found


def under_tfbench(case: str) -> Found:
    """Race a case against itself, and return what the report has of the contender."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        words = ["--benchmark", "--against", "self", "--policy", "quick", f"--report-json={report}", case]
        done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True)
        if not report.exists():
            raise SystemExit(f"{case} failed:\n{done.stdout[-2000:]}")
        content = json.loads(report.read_text())
    rows = {row["metric"]: row for row in content["verdicts"]}
    (rounds,) = (row for row in content["rounds"] if row["side"] == "contender")
    found = {"seconds": quartile(rounds)}
    for name, metric in (("peak", "peak_host_memory"), ("leaked", "leaked_bytes")):
        if metric in rows:
            found[name] = rows[metric]["values"]["contender"]
    return found


def quartile(rounds: Mapping[str, Any]) -> float:
    """Return the lower quartile of the rounds that a report stores, which bursts of other programs hardly move."""
    steps = [steps for (steps,) in struct.iter_unpack("<h", base64.b64decode(rounds["steps"]))]
    return float(rounds["median_seconds"]) * math.exp(STEP * quantiles(steps)[0])


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the steps with the medians of their bare runs beside the same under tfbench; times are lower quartiles."""
    print(
        f"{'step':22}{'bare':>10}{'spread':>8}{'pytest':>8}{'tfbench':>8}{'peak':>9}{'tfbench':>9}{'leak':>7}{'tfbench':>8}"
    )
    ratios, apart = [], []
    for row in rows:
        runs, found = row["bare"], row["tfbench"]
        seconds, peak, leaked = (median(run[name] for run in runs) for name in ("seconds", "peak", "leaked"))
        times = [run["seconds"] for run in runs]
        ratios.append(found["seconds"] / seconds)
        plain = median(run["seconds"] for run in row["pytest"])
        apart.append(found["seconds"] / plain)
        name = row["case"].partition("::test_")[2].partition("[")[0]
        print(
            f"{name:22}{seconds * 1e6:7,.0f} µs{max(times) / min(times) - 1:8.1%}{plain / seconds:8.3f}{ratios[-1]:8.3f}"
            f"{peak / 2**20:5.1f} MiB{found.get('peak', math.nan) / 2**20:5.1f} MiB"
            f"{leaked:5.0f} B{found.get('leaked', math.nan):6.0f} B"
        )
    if ratios:
        within = sum(abs(ratio - 1) <= 0.03 for ratio in ratios)
        print(f"{within} of {len(ratios)} times within 3%; median ratio {median(ratios):.3f}")
        within = sum(abs(ratio - 1) <= 0.03 for ratio in apart)
        print(f"beside plain pytest: {within} of {len(apart)} within 3%; median ratio {median(apart):.3f}")


if __name__ == "__main__":
    main()
