"""Name the cause of a difference between two sides: a retrace, an op, a Python function, or who keeps memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tfbench.errors import BenchmarkError, BenchmarkSkipped, ProfileError, SideError
from tfbench.fs import scratch_dir
from tfbench.metrics.catalog import FIRST_CALL, PEAK_HOST_MEMORY
from tfbench.metrics.graph_diff import GRAPH, RESULT, XLA
from tfbench.model import TIME
from tfbench.policy import Policy
from tfbench.profiles.attribution import Attribution
from tfbench.profiles.python_functions import HALF, describe, grown, memory_lines
from tfbench.profiles.step_breakdown import TimeCategory
from tfbench.race.interfaces import Entrant
from tfbench.race.process_launcher import ProcessLauncher
from tfbench.race.profiler import USUAL, Profiler
from tfbench.race.sampler import Sampler
from tfbench.report.attribution import describe_cause
from tfbench.session.explain import Explanation
from tfbench.session.profiling import BASELINE, CONTENDER, PROFILE_FAILURES, take

RETRACES = ("retraces_per_call", "retraces")
_OPS = "graph_ops"
_EXECUTES = "tensorflow.python.eager."
"""The modules in which Python waits for ops. They say nothing about which ops."""
_TRACES = ("func_graph", "tracing_compilation", "polymorphic_function")
"""Parts of the names of functions that trace. In a call that is not the first, they are a cause of their own."""
_LOOPS = ("NextIteration", "While")
_LAUNCHES = 2
"""Profiled launches per side. A cause of half of a slowdown needs no more, unlike the many small ones of `explain`."""


def causes(
    launcher: ProcessLauncher,
    policy: Policy,
    sides: tuple[Entrant, Entrant],
    metric: str,
    found: Explanation,
    slowdown: float | None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Return the cause of a difference, and then what supports it, a line each; empty if nothing was found.

    Args:
        sides: The case before, and now.
        metric: ``time``, ``first_call``, ``peak_host_memory``, or one that is counted.
        found: The changes of the case's graphs and exact metrics.
        slowdown: What the race measured, as a fraction.
    """
    lines = [*traced_again(found), *result_changed(found), *xla_changed(found)]
    ops = ops_changed(found)
    enough = (slowdown or 0.0) * policy.profile_found
    if metric == PEAK_HOST_MEMORY:
        return [*lines, *_memory(launcher, policy, sides, tell), *ops]
    if metric == TIME:
        attribution = _profiled(launcher, policy, sides, slowdown, tell)
        if ops_found := op_lines(attribution, enough):
            return [*lines, *ops_found, *ops]
    if metric not in (TIME, FIRST_CALL):
        return [*lines, *ops]
    return [*lines, *_python(launcher, policy, sides, metric, enough, tell), *ops]


def traced_again(found: Explanation) -> list[str]:
    """Return a line if the step traces functions again in later calls, and did not before."""
    for name, before, now, what in found.metrics:
        if name in RETRACES and before in ("0", "-") and now not in ("0", "-"):
            return [f"retrace: {now} {name.replace('_', ' ')}, {before} before{f'; {what}' if what else ''}"]
    return []


def ops_changed(found: Explanation) -> list[str]:
    """Return a line on the ops that graphs gained and lost."""
    lines = []
    for name, before, now, what in found.metrics:
        if name == _OPS and what:
            loops = any(op in what.partition("gained ")[2] for op in _LOOPS)
            lines.append(f"{'while loop' if loops else 'graph'}: {before} ops before, {now} now; {what}")
    return lines


def graph_changed(found: Explanation) -> bool:
    """Whether TensorFlow's graph changed. Flags of XLA change the modules that it makes of the same graph."""
    return any(where == GRAPH for where, *_ in found.changes)


def in_own_python(lines: list[str]) -> bool:
    """Whether the cause is Python's own time, so that no default of TensorFlow can explain it."""
    return bool(lines) and "Python: " in lines[0]


def xla_changed(found: Explanation) -> list[str]:
    """Return a line for each module of XLA whose kernels changed."""
    return [f"{where}: {what}: {text}" for where, what, text in found.changes if where.startswith(XLA)]


def result_changed(found: Explanation) -> list[str]:
    """Return a line for each part of the step's result that has another type: what follows works on other numbers."""
    return [f"result: {text}" for where, _, text in found.changes if where == RESULT]


def op_lines(attribution: Attribution | None, enough: float = 0.0) -> list[str]:
    """Return the ops that hold half of the slowdown, at most three.

    Args:
        enough: The slowdown that the profiles must show, as a fraction. Otherwise they do not show the raced one.
    """
    if attribution is None or attribution.now - attribution.before < enough * attribution.before:
        return []
    found = [cause for cause in attribution.causes if cause.category is not TimeCategory.OTHER]
    if not found or sum(cause.share for cause in found[:3]) < HALF:
        return []
    return [f"op: {describe_cause(cause)}" for cause in found[:3]]


def _profiled(
    launcher: ProcessLauncher,
    policy: Policy,
    sides: tuple[Entrant, Entrant],
    slowdown: float | None,
    tell: Callable[[str], None],
) -> Attribution | None:
    policy = replace(policy, profile_launches=_LAUNCHES)
    entrants = dict(zip((BASELINE, CONTENDER), sides, strict=True))
    with suppress(*PROFILE_FAILURES, SideError), tempfile.TemporaryDirectory(dir=scratch_dir()) as folder:
        return take(Profiler(launcher, policy, USUAL), entrants, Path(folder), policy, slowdown, tell).attribution
    return None


def _python(
    launcher: ProcessLauncher,
    policy: Policy,
    sides: tuple[Entrant, Entrant],
    metric: str,
    enough: float,
    tell: Callable[[str], None],
) -> list[str]:
    tell("sampling Python functions")
    sampler = Sampler(launcher, policy)
    with suppress(BenchmarkError, BenchmarkSkipped, ProfileError, SideError):
        before, now = (sampler.sample(side, first=metric == FIRST_CALL) for side in sides)
        cause = grown(before, now, enough)
        if cause is None or cause.function.startswith(_EXECUTES):
            return []
        traces = any(name in cause.function for name in _TRACES)
        return [f"retrace in every call; {describe(cause)}" if traces and metric == TIME else describe(cause)]
    return []


def _memory(
    launcher: ProcessLauncher, policy: Policy, sides: tuple[Entrant, Entrant], tell: Callable[[str], None]
) -> list[str]:
    tell("counting what stays in memory")
    sampler = Sampler(launcher, policy)
    with suppress(BenchmarkError, BenchmarkSkipped, SideError):
        before, now = (sampler.sample(side, memory=True) for side in sides)
        return memory_lines(before, now)
    return []
