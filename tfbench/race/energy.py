"""Energy of one iteration on GPUs that count it, from a launch that repeats the step while they are watched."""

from __future__ import annotations

from tfbench.errors import LaunchDisturbed
from tfbench.gpus.monitor import GpuMonitor
from tfbench.policy import Policy
from tfbench.protocol.messages import Begin, Prepared, RepeatCase, Repeated
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher

_DOING = "repeated for its energy"


def joules(launcher: ProcessLauncher, gpu_monitor: GpuMonitor, entrant: Entrant, policy: Policy) -> float | None:
    """Return the joules of an iteration, summed over all watched GPUs and including their idle power.

    ``None`` if one of the GPUs does not count its energy.

    Raises:
        SideError: A zygote does not start.
        BenchmarkError, BenchmarkSkipped: The case broke, or cannot run here.
        LaunchDisturbed: The GPU was disturbed, so the energy is not that of the step.
    """
    request = RepeatCase(
        launcher.processors.of(entrant.case), entrant.case.name, policy.energy_seconds, policy.warmup()
    )
    with launcher.start(entrant, 0, request) as process:
        prepared = process.answer(Prepared, f"while it was {_DOING}", policy.setup_seconds)
        with gpu_monitor.watching((entrant.case.name, entrant.side.name, _DOING)) as launch_monitor:
            process.ask(Begin())
            limit = policy.overrun * (policy.energy_seconds + prepared.iteration) + policy.answer_seconds
            iterations = process.answer(Repeated, f"while it was {_DOING}", limit).iterations
    if launch_monitor.cause:
        raise LaunchDisturbed(launch_monitor.cause)
    return launch_monitor.energy / iterations if launch_monitor.energy is not None and iterations else None
