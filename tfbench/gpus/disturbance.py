"""Decide from the readings of a GPU whether a launch was disturbed. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tfbench.gpus.readings import GpuObservationWindow, hardware_reasons
from tfbench.policy import Policy


def disturbance(
    window: GpuObservationWindow,
    ours: frozenset[int],
    before: frozenset[int],
    earlier: Sequence[GpuObservationWindow],
    policy: Policy,
    last: GpuObservationWindow | None = None,
) -> str:
    """Return why a launch does not count, ``""`` if it does.

    Args:
        ours: Process ids of this run.
        before: Process ids on the GPU before this run.
        earlier: Windows of earlier launches of the same race that counted, on this GPU.
        last: Window of the previous launch, whether it counted or not.
    """
    if window.lost:
        return window.lost
    if window.xids:
        return f"the driver reported XID {', '.join(map(str, window.xids))} during the launch: see dmesg"
    if held := dict.fromkeys(words for reading in window.readings for words in hardware_reasons(reading.reasons)):
        return f"the GPU lowered its clock ({', '.join(held)}): cool it, check its power supply, or lock a lower clock"
    if (share := window.too_hot) is not None and share > policy.gpu_hot_share:
        return f"heat lowered the GPU's clock for {share:.0%} of the launch: cool it, or lock a lower clock"
    if strangers := sorted(foreign(window, ours, before)):
        pids = ", ".join(map(str, strangers))
        return f"another process computed on the GPU (pid {pids}): end it, or give the job its own GPU"
    # A clock that differs from earlier launches: a power cap, another power state, or a changed setting. Two launches
    # in a row at the same clock count, whatever the clock was before: a GPU that warms up settles at a lower clock,
    # which affects both sides of a race alike.
    clocks, clock = [one.sm_clock for one in earlier if one.sm_clock], window.sm_clock
    if not clocks or not clock:
        return ""
    usual = median(clocks)
    known = [usual, last.sm_clock] if last is not None and last.sm_clock else [usual]
    if any(abs(clock / one - 1) <= policy.gpu_clock_drift for one in known):
        return ""
    return (
        f"the GPU ran at {clock:.0f} MHz, and at {usual:.0f} MHz in other launches: "
        "lock its clock with sudo nvidia-smi -lgc RATE"
    )


def foreign(window: GpuObservationWindow, ours: frozenset[int], before: frozenset[int]) -> set[int]:
    """Return the processes that compute on the GPU and do not belong to this run.

    If the driver does not report who computes, all processes with access to the GPU count. In a container, the driver
    may report the host's process ids, of which none is ours. Then only processes from before this run count.
    """
    listed = {pid for reading in window.readings for pid in reading.processes or ()}
    strangers = listed - ours if listed & ours else listed & before
    return strangers if window.computing is None else strangers & window.computing
