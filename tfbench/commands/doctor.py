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
from dataclasses import asdict
from pathlib import Path

from tfbench.commands._setup import progress_bar
from tfbench.doctor import checks, machine, noise
from tfbench.doctor.machine import Limits
from tfbench.errors import UsageError
from tfbench.facts import machine as machine_words
from tfbench.fs import write_whole
from tfbench.plugin.options import available_cpus, worker_processors
from tfbench.report.screen import Screen

SCHEMA = "tfbench-doctor/1"
_SECONDS = (1.0, 3600.0)


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
    measured = noise.Measured()
    if not arguments.no_race:
        with progress_bar(console) as bar:
            task = bar.add_task("", total=arguments.seconds)
            if bar.disable:
                console.print(f"starting {2 * noise.PAIRS} zygotes, then racing for {arguments.seconds:g} s …")
            measured = noise.measure(
                arguments.seconds, found, where, limits,
                lambda text, done: bar.update(task, description=text, completed=done),
            )  # fmt: skip
    findings = checks.worst_first([*checks.examine(found, limits, measured.window), *measured.findings])
    code = noise.exit_code(findings)
    console.print(checks.table_of(findings))
    if measured.test is not None:
        console.print(noise.table_of(measured.test))
    console.print(checks.conclusion(findings, code))
    if arguments.report_json:
        content = {
            "schema": SCHEMA,
            "fit": code == checks.FIT,
            "machine": machine_words(),
            "findings": [asdict(finding) for finding in findings],
            # JSON has no NaN, so null replaces it.
            "race": measured.test and json.loads(json.dumps(measured.test.as_json()), parse_constant=lambda _: None),
        }
        write_whole(arguments.report_json, json.dumps(content, indent=1, allow_nan=False) + "\n")
        console.print(f"findings written: {arguments.report_json}")
    return code
