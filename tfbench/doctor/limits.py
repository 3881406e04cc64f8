"""Where a reading of the machine becomes a warning, and where it becomes bad."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of all checks. Shares are fractions, times are seconds."""

    others_bad: float = 1.0
    """Other runnable processes per processor. From 1 on, another process wants the worker's processor too."""
    others_warn: float = 0.25
    """With a quarter of the processors busy, bursts reach the caches that all processors share."""
    share_warn: float = 0.97
    """A busy loop loses up to 3% of its processor to the kernel. Below this, another process ran there."""
    share_bad: float = 0.70
    """Every third block would be interrupted."""
    steal_warn: float = 0.01
    """Above the kernel's rounding, which is 0.01 s per second."""
    steal_bad: float = 0.10
    """One block in ten would be interrupted, and medians of blocks begin to move."""
    quota_warn: float = 2.0
    """Processors. A worker takes one, and the controller must not use up the worker's share."""
    quota_bad: float = 1.0
    """Below one processor, the kernel throttles every worker during its timed blocks."""
    throttled_bad: float = 0.01
    """Share of the time. A stop lasts up to 0.1 s, which is hundreds of blocks."""
    memory_warn: int = 9 * GIB // 2
    """Bytes. Policy standard keeps up to 12 zygotes per side of 180 MB each."""
    memory_bad: int = GIB
    """Bytes. TensorFlow and the first processes do not fit, and the kernel would kill one."""
    swap_warn: int = 64 << 20
    """Bytes. A smaller amount is memory that nothing used again."""
    pressure_warn: float = 1.0
    """Percent of the last 10 s in which a process waited for memory."""
    pressure_bad: float = 10.0
    clock_warn: float = 5e-7
    """A block of 0.3 ms is timed with two readings. Half a microsecond each is a third of a percent."""
    clock_bad: float = 3e-6
    """Two percent of a block, as large as the effects to be decided."""
    compiled_warn: float = 0.95
    """Share of modules. Below, every zygote imports TensorFlow seconds slower."""
    gpu_busy_warn: float = 5.0
    """Percent. An idle device reads 0, a desktop 1 to 4."""
    gpu_busy_bad: float = 20.0
    slowdown_bad: float = 0.05
    """A gate must find slowdowns of this size. If noise hides them in the median workload, the machine is not fit."""
    found: float = 0.95
    """Share of races that must call a slowdown regressed for it to count as detectable."""
