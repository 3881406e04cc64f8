"""Commands about this machine: its noise, its GPUs, its environments, and the error rates of the gate on it."""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench import __version__
from tfbench.commands import amount
from tfbench.doctor import calibration, checks, noise
from tfbench.doctor.calibration import SLOWDOWNS, Journal, Plan, parse_selection
from tfbench.doctor.checks import COLOURS, Finding, GpuCheck, State
from tfbench.errors import GpuError, UsageError
from tfbench.fs import project_root, write_whole
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.nvml import Nvml, Recording
from tfbench.gpus.selection import has_driver, parse_device
from tfbench.model import JSON
from tfbench.model.words import size
from tfbench.plugin.options import available_cpus, worker_processors
from tfbench.policy import Policy, preset
from tfbench.race.lanes import Processors
from tfbench.report.screen import Screen, add_row, table
from tfbench.session.options import read_number
from tfbench.sides.environments import Environments, kept
from tfbench.storage.baselines import Layout
from tfbench.untrusted import plural, render_json


def add_doctor(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    option("--seconds", type=amount, default=noise.SECONDS, metavar="N", help="time for the races (default %(default)s)")
    option("--no-race", action="store_true", help="only read the system, which takes about two seconds")
    option("--cpus", default="", metavar="LIST", help="processors for the workers (default: the last one)")
    other = parser.add_mutually_exclusive_group().add_argument
    other("--gpu", action="store_true", help="check instead whether tfbench works on the GPUs")
    other("--envs", action="store_true", help="list instead the environments that uv built for other versions")
    option("--device", metavar="gpu|gpu:0,1", help="with --gpu: the GPUs, by index or UUID")
    option("--record", type=Path, metavar="FILE", help="with --gpu: save every reading of the driver as JSON, for a report")
    option("--prune", type=amount, metavar="N", help="with --envs: remove environments that are unused for N days (0 for all) and not in use now")
    # fmt: on


def run_doctor(arguments: argparse.Namespace) -> int:
    """Report sources of timing noise on this machine, with their fixes, and the slowdown that is detectable here.

    Reads the system (load, steal, clocks, limits, heat, memory, GPUs). Then races three small fixed workloads against
    themselves for --seconds, not counting the start of processes. From the deviations between launches and between
    zygotes it computes the slowdown that policy standard detects 95% of the time, in a suite of 30 cases.

    Exit code 0: the machine is fit. 1: it is not fit, because a finding is `bad`. One such finding is a race that
    would not detect 5% on its middle workload. 3: the race gave no result. A `warn` finding costs launches or affects
    saved times, and the race compensates for it. `unknown` marks a property that tfbench cannot read here.

    --gpu checks the driver and its library, the devices that TensorFlow sees, the profiler's access (CUPTI), a race of a
    matrix product against itself, and a race with 10% extra work on one side. Exit code 0: all checks pass. 1: a check
    failed. 3: the machine has no GPU, and no check ran.
    """
    for option, other in (("prune", "envs"), ("device", "gpu"), ("record", "gpu")):
        if getattr(arguments, option) is not None and not getattr(arguments, other):
            raise UsageError(f"--{option} has no effect without --{other}; add it, or leave --{option} out")
    if arguments.envs:
        return _environments(arguments.prune)
    if arguments.gpu:
        return _check_gpus(arguments.device or "gpu", worker_processors(arguments.cpus), arguments.record)
    policy, console = preset("standard"), Screen()
    where = worker_processors(arguments.cpus)
    state = checks.read(where.every if not arguments.cpus else available_cpus(), where.one[0])
    measured = noise.Measured()
    if not arguments.no_race:
        with console.status("") as status:
            measured = noise.measure(
                arguments.seconds, state, where, policy,
                lambda text, done: status.update(f"{text}, {done:.0f} of {arguments.seconds:g} s"),
            )  # fmt: skip
    findings = checks.worst_first([*checks.examine(state, measured.window), *measured.findings])
    code = noise.exit_code(findings)
    console.print(checks.table_of(findings))
    if measured.raced:
        console.print(noise.table_of(measured.raced, policy))
    console.print(checks.conclusion(findings, code))
    return code


def _environments(days: float | None) -> int:
    """List the environments of other versions, which all projects of a user share, or remove unused ones."""
    environments, console = Environments(kept()), Screen(soft_wrap=True)
    if days is not None:
        sizes = {environment.folder: environment.bytes for environment in environments.every()}
        removed = environments.prune(days)
        freed = size(sum(sizes[environment.folder] for environment in removed))
        console.print(f"{len(removed)} removed, {freed} freed; {len(sizes) - len(removed)} left in {kept()}")
        return 0
    made = table(str(kept()), ("asked for", {"no_wrap": False}), "Python", "packages", "size", "last used")
    for environment in environments.every():
        unused = (time.time() - environment.used) / 86400
        used = "today" if unused < 1 else f"{plural(round(unused), 'day')} ago"
        cells = environment.python, str(len(environment.packages)), size(environment.bytes), used
        add_row(made, ", ".join(environment.request), *cells)
    console.print(made if made.row_count else f"no environments in {kept()}")
    return 0


def _check_gpus(device: str, where: Processors, record: Path | None) -> int:
    console = Screen(soft_wrap=True)
    kind, names = parse_device(device)
    if not has_driver():
        console.print(
            "no GPU here: no NVIDIA driver was found (no /proc/driver/nvidia, no /dev/nvidiactl), so no check ran.\n"
            "Run the command on a machine with a GPU, or start the container with --gpus all."
        )
        return checks.UNDECIDED
    policy = preset("standard")
    console.print(f"tfbench {__version__}: checking {device}")
    recordings: list[Recording] = []

    def recorded() -> Recording:
        recordings.append(Recording(Nvml()))
        return recordings[-1]

    try:
        gpu_session = GpuSession(kind, names, policy, opened=recorded)
    except GpuError as error:
        _print(console, Finding("driver", State.BAD, str(error)))
        return checks.NOT_FIT
    for note in gpu_session.notes:
        _print(console, Finding("driver", State.WARN, note))
    check = GpuCheck(gpu_session, where, policy)
    states = set()
    try:
        with console.status("") as status:
            for finding in check.findings(status.update):
                states.add(finding.state)
                _print(console, finding)
    finally:
        check.close()
        if record and recordings:
            write_whole(record, render_json(recordings[0].as_json(), 1) + "\n")
            console.print(f"readings of the driver written: {record}")
        elif record:
            console.print(f"{record}: not written, as there was no reading to record")
    console.print("\nPlease report these lines, also if all checks pass: the GPU path has run on few machines.")
    return checks.NOT_FIT if State.BAD in states else checks.FIT


def _print(console: Console, finding: Finding) -> None:
    console.print(Text.assemble((f"{finding.state!s:8}", COLOURS[finding.state]), f"{finding.name}: {finding.what}"))
    if finding.fix:
        console.print(Text(f"        fix: {finding.fix}", "cyan"))


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    parser.set_defaults(intermixed="paths")
    option("paths", nargs="*", help="your benchmark files or folders (default: the fixed workloads)")
    option("-k", dest="chosen", default="", metavar="EXPRESSION", help="select cases by name, as in pytest")
    option("--budget", type=amount, default=600, metavar="SECONDS", help="time for this call (default %(default)s)")
    option("--policy", default="standard", help="the measured policy (default %(default)s)")
    option("--cases", type=int, default=noise.CASES, help="size of the suite that shares alpha (default %(default)s)")
    option("--cpus", default="", metavar="LIST", help="processors for the workers")
    option("--device", default="all", metavar="cpu|gpu|gpu:0,1", help="devices, as for pytest (default %(default)s)")
    slowdowns = ",".join(map(str, SLOWDOWNS))
    option("--slowdowns", help=f"injected fractions of extra work, in turn, or none (default {slowdowns})")
    option("--tails", action="store_true", help="inject slow calls instead, such as 5%% of the calls x10, in turn")
    option("--against", default="self", metavar="SIDE", help="the side of unchanged code, such as git:HEAD (default %(default)s); what differs there counts as a false positive")
    option("--repeats", type=int, default=3, metavar="N", help="verdicts on unchanged code per verdict on slowed code (default %(default)s)")
    option("--journal", type=Path, help="file of the trials, a line of JSON each (default: in .tfbench/calibration/)")
    # fmt: on


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Measure the gate's error rates on this machine, in races of unchanged code and races with an injected slowdown.

    Prints for each workload and in total: the false positives on unchanged code with their binomial interval, the share
    of detected slowdowns, and the cost of a verdict. A journal keeps every trial, so a later call adds to it.
    """
    policy, console = preset(arguments.policy), Screen()
    plan = _plan(arguments, policy)
    journal = Journal(arguments.journal or Layout.of(project_root()).calibration / plan.journal_name)
    interrupted = False
    with console.status("") as status:

        def tell(text: str, verdicts: int) -> None:
            status.update(f"{verdicts} verdicts, {text}")

        try:
            calibration.calibrate(plan, journal, arguments.budget, tell, random.Random())
        except KeyboardInterrupt:
            interrupted = True
    trials = journal.read(policy.name)
    console.print(calibration.summary(plan, trials))
    console.print(f"trials kept in {journal.path}; run the same command again to add more")
    return 130 if interrupted else 0


def _plan(arguments: argparse.Namespace, policy: Policy) -> Plan:
    root, files = calibration.files_of(arguments.paths)
    slowdowns: tuple[float, ...] = () if arguments.tails else SLOWDOWNS
    if (text := arguments.slowdowns) is not None:
        slowdowns = () if text == "none" else tuple(map(read_number, text.split(",")))
        if not all(0 < fraction <= 10 for fraction in slowdowns):
            raise UsageError(f"--slowdowns {text!r}: write fractions like 0.02,0.05, or none")
    if arguments.repeats < 0:
        raise UsageError(f"--repeats {arguments.repeats} must not be negative")
    if not (arguments.repeats or slowdowns or arguments.tails):
        raise UsageError("--repeats 0 with --slowdowns none leaves nothing to race; raise --repeats or give slowdowns")
    made: JSON = {
        "policy": policy, "processors": worker_processors(arguments.cpus), "cpus": available_cpus(), "root": root,
        "files": files, "chosen": parse_selection(arguments.chosen), "slowdowns": slowdowns,
        "device": parse_device(arguments.device),
    }  # fmt: skip
    made |= {field.name: getattr(arguments, field.name) for field in fields(Plan) if field.name not in made}
    return Plan(**made)
