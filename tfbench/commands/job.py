"""Do a job of a fleet on this machine, and write its report.

A job that has its complete report is done, and nothing is measured again. An interrupted job goes on where it was, on
the same machine. A job is refused if this machine has other code, versions or thresholds than it was planned for, or
if its file was edited.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from tfbench.fleet.folder import node_name
from tfbench.fleet.job import load
from tfbench.fleet.node import WAIT, Place, finished, measured
from tfbench.fleet.node import run as execute
from tfbench.plugin.options import worker_processors
from tfbench.report.screen import say

PYTEST = (sys.executable, "-m", "pytest", "-p", "tfbench.plugin")


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    action = actions.add_parser("run", help="measure a job, and write its report")
    option = action.add_argument
    option("job", metavar="JOB", type=Path, help="a job of tfbench fleet plan")
    option("--report-json", type=Path, metavar="PATH", help="write the report here (default: into the job's fleet)")
    option("--root", type=Path, metavar="PATH", help="pytest's root (default: that of the plan, else this folder)")
    option("--cpus", metavar="LIST", help="processors for the workers, such as 0,2-3")
    text = "wait so long for another service that measures on this host (default: a day)"
    option("--wait", type=float, default=WAIT, metavar="SECONDS", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Do the job; 0 if its complete report exists."""
    job, place = load(arguments.job), Place.of(arguments.job, arguments.report_json)
    root = arguments.root or (Path(place.fleet.plan().root) if place.fleet else Path())
    label = f"job {job.index} of {job.of}, {len(job.cases)} cases"
    if finished(job, place):
        say(f"{label}: done already: {place.report}")
        return 0
    say(f"{label}: started on {node_name()}")
    measure = partial(measured, PYTEST)
    execute(place, root.absolute(), worker_processors(arguments.cpus), measure, wait=arguments.wait)
    say(f"{label}: {place.report}")
    return 0
