"""Commands about this machine: its noise, the error rates of the gate on it, and its GPUs."""

from __future__ import annotations

import argparse
import random
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench import __version__
from tfbench.commands import amount
from tfbench.commands.setup import progress_bar
from tfbench.doctor import calibration, checks, machine, noise
from tfbench.doctor.calibration import SLOWDOWNS, Journal, Plan, Selection
from tfbench.doctor.checks import COLOURS, GpuCheck
from tfbench.doctor.machine import Finding, Limits, State
from tfbench.errors import GpuError, UsageError
from tfbench.facts import machine as machine_words
from tfbench.fs import project_root, write_whole
from tfbench.gpus.monitor import GpuSession
from tfbench.gpus.nvml import Nvml, Recording
from tfbench.gpus.selection import has_driver, parse_device
from tfbench.plugin.collect import collect
from tfbench.plugin.options import available_cpus, read_number, worker_processors
from tfbench.policy import Policy, preset
from tfbench.race.lanes import Processors, keep_measured
from tfbench.report.screen import Screen
from tfbench.storage.baselines import Layout
from tfbench.untrusted import plural, render_json

SCHEMA = "tfbench-doctor/1"
_SECONDS = (1.0, 3600.0)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--seconds", type=float, default=noise.SECONDS, metavar="N", help="time for the races (default %(default)s)")
    option("--no-race", action="store_true", help="only read the system, which takes about two seconds")
    option("--cpus", default="", metavar="LIST", help="processors for the workers (default: the last one)")
    text = "measure instead how many cases may race at the same time, which pytest --benchmark --lanes auto uses"
    option("--lanes", action="store_true", help=text)
    option("--report-json", type=Path, metavar="PATH", help="write the findings as JSON")


def run_doctor(arguments: argparse.Namespace) -> int:
    """Report sources of timing noise on this machine, with their fixes, and the slowdown that is detectable here.

    Reads the system (load, steal, clocks, limits, heat, memory, bytecode, GPUs). Then races three small fixed
    workloads against themselves for --seconds, not counting the start of processes. From the deviations between
    launches and between zygotes it computes the slowdown that policy standard detects 95% of the time, in a
    suite of 30 cases.

    Exit code 0: the machine is fit. 1: it is not fit, because a finding is `bad`. One such finding is a race that
    would not detect 5% on its middle workload. 3: the race was too short to tell. A `warn` finding costs launches or affects saved times, and the race
    compensates for it. `unknown` marks a property that tfbench cannot read here.
    """
    if not _SECONDS[0] <= arguments.seconds <= _SECONDS[1]:
        raise UsageError(f"--seconds {arguments.seconds:g} must lie from {_SECONDS[0]:g} to {_SECONDS[1]:g}")
    limits, console = Limits(), Screen()
    where = worker_processors(arguments.cpus)
    if arguments.lanes:
        return _measure_lanes(where, console)
    state = machine.read(where.every if not arguments.cpus else available_cpus(), where.one[0])
    measured = noise.Measured()
    if not arguments.no_race:
        with progress_bar(console) as bar:
            task = bar.add_task("", total=arguments.seconds)
            if bar.disable:
                console.print(f"starting {2 * noise.PAIRS} zygotes, then racing for {arguments.seconds:g} s …")
            measured = noise.measure(
                arguments.seconds, state, where, limits,
                lambda text, done: bar.update(task, description=text, completed=done),
            )  # fmt: skip
    findings = checks.worst_first([*checks.examine(state, limits, measured.window), *measured.findings])
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
            "race": measured.test and measured.test.as_json(),
        }
        write_whole(arguments.report_json, render_json(content, 1) + "\n")
        console.print(f"findings written: {arguments.report_json}")
    return code


def _measure_lanes(where: Processors, console: Screen) -> int:
    """Measure how many lanes the machine bears, keep that for later runs, and return the exit code."""
    policy = preset("standard")
    tried = noise.lane_counts(where)
    if not tried:
        console.print(f"one case races at a time: {len(where.every)} processors have no room for two lanes")
        return checks.FIT
    with progress_bar(console) as bar:
        task = bar.add_task("", total=None)
        tests = noise.measure_lanes(tried, where, policy, lambda text: bar.update(task, description=text))
    console.print(noise.table_of_lanes(tests, policy))
    count = noise.borne_lanes(tests, policy)
    kept = keep_measured(where, count)
    cases = plural(count, "case")
    console.print(f"{cases} may race at the same time here; --lanes auto does that from now on ({kept})")
    return checks.FIT


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    parser.set_defaults(intermixed="paths")
    option("paths", nargs="*", help="your benchmark files or folders (default: the fixed workloads)")
    option("-k", dest="chosen", default="", metavar="EXPRESSION", help="select cases by name, as in pytest")
    option("--budget", type=amount, default=600, metavar="SECONDS", help="time for this call (default %(default)s)")
    option("--policy", default="standard", help="the measured policy (default %(default)s)")
    option("--cases", type=int, default=30, help="size of the suite that shares alpha (default %(default)s)")
    option("--cpus", default="", metavar="LIST", help="processors for the workers")
    option("--device", default="all", metavar="cpu|gpu|gpu:0,1", help="devices, as for pytest (default %(default)s)")
    slowdowns = ",".join(map(str, SLOWDOWNS))
    option("--slowdowns", help=f"injected fractions of extra work, in turn, or none (default {slowdowns})")
    option("--tails", action="store_true", help="inject slow calls instead, such as 5%% of the calls x10, in turn")
    option("--with-load", action="store_true", help="keep the other processors busy")
    sides = parser.add_mutually_exclusive_group().add_argument
    sides("--variants", action="store_true", help="race variants of one run: common zygotes, no confirmation")
    text = "let each side import TensorFlow itself, as two versions do (default: common ancestors)"
    sides("--separate", action="store_true", help=text)
    text = "the side of unchanged code, such as git:HEAD (default %(default)s); what differs there counts as a false positive"
    sides("--against", default="self", metavar="SIDE", help=text)
    text = "verdicts on unchanged code per verdict on slowed code (default %(default)s)"
    option("--repeats", type=int, default=3, metavar="N", help=text)
    text = "probe each benchmark N times instead, and report metrics that differ"
    option("--determinism", type=int, default=0, metavar="N", help=text)
    option("--no-saved", action="store_true", help="leave out pytest-benchmark's runs")
    option("--journal", type=Path, help="file of the trials (default: in .tfbench/calibration/)")
    option("--report-json", type=Path, metavar="PATH", help="write the rates as JSON")


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Measure the gate's error rates on this machine, in races of unchanged code and races with an injected slowdown.

    Prints for each workload and in total: the false positives on unchanged code with their binomial interval, the share
    of detected slowdowns, and the cost of a verdict. It also applies pytest-benchmark's rule (5% between two saved runs)
    to the same workloads in the same session. A journal keeps every trial, so a later call adds to it.

    With --determinism N, it measures no times. It probes each of your benchmarks N times, and reports the exact metrics
    that differ between launches.
    """
    policy, console = preset(arguments.policy), Screen()
    if arguments.determinism:
        return _determinism(arguments, policy, console)
    plan = _plan(arguments, policy)
    name = plan.journal_name(arguments.with_load)
    journal = Journal(arguments.journal or Layout.of(project_root()).calibration / name)
    load = calibration.background_load(plan.cpus, plan.processors.one) if arguments.with_load else nullcontext()
    interrupted = False
    with progress_bar(console) as bar, load:
        task = bar.add_task("", total=None)

        def tell(text: str, verdicts: int) -> None:
            bar.update(task, description=f"{verdicts} verdicts, {text}")

        try:
            calibration.calibrate(plan, journal, arguments.budget, tell, random.Random())
        except KeyboardInterrupt:
            interrupted = True
    trials = journal.read()
    console.print(calibration.summary(plan, trials, console.width))
    console.print(f"trials kept in {journal.path}; run the same command again to add more")
    if arguments.report_json:
        write_whole(arguments.report_json, render_json(calibration.as_json(plan, trials), 1) + "\n")
        console.print(f"report written: {arguments.report_json}")
    return 130 if interrupted else 0


def _plan(arguments: argparse.Namespace, policy: Policy) -> Plan:
    root, files = calibration.files_of(arguments.paths)
    usual = () if arguments.tails else SLOWDOWNS
    slowdowns = usual if arguments.slowdowns is None else _fractions(arguments.slowdowns)
    if arguments.repeats < 0:
        raise UsageError(f"--repeats {arguments.repeats} must not be negative")
    if not (arguments.repeats or slowdowns or arguments.tails):
        raise UsageError("--repeats 0 with --slowdowns none leaves nothing to race; raise --repeats or give slowdowns")
    return Plan(
        policy=policy,
        cases=arguments.cases,
        processors=worker_processors(arguments.cpus),
        cpus=available_cpus(),
        slowdowns=slowdowns,
        tails=arguments.tails,
        device=parse_device(arguments.device),
        saved=not arguments.no_saved,
        root=root,
        files=files,
        chosen=Selection(arguments.chosen),
        repeats=arguments.repeats,
        variants=arguments.variants,
        separate=arguments.separate,
        against=arguments.against,
    )


def _determinism(arguments: argparse.Namespace, policy: Policy, console: Screen) -> int:
    """Print the metrics that are not exact; 1 if there are any, otherwise 0."""
    number = arguments.determinism
    if number < 2:
        raise UsageError(f"--determinism {number}: give at least 2, as one launch has no other to differ from")
    device = parse_device(arguments.device)
    collected = collect([f"--tfbench-device={device[0]}", *arguments.paths])
    by_name = {case.name: case for case in collected.cases.values()}
    cases = [by_name[name] for name in Selection(arguments.chosen).of(by_name)]
    with progress_bar(console) as bar:
        task = bar.add_task("", total=None)
        exactness = calibration.examine(
            collected.root, collected.suite, cases, number, policy, worker_processors(arguments.cpus), device,
            lambda case, done: bar.update(task, description=f"launch {done}, {case.short_name}"),
        )  # fmt: skip
    for line in calibration.exactness(exactness, number):
        console.print(line)
    return int(any(probed.demoted for probed in exactness))


def _fractions(text: str) -> tuple[float, ...]:
    if text == "none":
        return ()
    slowdowns = tuple(map(read_number, text.split(",")))
    if not all(0 < fraction <= 10 for fraction in slowdowns):
        raise UsageError(f"--slowdowns {text!r}: write fractions like 0.02,0.05, or none")
    return slowdowns


WORKS, BROKEN, NO_GPU = 0, 1, 3


def add_gpu_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="gpu", metavar="gpu|gpu:0,1", help="the GPUs, by index or UUID")
    text = "save every reading of the driver as JSON, for a report"
    parser.add_argument("--record", type=Path, metavar="FILE", help=text)


def run_gpu_check(arguments: argparse.Namespace) -> int:
    """Check on a machine with a GPU whether tfbench works there, and print lines to report.

    Checks the driver and its library, the devices that TensorFlow sees, the profiler's access (CUPTI), a race of a matrix
    product against itself, a race with 10% extra work on one side, and the power that one side carries into the turns of
    the other. Exit code 0: all checks pass. 1: a check failed.
    3: the machine has no GPU, and no check ran.
    """
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
            write_whole(arguments.record, render_json(recordings[0].as_json(), 1) + "\n")
            console.print(f"readings of the driver written: {arguments.record}")
        elif arguments.record:
            console.print(f"{arguments.record}: not written, as there was no reading to record")
    console.print("\nPlease report these lines, also if all checks pass: the GPU path has run on few machines.")
    return BROKEN if State.BAD in states else WORKS


def _print(console: Console, finding: Finding) -> None:
    console.print(Text.assemble((f"{finding.state!s:8}", COLOURS[finding.state]), f"{finding.name}: {finding.what}"))
    if finding.fix:
        console.print(Text(f"        fix: {finding.fix}", "cyan"))
