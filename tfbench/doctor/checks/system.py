"""Checks of the system: virtual machine, address layout, timer, and the bytecode of Python packages."""

from __future__ import annotations

from tfbench.doctor.checks.grading import Limits, finding, graded, unknown
from tfbench.doctor.model import Finding, Machine, State

_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "xen", "pit")


def virtualisation(machine: Machine, limits: Limits) -> Finding:
    """Check whether unseen neighbours share the hardware."""
    if machine.hypervisor is None:
        return unknown("virtualisation", machine, "whether this is a virtual machine")
    if not machine.hypervisor:
        return Finding("virtualisation", State.OK, "bare metal")
    return Finding(
        "virtualisation",
        State.WARN,
        f"a virtual machine ({machine.hypervisor}): neighbours that it cannot see share its caches and memory",
        "gate by live races, not by saved times; bare metal or a dedicated host is quieter",
    )


def address_layout(machine: Machine, limits: Limits) -> Finding:
    """Check that every process draws a random address layout."""
    name = "address layout"
    if machine.aslr is None:
        return unknown(name, machine, "whether addresses are random")
    if machine.aslr:
        return Finding(name, State.OK, "random: each process has its own layout, and launches average the differences")
    return Finding(
        name,
        State.WARN,
        "the same in every process, so a lucky layout looks like an effect",
        "sudo sysctl kernel.randomize_va_space=2 (and no setarch -R)",
    )


def clock(machine: Machine, limits: Limits) -> Finding:
    """Check that the timer resolves a block."""
    if machine.clock is None:
        return unknown("clock", machine, "the timer")
    source, step = machine.clock.source, machine.clock.step
    state = graded(step, limits.clock_warn, limits.clock_bad)
    if state is State.OK and source in _SLOW_CLOCKS:
        state = State.WARN
    what = f"{source or 'the system timer'}, in steps of {step * 1e9:.0f} ns"
    fix = "boot with clocksource=tsc tsc=reliable if the processor's TSC is steady (see `dmesg | grep -i tsc`)"
    return finding("clock", state, what, fix)


def tensorflow(machine: Machine, limits: Limits) -> Finding:
    """Check that TensorFlow is installed and compiled to bytecode."""
    found = machine.tensorflow
    if found is None:
        fix = "pip install tensorflow, in this environment"
        return Finding("TensorFlow", State.WARN, "not installed in the environment of tfbench", fix)
    share = found.compiled / found.seen if found.seen else 1.0
    if share >= limits.compiled_warn:
        return Finding("TensorFlow", State.OK, "installed, and compiled to bytecode")
    missing = f"{found.seen - found.compiled} of {found.seen} sampled modules have no compiled bytecode"
    never = "" if machine.writes_bytecode else ", and PYTHONDONTWRITEBYTECODE prevents it"
    what = f"{missing}, so every zygote starts seconds slower{never}"
    fix = f"python -m compileall -q -j 0 {found.path}; with uv: uv pip install --compile-bytecode"
    return Finding("TensorFlow", State.WARN, what, fix)


def bytecode(machine: Machine, limits: Limits) -> Finding:
    """Check that Python keeps the bytecode that it compiles."""
    if machine.writes_bytecode:
        return Finding("bytecode", State.OK, "Python writes bytecode files")
    return Finding(
        "bytecode",
        State.WARN,
        "PYTHONDONTWRITEBYTECODE is set, so every zygote compiles the same modules again",
        "unset PYTHONDONTWRITEBYTECODE",
    )
