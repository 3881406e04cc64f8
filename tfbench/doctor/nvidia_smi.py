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
_SWITCH = {"Enabled": True, "Disabled": False}
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
    answers = (_query(run, f"gpu={_FIELDS},{reasons}", 8) for reasons in _REASONS)
    if (devices := next((rows for rows in answers if rows is not None), None)) is None:
        return None
    processes = _query(run, f"compute-apps={_PROCESSES}", 3) or []
    listed = tuple(f"{name} (pid {pid}, {memory} MiB)" for pid, name, memory in processes)
    return Gpus(tuple(map(_gpu, devices)), listed)


def _query(run: Run, query: str, width: int) -> list[list[str]] | None:
    """Return the rows of this many cells, ``None`` without an answer."""
    answer = run(["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"])
    if answer is None:
        return None
    rows = ([cell.strip() for cell in row] for row in csv.reader(answer.splitlines()))
    return [row for row in rows if len(row) == width]


def _gpu(row: list[str]) -> Gpu:
    index, name, persistence, utilization, clock, limit, mig, throttled = row
    numbers = _number(utilization), _number(clock), _number(limit)
    bits = int(throttled, 16) if throttled.startswith("0x") else None
    return Gpu(int(index), name, _SWITCH.get(persistence), *numbers, bits, _SWITCH.get(mig))


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None  # such as "[N/A]"
