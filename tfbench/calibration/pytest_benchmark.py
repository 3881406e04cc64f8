"""pytest-benchmark's way on the same workloads: time a run, save it, compare it with another by a 5% fence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tfbench.calibration.journal import SAVED, CalibrationTrial
from tfbench.errors import SideError
from tfbench.model import Outcome

FENCE = 1.05
"""The ratio above which ``--benchmark-compare-fail=median:5%`` fails."""
_LIMIT = 600.0


@dataclass(frozen=True)
class SavedRun:
    """Statistics of every workload in one run of pytest-benchmark with its own defaults."""

    slowdown: float
    stats: dict[str, dict[str, float]]
    seconds: float


def measure(file: Path, slowdown: float) -> SavedRun:
    """Run pytest-benchmark on the workloads in a process of its own.

    Raises:
        SideError: It did not finish well.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "saved.json")
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        env |= {"TFBENCH_SLOWDOWN": str(slowdown), "TF_CPP_MIN_LOG_LEVEL": "2"}
        began = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-q", str(file), "-p", "no:tfbench.plugin", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-c", os.devnull, f"--rootdir={file.parent}", f"--benchmark-json={target}"],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
        )
        if done.returncode:
            raise SideError(f"pytest-benchmark's run failed:\n{done.stdout[-2000:]}")
        rows = json.loads(target.read_text())["benchmarks"]
    stats = {row["params"]["name"]: {key: row["stats"][key] for key in ("median", "mean")} for row in rows}
    return SavedRun(slowdown, stats, (time.perf_counter() - began) / len(stats))


def compare(runs: list[SavedRun], first: int) -> list[CalibrationTrial]:
    """Every comparison that the newest run allows with an earlier one: pytest-benchmark's verdicts.

    A run on unchanged code is compared with the earlier ones on unchanged code, a slowed one too.

    Args:
        first: Number of the newest run, as the trials keep it.
    """
    *earlier, newest = runs
    trials = []
    for before in earlier:
        if before.slowdown:
            continue
        for method in SAVED:
            statistic = method.rpartition(" ")[2]
            for name, stats in newest.stats.items():
                if name in before.stats:
                    ratio = stats[statistic] / before.stats[name][statistic]
                    outcome = Outcome.REGRESSED if ratio > FENCE else Outcome.UNCHANGED
                    trials.append(
                        CalibrationTrial(
                            method, "5%", name, newest.slowdown, outcome.value, 2 * newest.seconds, 1, first
                        )
                    )
    return trials
