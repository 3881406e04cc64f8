"""Say what on this machine spoils timing, with its fix, and what can be detected here at what cost.

Reads the system (load, steal, clocks, limits, heat, memory, bytecode, GPUs), then races three small
fixed workloads against themselves for --seconds, the start of processes apart. From the deviations
between launches and between processes it says which slowdown policy standard finds 95% of the time,
in a suite of 30 cases.

Exit code 0: fit. Exit code 1: not fit, which is a finding in the state `bad`; one of them is a race
in which 5% would not be found on the middle one of its workloads. `warn` costs launches or spoils
times saved for later, and the race copes; `unknown` is what cannot be read here.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tfbench.doctor import checks, inspect, noise
from tfbench.doctor.checks import Limits
from tfbench.doctor.model import Finding, Machine, ObservationWindow, State
from tfbench.errors import TfbenchError, UsageError
from tfbench.fs import write_whole
from tfbench.model import JSON
from tfbench.plugin.options import available_cpus, parse_cpus
from tfbench.policy import preset
from tfbench.race.process_launcher import Processors, processors
from tfbench.report.style import table
from tfbench.report.units import duration, times
from tfbench.worker.environment import machine as machine_words

SCHEMA = "tfbench-doctor/1"
FIT, NOT_FIT = 0, 1
COLOURS = {State.BAD: "bold red", State.WARN: "yellow", State.UNKNOWN: "dim", State.OK: "green"}
_SECONDS = (1.0, 3600.0)
_ROOT = Path("/")


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=30, metavar="N", help="time for the race (default 30)")
    parser.add_argument("--no-race", action="store_true", help="only read the system, in about two seconds")
    parser.add_argument("--cpus", default="", metavar="LIST", help="processors for the workers (default: the last one)")
    parser.add_argument("--report-json", type=Path, default=None, metavar="PATH", help="write the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examine; 0 if the machine is fit, 1 if not."""
    if not _SECONDS[0] <= arguments.seconds <= _SECONDS[1]:
        raise UsageError(f"--seconds {arguments.seconds:g} must lie from {_SECONDS[0]:g} to {_SECONDS[1]:g}")
    limits, console = Limits(), Console(highlight=False)
    where = processors(parse_cpus(arguments.cpus) if arguments.cpus else None, available_cpus())
    machine = inspect.read(where.every if not arguments.cpus else available_cpus(), where.one[0])
    result, seen, trouble = None, None, None
    if not arguments.no_race:
        result, seen, trouble = _race(arguments.seconds, machine, where, limits, console)
    found = checks.examine(machine, limits, seen)
    found += [trouble] if trouble else []
    found += noise.findings(result, limits) if result else []
    found = checks.worst_first(found)
    _show(console, found, result)
    if arguments.report_json:
        write_whole(arguments.report_json, json.dumps(_as_json(found, result), indent=1, allow_nan=False) + "\n")
        console.print(f"findings written: {arguments.report_json}")
    return FIT if checks.is_fit(found) else NOT_FIT


def _race(
    seconds: float, machine: Machine, where: Processors, limits: Limits, console: Console
) -> tuple[noise.NoiseTest | None, ObservationWindow | None, Finding | None]:
    """The race, what happened to the processor meanwhile, and why there was none."""
    if (memory := checks.memory(machine, limits)).state is State.BAD:
        return None, None, Finding("race", State.UNKNOWN, f"not run, to leave what is there alone: {memory.what}")
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=seconds)
        if not console.is_terminal:
            console.print(f"racing for {seconds:g} s, after {2 * noise.PAIRS} processes were started …")
        before, began = inspect.counters(_ROOT, machine.worker), time.perf_counter()
        try:
            result = noise.race(
                seconds,
                preset("standard"),
                where,
                lambda text, done: bar.update(task, description=text, completed=done),
                time.perf_counter,
                random.Random(),
            )
        except TfbenchError as error:
            return None, None, noise.broken(error)
        seen = inspect.observation_window(before, inspect.counters(_ROOT, machine.worker), time.perf_counter() - began)
        return replace(result, detection_limits=noise.assess(result.raced, result.policy, limits)), seen, None


# What is shown


def _show(console: Console, found: Sequence[Finding], result: noise.NoiseTest | None) -> None:
    made = table("What spoils timing here")
    made.add_column("state", no_wrap=True)
    made.add_column("what", no_wrap=True)
    made.add_column("", overflow="fold", ratio=1)
    for finding in found:
        made.add_row(Text(str(finding.state), COLOURS[finding.state]), finding.name, Text(finding.what))
        if finding.fix:
            made.add_row("", "", Text(f"fix: {finding.fix}", "cyan"))
    console.print(made)
    if result is not None:
        _show_race(console, result)
    counts = ", ".join(
        f"{count} {state}" for state in State if (count := sum(finding.state is state for finding in found))
    )
    verdict = Text("fit", "bold green") if checks.is_fit(list(found)) else Text("not fit", "bold red")
    console.print(Text.assemble(verdict, f" to time on: {counts}"))


def _show_race(console: Console, result: noise.NoiseTest) -> None:
    made = table(f"The same code against itself, {result.seconds:.0f} s, policy {result.policy.name}")
    made.add_column("workload", no_wrap=True)
    for name in (
        "a step",
        "launches",
        "deviation: launches",
        "zygotes",
        "ratio",
        "min. detectable",
        "in",
        "unchanged in",
    ):
        made.add_column(name, justify="right")
    for raced in result.raced:
        if (detection := result.detection_limits.get(raced.name)) is None:
            made.add_row(raced.name, "", str(len(raced.effects)), "", "", raced.failure and "broke", "-", "", "")
            continue
        made.add_row(
            raced.name,
            duration(raced.iteration),
            str(len(raced.effects)),
            f"{detection.noise.launch:.2%}",
            f"{detection.noise.zygote:.2%}",
            times(detection.itself),
            "-" if detection.smallest is None else f"{detection.smallest:.1%}",
            "-" if detection.smallest is None else duration(detection.launches * raced.launch_seconds),
            duration(detection.unchanged_launches * raced.launch_seconds),
        )
    console.print(made)
    console.print(f"{result.zygotes} measuring processes were started before it, in {result.zygote_seconds:.0f} s")
    if result.without_tensorflow:
        console.print("TensorFlow could not be imported, so steps of NumPy were raced; they say less", style="yellow")


def _as_json(found: Sequence[Finding], result: noise.NoiseTest | None) -> JSON:
    return {
        "schema": SCHEMA,
        "fit": checks.is_fit(list(found)),
        "machine": machine_words(),
        "findings": [finding.as_json() for finding in found],
        "race": None if result is None else _finite(result.as_json()),
    }


def _finite(content: JSON) -> JSON:
    """JSON has no NaN."""
    loaded: JSON = json.loads(json.dumps(content), parse_constant=lambda _: None)
    return loaded
