"""Grade the readings of a machine, with a fix for each fault. Pure: reads no file and no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tfbench.doctor.checks import cpu, gpu, memory, system
from tfbench.doctor.checks.grading import Limits
from tfbench.doctor.model import Finding, Machine, ObservationWindow, State

Check = Callable[[Machine, Limits], Finding]

CHECKS: tuple[Check, ...] = (
    cpu.processors, cpu.load, cpu.own_processor, cpu.steal, cpu.quota, memory.available, memory.swap, cpu.heat,
    cpu.governor, cpu.turbo, cpu.siblings, system.virtualisation, memory.huge_pages, system.address_layout,
    system.clock, system.tensorflow, system.bytecode, gpu.devices, gpu.processes,
)  # fmt: skip
"""In the order of the table."""


def examine(machine: Machine, limits: Limits, race: ObservationWindow | None = None) -> list[Finding]:
    """Run every check on a machine.

    Args:
        race: The window of the doctor's race. It is longer and under load, so it replaces the spin window.
    """
    if race is not None and machine.observation is not None:
        machine = replace(machine, observation=replace(machine.observation, spin=race))
    return [check(machine, limits) for check in CHECKS]


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sort by state (bad, warn, unknown, ok), and by the order of the checks within a state."""
    order = list(State)
    return sorted(findings, key=lambda finding: order.index(finding.state))


def is_fit(findings: Sequence[Finding]) -> bool:
    """Return whether no finding is bad, which decides the exit code."""
    return all(finding.state is not State.BAD for finding in findings)
