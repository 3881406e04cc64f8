"""Read NVIDIA devices through ``nvidia-smi``, which comes with every driver."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable, Sequence

from tfbench.doctor.model import Gpu, Gpus

Run = Callable[[Sequence[str]], "str | None"]
"""Runs a command and returns its output; ``None`` if it is missing, fails or does not end."""

_SECONDS = 20.0
"""Without persistence mode, every call loads the driver, which takes several seconds."""
_FIELDS = "index,name,persistence_mode,utilization.gpu,clocks.sm,clocks.max.sm,mig.mode.current"
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The name since driver 535, and the older name."""
_PROCESSES = "pid,process_name,used_memory"


def run(command: Sequence[str]) -> str | None:
    """Run a system command; see `Run`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def read_gpus(run: Run = run) -> Gpus | None:
    """Return the devices and the processes that compute on them; ``None`` without an answer of nvidia-smi."""
    for reasons in _REASONS:
        answer = run(["nvidia-smi", f"--query-gpu={_FIELDS},{reasons}", "--format=csv,noheader,nounits"])
        if answer is not None:
            break
    else:
        return None
    devices = tuple(_gpu(row) for row in _rows(answer, 8))
    listed = run(["nvidia-smi", f"--query-compute-apps={_PROCESSES}", "--format=csv,noheader,nounits"]) or ""
    return Gpus(devices, tuple(f"{name} (pid {pid}, {memory} MiB)" for pid, name, memory in _rows(listed, 3)))


def _rows(answer: str, width: int) -> list[list[str]]:
    rows = ([cell.strip() for cell in row] for row in csv.reader(answer.splitlines()))
    return [row for row in rows if len(row) == width]


def _gpu(row: list[str]) -> Gpu:
    index, name, persistence, utilization, clock, limit, mig, throttled = row
    return Gpu(
        index=int(_number(index) or 0),
        name=name,
        persistence=_switch(persistence),
        utilization=_number(utilization),
        clock=_number(clock),
        clock_limit=_number(limit),
        throttled=_bits(throttled),
        mig=_switch(mig),
    )


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None  # such as "[N/A]"


def _switch(cell: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(cell)


def _bits(cell: str) -> int | None:
    try:
        return int(cell, 16)
    except ValueError:
        return None
