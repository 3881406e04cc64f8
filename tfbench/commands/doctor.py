"""Report sources of timing noise on this machine, with their fixes, and the slowdown that is detectable here.

Reads the system (load, steal, clocks, limits, heat, memory, bytecode, GPUs). Then races three small fixed
workloads against themselves for --seconds, not counting the start of processes. From the deviations between
launches and between zygotes it computes the slowdown that policy standard detects 95% of the time, in a
suite of 30 cases.

Exit code 0: the machine is fit. 1: it is not fit, because a finding is `bad`. One such finding is a race that
would not detect 5% on its middle workload. 3: the race was too short to tell. A `warn` finding costs launches or affects saved times, and the race
compensates for it. `unknown` marks a property that tfbench cannot read here.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench.commands._setup import progress_bar
from tfbench.doctor import checks, machine, noise
from tfbench.doctor.machine import Finding, Limits, Machine, ObservationWindow, State
from tfbench.errors import TfbenchError, UsageError
from tfbench.facts import machine as machine_words
from tfbench.fs import write_whole
from tfbench.plugin.options import available_cpus, worker_processors
from tfbench.policy import preset
from tfbench.race.process_launcher import Processors
from tfbench.report.screen import Screen, add_columns, add_row, table
from tfbench.report.summary import duration, times

SCHEMA = "tfbench-doctor/1"
FIT, NOT_FIT, UNDECIDED = 0, 1, 3
VERDICTS = {
    FIT: Text("fit for timing", "bold green"),
    NOT_FIT: Text("not fit for timing", "bold red"),
    UNDECIDED: Text("not known whether it is fit for timing", "bold yellow"),
}
COLOURS = {State.BAD: "bold red", State.WARN: "yellow", State.UNKNOWN: "dim", State.OK: "green"}
_SECONDS = (1.0, 3600.0)
_ROOT = Path("/")
_HEADINGS = (
    "a step", "launches", "deviation between launches", "deviation between zygotes", "ratio to itself", "its interval",
    "smallest detectable slowdown", "time to detect it", "time to report unchanged code",
)  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--seconds", type=float, default=noise.SECONDS, metavar="N", help="time for the races (default %(default)s)")
    option("--no-race", action="store_true", help="only read the system, which takes about two seconds")
    option("--cpus", default="", metavar="LIST", help="processors for the workers (default: the last one)")
    option("--report-json", type=Path, metavar="PATH", help="write the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examine the machine and print the findings; returns the exit code."""
    if not _SECONDS[0] <= arguments.seconds <= _SECONDS[1]:
        raise UsageError(f"--seconds {arguments.seconds:g} must lie from {_SECONDS[0]:g} to {_SECONDS[1]:g}")
    limits, console = Limits(), Screen()
    where = worker_processors(arguments.cpus)
    found = machine.read(where.every if not arguments.cpus else available_cpus(), where.one[0])
    test, window, raced = (
        (None, None, []) if arguments.no_race else _race(arguments.seconds, found, where, limits, console)
    )
    findings = checks.worst_first([*checks.examine(found, limits, window), *raced])
    code = _exit_code(findings)
    _show(console, findings, test, code)
    if arguments.report_json:
        content = {
            "schema": SCHEMA,
            "fit": code == FIT,
            "machine": machine_words(),
            "findings": [asdict(finding) for finding in findings],
            # JSON has no NaN, so null replaces it.
            "race": test and json.loads(json.dumps(test.as_json()), parse_constant=lambda _: None),
        }
        write_whole(arguments.report_json, json.dumps(content, indent=1, allow_nan=False) + "\n")
        console.print(f"findings written: {arguments.report_json}")
    return code


def _exit_code(findings: Sequence[Finding]) -> int:
    """Return whether the machine is fit. A race that ended without a result leaves that open."""
    if not checks.is_fit(findings):
        return NOT_FIT
    silent = any(finding.name == noise.NAME and finding.state is State.UNKNOWN for finding in findings)
    return UNDECIDED if silent else FIT


def _race(
    seconds: float, found: Machine, where: Processors, limits: Limits, console: Console
) -> tuple[noise.NoiseTest | None, ObservationWindow | None, list[Finding]]:
    """Race; returns the test, the counters of the processor during it, and the findings or why there was no race."""
    memory = checks.available(found, limits)
    if memory.state is State.BAD:
        text = f"not run, because the kernel could kill other processes: {memory.what}"
        return None, None, [Finding(noise.NAME, State.UNKNOWN, text)]
    with progress_bar(console) as bar:
        task = bar.add_task("", total=seconds)
        if bar.disable:
            console.print(f"starting {2 * noise.PAIRS} zygotes, then racing for {seconds:g} s …")

        def tell(text: str, done: float) -> None:
            bar.update(task, description=text, completed=done)

        before, began = machine.counters(_ROOT, found.worker), time.perf_counter()
        try:
            test = noise.race(seconds, preset("standard"), where, tell, time.perf_counter, random.Random())
        except TfbenchError as error:
            return None, None, [noise.finding_of(error)]
        after, ended = machine.counters(_ROOT, found.worker), time.perf_counter()
        tell("simulating races with this noise", seconds)
        noise.add_detection_limits(test.races, test.policy, limits)
    return test, machine.observation_window(before, after, ended - began), noise.findings_of(test, limits)


def _show(console: Console, findings: Sequence[Finding], test: noise.NoiseTest | None, code: int) -> None:
    made = table("Sources of timing noise")
    add_columns(made, "state", "check")
    made.add_column("", overflow="fold", ratio=1)
    for finding in findings:
        add_row(made, Text(str(finding.state), COLOURS[finding.state]), finding.name, finding.what)
        if finding.fix:
            add_row(made, "", "", Text(f"fix: {finding.fix}", "cyan"))
    console.print(made)
    if test is not None:
        _show_test(console, test)
    states = Counter(finding.state for finding in findings)
    counts = ", ".join(f"{states[state]} {state}" for state in State if states[state])
    console.print(Text.assemble(VERDICTS[code], f": {counts}"))


def _cells(race: noise.SelfRace) -> tuple[str, ...]:
    """Return what `_HEADINGS` names, of one workload."""
    limit, launches = race.limit, str(len(race.launches))
    if limit is None:
        return ("", launches, "", "", "broke" if race.failure else "-", "", "-", "", "")
    smallest, seconds = "-", "-"
    if limit.smallest is not None:
        smallest, seconds = f"{limit.smallest:.1%}", duration(limit.launches * race.launch_seconds)
    center, _, interval = times(limit.itself).partition(" ")
    return (
        duration(race.iteration), launches, f"{limit.noise.launch_deviation:.2%}", f"{limit.noise.zygote_deviation:.2%}",
        center, interval.strip("()"), smallest, seconds, duration(limit.unchanged_launches * race.launch_seconds),
    )  # fmt: skip


def _show_test(console: Console, test: noise.NoiseTest) -> None:
    made = table(f"The same code against itself, {test.seconds:.0f} s, policy {test.policy.name}")
    add_columns(made, "")
    add_columns(made, *(race.name for race in test.races), right=True)
    for row in zip(_HEADINGS, *map(_cells, test.races), strict=True):
        add_row(made, *row)
    console.print(made)
    console.print(f"{test.zygotes} zygotes started in {test.zygote_seconds:.0f} s before the races")
    if test.without_tensorflow:
        text = "TensorFlow could not be imported, so NumPy steps were raced instead; they are less representative"
        console.print(text, style="yellow")
