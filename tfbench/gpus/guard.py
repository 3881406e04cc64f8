"""Whether a launch on a GPU was disturbed, from what was read of the device meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tfbench.gpus.model import HARDWARE_REASONS, Stretch
from tfbench.policy import Policy


def disturbance(
    stretch: Stretch, ours: frozenset[int], before: frozenset[int], earlier: Sequence[Stretch], policy: Policy
) -> str:
    """Why what was timed meanwhile does not count; ``""`` if nothing speaks against it.

    Args:
        ours: Process ids of this run's own.
        before: Those that were on the GPU before any of this run was.
        earlier: Launches of this run on the same GPU that counted.
    """
    if stretch.lost:
        return stretch.lost
    if stretch.xids:
        return f"the driver reported XID {', '.join(map(str, stretch.xids))} meanwhile: see dmesg"
    held = dict.fromkeys(
        words for moment in stretch.moments for bit, words in HARDWARE_REASONS.items() if moment.reasons & bit
    )
    if held:
        return f"the GPU held its clock down ({', '.join(held)}): cool it, check its power, or lock a lower clock"
    if strangers := sorted(foreign(stretch, ours, before)):
        pids = ", ".join(map(str, strangers))
        return f"another process computed on the GPU (pid {pids}): end it, or give the job a GPU of its own"
    return _drift(stretch, earlier, policy)


def foreign(stretch: Stretch, ours: frozenset[int], before: frozenset[int]) -> set[int]:
    """Processes on the GPU that are not this run's.

    In a container the driver tells the host's numbers, of which none is one of ours: there only those are known to be
    somebody else's that were there before.
    """
    listed = {pid for moment in stretch.moments for pid in moment.processes or ()}
    return listed - ours if listed & ours else listed & before


def _drift(stretch: Stretch, earlier: Sequence[Stretch], policy: Policy) -> str:
    """A clock that differs from what it was: a power cap, another state, somebody's setting."""
    clocks = [one.sm_clock for one in earlier if one.sm_clock]
    if not clocks or not stretch.sm_clock:
        return ""
    usual = median(clocks)
    if abs(stretch.sm_clock / usual - 1) <= policy.gpu_clock_drift:
        return ""
    return (
        f"the GPU ran at {stretch.sm_clock:.0f} MHz, in other launches at {usual:.0f} MHz: "
        "lock its clock with sudo nvidia-smi -lgc RATE"
    )
