"""Check on a machine with a GPU whether tfbench works there, and print lines to report.

Checks the driver and its library, the devices that TensorFlow sees, the profiler's access (CUPTI), a race of a matrix
product against itself, and a race with 10% extra work on one side. Exit code 0: all checks pass. 1: a check failed.
3: the machine has no GPU, and no check ran.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench import __version__
from tfbench.doctor.checks import COLOURS
from tfbench.doctor.gpu_check import GpuCheck
from tfbench.doctor.machine import Finding, State
from tfbench.errors import GpuError
from tfbench.fs import write_whole
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.nvml import Nvml, Recording
from tfbench.gpus.selection import has_driver, parse_device
from tfbench.plugin.options import worker_processors
from tfbench.policy import preset
from tfbench.report.screen import Screen

WORKS, BROKEN, NO_GPU = 0, 1, 3


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="gpu", metavar="gpu|gpu:0,1", help="the GPUs, by index or UUID")
    text = "save every reading of the driver as JSON, for a report"
    parser.add_argument("--record", type=Path, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Run the checks and print each finding; returns the exit code."""
    console = Screen(soft_wrap=True)
    kind, names = parse_device(arguments.device)
    if not has_driver():
        console.print(
            "no GPU here: no NVIDIA driver was found (no /proc/driver/nvidia, no /dev/nvidiactl), so no check ran.\n"
            "Run the command on a machine with a GPU, or start the container with --gpus all."
        )
        return NO_GPU
    policy = preset("standard")
    console.print(f"tfbench {__version__}: checking {arguments.device}")
    recordings: list[Recording] = []

    def recorded() -> Recording:
        recordings.append(Recording(Nvml()))
        return recordings[-1]

    try:
        gpu_session = GpuSession(kind, names, policy, opened=recorded)
    except GpuError as error:
        _print(console, Finding("driver", State.BAD, str(error)))
        return BROKEN
    for note in gpu_session.notes:
        _print(console, Finding("driver", State.WARN, note))
    check = GpuCheck(gpu_session, worker_processors(None), policy)
    states = set()
    try:
        with console.status("") as status:
            for finding in check.findings(status.update):
                states.add(finding.state)
                _print(console, finding)
    finally:
        check.close()
        if arguments.record and recordings:
            write_whole(arguments.record, json.dumps(recordings[0].as_json(), indent=1) + "\n")
            console.print(f"readings of the driver written: {arguments.record}")
        elif arguments.record:
            console.print(f"{arguments.record}: not written, as there was no reading to record")
    console.print("\nPlease report these lines, also if all checks pass: the GPU path has run on few machines.")
    return BROKEN if State.BAD in states else WORKS


def _print(console: Console, finding: Finding) -> None:
    console.print(Text.assemble((f"{finding.state!s:8}", COLOURS[finding.state]), f"{finding.name}: {finding.what}"))
    if finding.fix:
        console.print(Text(f"        fix: {finding.fix}", "cyan"))
