"""Apply pytest-benchmark's method to the same workloads: time a run, save it, compare saved runs with a 5% limit."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tfbench.doctor.calibration.journal import SAVED, CalibrationTrial
from tfbench.errors import SideError
from tfbench.model import Outcome

LIMIT = 1.05
"""The ratio above which ``--benchmark-compare-fail=median:5%`` fails."""
_TIMEOUT = 600.0


@dataclass(frozen=True)
class SavedRun:
    """Statistics of every workload in one run of pytest-benchmark with its own defaults."""

    slowdown: float
    stats: dict[str, dict[str, float]]
    seconds: float


def measure(file: Path, slowdown: float) -> SavedRun:
    """Run pytest-benchmark on the workloads in a separate process.

    Raises:
        SideError: The process failed.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env |= {"TFBENCH_SLOWDOWN": str(slowdown), "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-m", "pytest", "-q", str(file), "-p", "no:tfbench.plugin", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "saved.json")
        command += ["-c", os.devnull, f"--rootdir={file.parent}", f"--benchmark-json={target}"]
        began = time.perf_counter()
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT)
        if done.returncode:
            raise SideError(f"pytest-benchmark failed on {file}:\n{done.stdout[-2000:]}")
        rows = json.loads(target.read_text())["benchmarks"]
    stats = {row["params"]["name"]: {key: row["stats"][key] for key in ("median", "mean")} for row in rows}
    return SavedRun(slowdown, stats, (time.perf_counter() - began) / len(stats))


def compare(runs: list[SavedRun], number: int) -> list[CalibrationTrial]:
    """Compare the newest run, with its number, with all earlier ones on unchanged code, by pytest-benchmark's rule."""
    *earlier, newest = runs
    trials = []
    for before, method in itertools.product([run for run in earlier if not run.slowdown], SAVED):
        statistic = method.rpartition(" ")[2]
        for name in [name for name in newest.stats if name in before.stats]:
            ratio = newest.stats[name][statistic] / before.stats[name][statistic]
            outcome = (Outcome.REGRESSED if ratio > LIMIT else Outcome.UNCHANGED).value
            trials.append(CalibrationTrial(method, "5%", name, newest.slowdown, outcome, 2 * newest.seconds, 1, number))
    return trials
