"""Checks of NVIDIA GPUs: held clocks, persistence mode and other processes."""

from __future__ import annotations

from tfbench.doctor.checks.grading import Limits, graded
from tfbench.doctor.model import Finding, Gpu, Machine, State
from tfbench.gpus.readings import HARDWARE_REASONS


def devices(machine: Machine, limits: Limits) -> Finding:
    """Check that no device holds its clock down, and that drivers stay loaded."""
    if machine.gpus is None:
        if machine.gpu_driver:
            fix = "install nvidia-smi, or start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            return Finding("GPU", State.UNKNOWN, "an NVIDIA driver is present, but nvidia-smi does not answer", fix)
        return Finding("GPU", State.OK, "no NVIDIA device")
    gpus = machine.gpus.devices
    if held := [f"{gpu.index}: {reasons}" for gpu in gpus if (reasons := _held(gpu))]:
        return Finding(
            "GPU",
            State.BAD,
            f"the clock is held down on {'; '.join(held)}",
            "improve its cooling and check its power supply, or lock a lower clock: sudo nvidia-smi -lgc RATE",
        )
    what = "; ".join(map(_describe, gpus)) or "nvidia-smi lists no device"
    if unloaded := [str(gpu.index) for gpu in gpus if gpu.persistence is False]:
        return Finding(
            "GPU",
            State.WARN,
            f"{what}; without persistence mode on {', '.join(unloaded)}, every start reloads the driver",
            "sudo nvidia-smi -pm 1; for steady clocks: sudo nvidia-smi -lgc RATE",
        )
    return Finding("GPU", State.OK, what)


def processes(machine: Machine, limits: Limits) -> Finding:
    """Check that no other process uses a device."""
    name = "GPU processes"
    if machine.gpus is None:
        if machine.gpu_driver:
            return Finding(name, State.UNKNOWN, "nvidia-smi does not answer")
        return Finding(name, State.OK, "no NVIDIA device")
    busy = max((gpu.utilization or 0.0 for gpu in machine.gpus.devices), default=0.0)
    listed = ", ".join(machine.gpus.processes)
    state = graded(busy, limits.gpu_busy_warn, limits.gpu_busy_bad)
    if state is State.OK and not listed:
        return Finding(name, State.OK, "no other process uses a device")
    return Finding(
        name,
        State.BAD if state is State.BAD else State.WARN,
        f"{listed or 'a process outside this container'}; the busiest device is in use {busy:.0f}% of the time",
        "end the process, choose an idle device with CUDA_VISIBLE_DEVICES, or run one job per runner",
    )


def _held(gpu: Gpu) -> str:
    return ", ".join(reason for bit, reason in HARDWARE_REASONS.items() if (gpu.throttled or 0) & bit)


def _describe(gpu: Gpu) -> str:
    clock = f" at {gpu.clock:.0f} of {gpu.clock_limit:.0f} MHz" if gpu.clock and gpu.clock_limit else ""
    return f"{gpu.name}{clock}{', MIG' if gpu.mig else ''}"
