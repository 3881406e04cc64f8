"""Measure the gate's error rates on this machine, in races of unchanged code and races with an injected slowdown.

Prints for each workload and in total: the false positives on unchanged code with their binomial interval, the share
of detected slowdowns, and the cost of a verdict. It also applies pytest-benchmark's rule (5% between two saved runs)
to the same workloads in the same session. A journal keeps every trial, so a later call adds to it.

With --determinism N, it measures no times. It probes each of your benchmarks N times, and reports the exact metrics
that differ between launches.
"""

from __future__ import annotations

import argparse
import json
import random
from contextlib import nullcontext
from pathlib import Path

from tfbench.commands._setup import progress_bar
from tfbench.doctor import calibration
from tfbench.doctor.calibration import SLOWDOWNS, Journal, Plan, Selection
from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.plugin.collect import collect
from tfbench.plugin.options import available_cpus, worker_processors
from tfbench.policy import Policy, preset
from tfbench.report.screen import Screen
from tfbench.storage.baselines import Layout


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    parser.set_defaults(intermixed="paths")
    option("paths", nargs="*", help="your benchmark files or folders (default: the fixed workloads)")
    text = "the thirteen fixed workloads that thresholds were chosen on, or 37 of other kinds (default usual)"
    option("--workloads", choices=("usual", "unseen"), default="usual", help=text)
    option("-k", dest="chosen", default="", metavar="EXPRESSION", help="select cases by name, as in pytest")
    option("--budget", type=float, default=600, metavar="SECONDS", help="time for this call (default 600)")
    option("--policy", default="standard", help="the measured policy (default standard)")
    option("--cases", type=int, default=30, help="size of the suite that shares alpha (default 30)")
    option("--cpus", default="", metavar="LIST", help="processors for the workers")
    slowdowns = ",".join(map(str, SLOWDOWNS))
    option("--slowdowns", help=f"injected fractions of extra work, in turn, or none (default {slowdowns})")
    option("--tails", action="store_true", help="inject slow calls instead, such as 5%% of the calls x10, in turn")
    option("--with-load", action="store_true", help="keep the other processors busy")
    sides = parser.add_mutually_exclusive_group().add_argument
    sides("--variants", action="store_true", help="race variants of one run: common zygotes, no confirmation")
    text = "let each side import TensorFlow itself, as two versions do (default: common ancestors)"
    sides("--separate", action="store_true", help=text)
    text = "the side of unchanged code, such as git:HEAD (default self); what differs there counts as a false positive"
    sides("--against", default="self", metavar="SIDE", help=text)
    text = "verdicts on unchanged code per verdict on slowed code (default 3)"
    option("--repeats", type=int, default=3, metavar="N", help=text)
    text = "probe each benchmark N times instead, and report metrics that differ"
    option("--determinism", type=int, default=0, metavar="N", help=text)
    option("--no-saved", action="store_true", help="leave out pytest-benchmark's runs")
    option("--journal", type=Path, help="file of the trials (default: in .tfbench/calibration/)")
    option("--report-json", type=Path, metavar="PATH", help="write the rates as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate and print the rates; 130 after an interruption, otherwise 0."""
    policy, console = preset(arguments.policy), Screen()
    if arguments.determinism:
        return _determinism(arguments, policy, console)
    plan = _plan(arguments, policy)
    name = plan.journal_name(arguments.with_load)
    journal = Journal(arguments.journal or Layout.of(Path()).calibration / name)
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
        write_whole(arguments.report_json, json.dumps(calibration.as_json(plan, trials), indent=1) + "\n")
        console.print(f"report written: {arguments.report_json}")
    return 130 if interrupted else 0


def _plan(arguments: argparse.Namespace, policy: Policy) -> Plan:
    root, files = calibration.files_of(arguments.paths, arguments.workloads)
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
    if arguments.workloads != "usual":
        raise UsageError(f"--determinism probes your benchmarks: leave out --workloads {arguments.workloads}")
    if number < 2:
        raise UsageError(f"--determinism {number}: give at least 2, as one launch has no other to differ from")
    collected = collect(arguments.paths)
    by_name = {case.name: case for case in collected.cases.values()}
    cases = [by_name[name] for name in Selection(arguments.chosen).of(by_name)]
    with progress_bar(console) as bar:
        task = bar.add_task("", total=None)
        found = calibration.examine(
            collected.root, collected.suite, cases, number, policy, worker_processors(None),
            lambda case, done: bar.update(task, description=f"launch {done}, {case.short_name}"),
        )  # fmt: skip
    for line in calibration.exactness(found, number):
        console.print(line)
    return int(any(one.demoted for one in found))


def _fractions(text: str) -> tuple[float, ...]:
    if text == "none":
        return ()
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < fraction <= 10 for fraction in found):
        raise UsageError(f"--slowdowns {text!r}: write fractions like 0.02,0.05, or none")
    return found
