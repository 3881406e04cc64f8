"""Whether a launch on a GPU was disturbed, from what was read of the device meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tfbench.gpus.readings import HARDWARE_REASONS, GpuObservationWindow
from tfbench.policy import Policy


def disturbance(
    window: GpuObservationWindow,
    ours: frozenset[int],
    before: frozenset[int],
    earlier: Sequence[GpuObservationWindow],
    policy: Policy,
    last: GpuObservationWindow | None = None,
) -> str:
    """Why what was timed meanwhile does not count; ``""`` if nothing speaks against it.

    Args:
        ours: Process ids of this run's own.
        before: Those that were on the GPU before any of this run was.
        earlier: Launches of the same race on the same GPU that counted.
        last: The one before this, whether it counted or not.
    """
    if window.lost:
        return window.lost
    if window.xids:
        return f"the driver reported XID {', '.join(map(str, window.xids))} meanwhile: see dmesg"
    held = dict.fromkeys(
        words for reading in window.readings for bit, words in HARDWARE_REASONS.items() if reading.reasons & bit
    )
    if held:
        return f"the GPU held its clock down ({', '.join(held)}): cool it, check its power, or lock a lower clock"
    if (share := window.too_hot) is not None and share > policy.gpu_hot_share:
        return f"heat held the GPU's clock down for {share:.0%} of the time: cool it, or lock a lower clock"
    if strangers := sorted(foreign(window, ours, before)):
        pids = ", ".join(map(str, strangers))
        return f"another process computed on the GPU (pid {pids}): end it, or give the job a GPU of its own"
    return _drift(window, earlier, policy, last)


def foreign(window: GpuObservationWindow, ours: frozenset[int], before: frozenset[int]) -> set[int]:
    """Processes that compute on the GPU and are not this run's; where nobody tells who computes, those that might.

    In a container the driver tells the host's numbers, of which none is one of ours: there only those are known to be
    somebody else's that were there before.
    """
    listed = {pid for reading in window.readings for pid in reading.processes or ()}
    strangers = listed - ours if listed & ours else listed & before
    return strangers if window.computing is None else strangers & window.computing


def _drift(
    window: GpuObservationWindow,
    earlier: Sequence[GpuObservationWindow],
    policy: Policy,
    last: GpuObservationWindow | None,
) -> str:
    """A clock that differs from what it was: a power cap, another state, somebody's setting.

    Two launches in a row at the same clock count, whatever it was before: a GPU that gets warm settles at a lower one, and
    both sides of a race have it alike.
    """
    clocks = [one.sm_clock for one in earlier if one.sm_clock]
    clock = window.sm_clock
    if not clocks or not clock:
        return ""
    usual = median(clocks)
    known = [usual, last.sm_clock] if last is not None and last.sm_clock else [usual]
    if any(abs(clock / one - 1) <= policy.gpu_clock_drift for one in known):
        return ""
    return (
        f"the GPU ran at {clock:.0f} MHz, in other launches at {usual:.0f} MHz: "
        "lock its clock with sudo nvidia-smi -lgc RATE"
    )
