"""The thresholds of GPUs, which every policy includes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuThresholds:
    """Which launches on a GPU count, and how its energy is measured. Times are in seconds."""

    gpu_look_seconds: float = 0.1
    """Interval of GPU readings during a launch of at least 0.3 s. A reading costs 1 ms of another processor, and a
    throttled clock stays low for longer."""
    gpu_clock_drift: float = 0.05
    """A launch counts only if its mean clock is within this of the race's other launches. A software power cap moves
    clocks by two or three percent, another power state by tens. Saved times use the same bound."""
    gpu_hot_share: float = 0.02
    """A launch counts only if heat limited the clock for less of it, by the driver's counter, which also covers the
    time between readings. A median ignores so few rounds."""
    device_bound: float = 0.5
    """A step in which the GPU works for a smaller share is host-bound, whatever its kernels do."""
    energy_seconds: float = 1.0
    """Duration of the repetition that measures energy. Devices update the counter at least every tenth of a second."""
    disturbed_launches: int = 5
    """Launches of a race that may be discarded because the GPU was disturbed, before the race ends inconclusive."""
