"""Joules of one iteration on a GPU, where the device counts them: a launch of its own that loops while it is watched."""

from __future__ import annotations

from tfbench.errors import BenchmarkError, LaunchDisturbed, WorkerDied
from tfbench.gpus.monitor import GpuMonitor
from tfbench.policy import Policy
from tfbench.protocol import ChannelClosed
from tfbench.race.child import Process
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.zygote import tail

_DOING = "repeated for its energy"


def joules(launcher: ProcessLauncher, gpu_monitor: GpuMonitor, entrant: Entrant, policy: Policy) -> float | None:
    """Of an iteration, what all watched GPUs took together, idling included; ``None`` where one does not count.

    Raises:
        SideError: A zygote does not start.
        BenchmarkError, BenchmarkSkipped: The case broke, or cannot run here.
        LaunchDisturbed: The GPU was, so that it says nothing.
    """
    zygote = launcher.zygote(entrant, 0)
    if (reason := zygote.skip_reason(entrant.case)) is not None:
        raise BenchmarkError(reason)
    cpus = list(launcher.processors.of(entrant.case))
    how = {"seconds": policy.energy_seconds, "warmup": policy.warmup}
    process = Process.start(zygote, entrant.case, loop=how, cpus=cpus, threads=len(cpus))
    try:
        process.answer("prepared", _DOING, policy.setup_seconds)
        with gpu_monitor.watching((entrant.case.name, entrant.side.name, _DOING)) as launch_monitor:
            process.channel.send("serve")
            iterations = process.answer("looped", _DOING, policy.answer_seconds)["iterations"]
    except ChannelClosed:
        raise WorkerDied(f"its process ended while it was {_DOING}", tail(process.log)) from None
    finally:
        process.end(kill=True)
    if launch_monitor.cause:
        raise LaunchDisturbed(launch_monitor.cause)
    return launch_monitor.energy / iterations if launch_monitor.energy is not None and iterations else None
