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
import re
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from tfbench.commands._setup import progress_bar
from tfbench.doctor.calibration import (
    RACED,
    SAVED,
    SLOWDOWNS,
    UNSEEN,
    USUAL,
    WORKLOADS,
    CalibrationTrial,
    Journal,
    Plan,
    Selection,
    background_load,
    by_workload,
    calibrate,
    costs,
    examine,
    of,
    table,
    tally,
    whole_runs,
)
from tfbench.errors import UsageError
from tfbench.facts import machine
from tfbench.fs import write_whole
from tfbench.model import JSON
from tfbench.plugin.collect import collect
from tfbench.plugin.options import available_cpus, worker_processors
from tfbench.policy import Policy, preset
from tfbench.report.screen import Screen
from tfbench.storage.baselines import Layout

SCHEMA = "tfbench-calibration/1"
MEMORY_BOUND = frozenset({"elementwise"})
"""Fixed workloads that totals leave out, because their noise comes from the memory and not the processor."""
LEGEND = (
    "false positives: changes reported on unchanged code, and the upper bound of their rate at 95% confidence;\n"
    "+N%: share of these slowdowns that are reported; min. detectable: smallest slowdown reported 95% of the time; "
    "coverage of N%: share of verdicts on unchanged code whose intervals hold the true ratio, where they claim N%; "
    "s: median seconds per verdict, besides the start of zygotes; verdicts on a workload from the same zygotes are a "
    "cluster in every interval"
)


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
    policy = preset(arguments.policy)
    if arguments.determinism:
        return _determinism(arguments, policy)
    root, files = _files(arguments.paths, arguments.workloads)
    unslowed = () if arguments.tails else SLOWDOWNS
    slowdowns = unslowed if arguments.slowdowns is None else _fractions(arguments.slowdowns)
    if arguments.repeats < 0:
        raise UsageError(f"--repeats {arguments.repeats} must not be negative")
    if not (arguments.repeats or slowdowns or arguments.tails):
        raise UsageError("--repeats 0 with --slowdowns none leaves nothing to race; raise --repeats or give slowdowns")
    plan = Plan(
        policy=policy,
        cases=arguments.cases,
        processors=worker_processors(arguments.cpus),
        cpus=available_cpus(),
        slowdowns=slowdowns,
        tails=arguments.tails,
        saved=(root, files) == (WORKLOADS, (USUAL,)) and not arguments.no_saved,
        root=root,
        files=files,
        chosen=Selection(arguments.chosen),
        repeats=arguments.repeats,
        variants=arguments.variants,
        separate=arguments.separate,
        against=arguments.against,
    )
    against = f"against-{re.sub(r'[^a-zA-Z0-9.=]+', '-', plan.against)}"  # sides do not share a journal
    unseen = arguments.workloads == "unseen"
    kinds = {
        "unseen": unseen, "tails": plan.tails, "variants": plan.variants, "separate": plan.separate, against: plan.against != "self",
    }  # fmt: skip
    kind = "".join(f"-{name}" for name, has in {**kinds, "busy": arguments.with_load}.items() if has)
    name = f"{policy.name}{kind}.jsonl"
    journal = Journal(arguments.journal or Layout.of(Path()).calibration / name)
    console = Screen()
    load = background_load(plan.cpus, plan.processors.one) if arguments.with_load else nullcontext()
    interrupted = False
    with progress_bar(console) as bar, load:
        task = bar.add_task("", total=None)

        def tell(text: str, verdicts: int) -> None:
            bar.update(task, description=f"{verdicts} verdicts, {text}")

        try:
            calibrate(plan, journal, arguments.budget, tell, random.Random())
        except KeyboardInterrupt:
            interrupted = True
    trials = journal.read()
    _show(console, plan, trials)
    console.print(f"trials kept in {journal.path}; run the same command again to add more")
    if arguments.report_json:
        write_whole(arguments.report_json, json.dumps(_as_json(plan, trials), indent=1) + "\n")
        console.print(f"report written: {arguments.report_json}")
    return 130 if interrupted else 0


def _determinism(arguments: argparse.Namespace, policy: Policy) -> int:
    """Print the metrics that are not exact; 1 if there are any, otherwise 0."""
    number = arguments.determinism
    if arguments.workloads != "usual":
        raise UsageError(f"--determinism probes your benchmarks: leave out --workloads {arguments.workloads}")
    if number < 2:
        raise UsageError(f"--determinism {number}: give at least 2, as one launch has no other to differ from")
    collected = collect(arguments.paths)
    by_name = {case.name: case for case in collected.cases.values()}
    cases = [by_name[name] for name in Selection(arguments.chosen).of(by_name)]
    console = Screen()
    with progress_bar(console) as bar:
        task = bar.add_task("", total=None)
        found = examine(
            collected.root, collected.suite, cases, number, policy, worker_processors(None),
            lambda case, done: bar.update(task, description=f"launch {done}, {case.short_name}"),
        )  # fmt: skip
    for one in found:
        if one.skipped:
            console.print(f"{one.case.short_name}: skipped, {one.skipped}")
        for metric, how in one.demoted.items():
            console.print(f"{one.case.short_name}: {metric} is not exact: {how}")
    probed = [one for one in found if one.launches]
    metrics, demoted = sum(one.metrics for one in probed), sum(len(one.demoted) for one in probed)
    exact = f"{metrics - demoted} of {metrics} exact metrics"
    console.print(f"{exact} are the same in {number} launches of {len(probed)} cases")
    return int(bool(demoted))


def _files(paths: list[str], workloads: str) -> tuple[Path, tuple[str, ...]]:
    if paths and workloads != "usual":
        raise UsageError(f"--workloads {workloads} with {paths[0]}: race either your files or the fixed workloads")
    if not paths:
        return WORKLOADS, (UNSEEN if workloads == "unseen" else USUAL,)
    if missing := next((path for path in paths if not Path(path).exists()), None):
        raise UsageError(f"{missing}: no such file or folder")
    return Path.cwd(), tuple(Path(path).as_posix() for path in paths)


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


def _show(console: Console, plan: Plan, trials: list[CalibrationTrial]) -> None:
    raced = [trial for trial in trials if trial.method == RACED]
    if not raced:
        console.print("no verdict yet; give the calibration more time with --budget")
        return
    ways = {
        ", unseen workloads": plan.files == (UNSEEN,),
        ", variants from one zygote": plan.variants,
        ", separate imports": plan.separate,
        f", against {plan.against}": plan.against != "self",
    }
    how = "".join(text for text, applies in ways.items() if applies)
    what = f"policy {plan.policy.name}, a suite of {plan.cases} cases{how}"
    console.print(table(f"tfbench, {what}", by_workload(RACED, trials), console.width))
    in_total = tally("in total", RACED, [t for t in raced if t.workload not in MEMORY_BOUND])
    totals = [in_total]
    for name in sorted(MEMORY_BOUND):
        totals.append(tally(f"{name} (bound by memory)", RACED, [t for t in raced if t.workload == name]))
    for method in SAVED:
        those = [t for t in trials if t.method == method and t.workload not in MEMORY_BOUND]
        totals.append(tally(f"pytest-benchmark {method.removeprefix('saved ')} +5%", method, those))
    totals = [row for row in totals if row.false_alarms.trials or row.detected]
    console.print(table("all workloads", totals, console.width))
    console.print(LEGEND)
    if in_total.coverage and in_total.nominal:
        hits = f"{in_total.coverage.hits}/{in_total.coverage.trials}"
        bounds = f"{in_total.coverage.low:.1%} to {in_total.coverage.high:.1%} at 95% confidence"
        console.print(f"coverage of intervals on unchanged code: {hits}, {bounds}, nominal {in_total.nominal:.1%}")
    if taken := costs(in_total):
        console.print(f"median time of a verdict: {taken}")
    console.print(f"verdicts: {len(raced)}, from {len({trial.run for trial in raced})} runs with zygotes of their own")
    runs = whole_runs(raced, plan.cases)
    if runs.trials:
        console.print(f"runs of {plan.cases} unchanged cases with a false positive: {of(runs)}")


def _as_json(plan: Plan, trials: list[CalibrationTrial]) -> JSON:
    content: JSON = {"schema": SCHEMA, "policy": plan.policy.as_json(), "cases": plan.cases, "machine": machine()}
    for method in (RACED, *SAVED):
        if those := [trial for trial in trials if trial.method == method]:
            content[method] = {
                "workloads": [row.as_json() for row in by_workload(method, trials)],
                "total": tally("in total", method, [t for t in those if t.workload not in MEMORY_BOUND]).as_json(),
            }
    content["whole_runs"] = whole_runs([t for t in trials if t.method == RACED], plan.cases).as_json()
    return content
