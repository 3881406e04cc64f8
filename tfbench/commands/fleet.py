"""The command for many machines: plan the jobs of a fleet, run them, or do one of them."""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import sys
import time
from functools import partial
from pathlib import Path

from tfbench.commands import PYTEST
from tfbench.commands.setup import add_selections, selected_words
from tfbench.errors import UsageError
from tfbench.fleet import jobs
from tfbench.fleet.jobs import ENGINES, FleetFolder, Plan, do, measured, merge, pinned, run, sides_of
from tfbench.fs import require_linux, try_lock, write_whole
from tfbench.model.formats import plain
from tfbench.model.words import span
from tfbench.plugin.collect import Collected, collect
from tfbench.plugin.options import COMMAND
from tfbench.policy import PRESETS, Policy, preset
from tfbench.race.workers import terminable
from tfbench.report import json_format
from tfbench.report.artifact import load_report
from tfbench.report.screen import say
from tfbench.ruling import decided
from tfbench.sides.counterparts import Counterparts, benchmarks_of
from tfbench.sides.source_tree import code_of, materialise
from tfbench.sides.spec import Side
from tfbench.storage.baselines import HISTORY_VARIABLE, Layout, now
from tfbench.suite import axes
from tfbench.untrusted import plural


def add_fleet(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    plan = actions.add_parser("plan", help="cut the suite into jobs")
    option = plan.add_argument
    option("paths", metavar="PATH", nargs="*", help="files, folders and cases, as in pytest")
    option("--against", default="", metavar="SPEC", help="the baseline side, as in pytest --benchmark")
    option("--policy", default="standard", metavar="|".join(PRESETS), help="confidence and cost of verdicts")
    option("--folder", type=Path, metavar="DIR", help="folder of the fleet, which all machines share")
    option("--job-seconds", type=float, default=jobs.JOB_SECONDS, metavar="SECONDS", help="cost of a job")
    option("--costs", type=Path, action="append", default=[], metavar="REPORT", help="an earlier report, whose costs of cases are used; repeatable")
    add_selections(plan, cpus=False)
    option = actions.add_parser("run", help="run the jobs without a report, and merge all reports").add_argument
    option("folder", metavar="FOLDER", type=Path, help="the folder of the fleet")
    option("--engine", default="local", choices=ENGINES, help="what runs the jobs (default: %(default)s)")
    option("--history", default="", metavar="DIR", help="add each job's run to this history")
    option = actions.add_parser("job", help="measure a job, and write its report; for a job array of Slurm, say").add_argument
    option("folder", metavar="FOLDER", type=Path, help="the folder of the fleet")
    option("index", metavar="NUMBER", type=int, help="the job's number, from 1")
    option("--root", type=Path, metavar="PATH", help="pytest's root (default: that of the plan)")
    option("--cpus", default="", metavar="LIST", help="processors for the workers, such as 0,2-3")
    # fmt: on


def run_fleet(arguments: argparse.Namespace) -> int:
    """Spread a suite over many machines, by Ray or by the job arrays of a batch system such as Slurm.

    `plan` cuts the selected benchmarks into jobs of about equal cost, as files in a folder that all machines share. `run`
    measures those without a report, and merges the reports. Both sides of a case always race on one machine. Ctrl-C ends
    the jobs, and the same command goes on. `job` does one job, and `tfbench gate FOLDER` merges the reports of all.

    A job that has its complete report is done, and nothing is measured again. An interrupted job goes on where it was, on
    the same machine. A job is refused if this machine has other code, versions or thresholds than it was planned for, or
    if its file was edited.

    Exit codes of `run` are those of `tfbench gate` for the merged report.
    """
    if arguments.action == "job":
        return _job(arguments)
    if arguments.action == "plan":
        return _plan(arguments)
    if arguments.engine == "local":
        require_linux()
    if arguments.history:
        os.environ[HISTORY_VARIABLE] = str(Path(arguments.history).absolute())
    folder = FleetFolder(arguments.folder)
    say(_described(folder.plan()))
    held = try_lock(folder.lock)
    if held is None:
        raise UsageError(f"another process runs the fleet in {folder.path}; wait for it, or end it")
    with held, terminable():
        return _measure(arguments, folder)


def _described(plan: Plan) -> str:
    return f"{plural(plan.cases, 'case')} in {plural(plan.jobs, 'job')}, about {span(plan.seconds)} of machine time"


def _plan(arguments: argparse.Namespace) -> int:
    policy = preset(arguments.policy)
    if not 0 < arguments.job_seconds < 1e6:
        raise UsageError(f"--job-seconds {arguments.job_seconds:g}: write the seconds of a job, such as 900")
    words, selected = selected_words(arguments)
    collected = collect([*words, f"--tfbench-policy={policy.name}", *arguments.paths])
    cases = list(collected.cases.values())  # skipped cases too, since the other side may run them
    if not cases:
        raise UsageError("no benchmark is selected; `pytest --benchmark --collect-only -q` lists all")
    known: dict[str, float] = {}
    for path in arguments.costs:
        known.update(load_report(path).seconds_by_case)
    spec = pinned(arguments.against, collected.root)
    make = partial(
        jobs.Job,
        policy=plain(collected.policy),  # with what the project's settings of pytest say
        sides=sides_of(spec, collected.root),
        device=(selected["--device"] or ["all"])[-1],
        scale=(selected["--scale"] or [os.environ.get(axes.VARIABLE, axes.SMALL)])[-1],
    )
    parts = jobs.cut(cases, jobs.costs(cases, known, policy.name), arguments.job_seconds)
    layout = Layout.of(collected.root)
    layout.write_gitignore()
    place = arguments.folder or layout.fleets / f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
    if place.exists():
        raise UsageError(f"{place} exists: name another folder, or run its jobs with tfbench fleet run")
    missing = _missing(collected, spec, policy, layout)
    say(_described(jobs.write_plan(place, parts, make, now(), collected.root, missing)))
    say(f"{place}: tfbench fleet run {place} runs them")
    return 0


def _missing(collected: Collected, spec: str, policy: Policy, layout: Layout) -> list[str]:
    """Return the cases that a revision in ``spec`` would run under the same options, and that are not planned."""
    revision = next((part[4:] for part in spec.split("+") if part.startswith("git:")), "")
    if not revision:
        return []
    root, redirect = materialise(collected.root, code_of(collected.root, revision).tree, layout.trees)
    side = Side("baseline", sys.executable, root, spec, tree_redirect=redirect)
    before = benchmarks_of(side, collected.selection, COMMAND, policy.start_seconds)
    cases = collected.cases
    gone = Counterparts(before, list(cases.values()), {*cases, *collected.deselected}, collected.root).gone(cases)
    return sorted(case.name for case in gone if collected.selection.has(case.name))


def _measure(arguments: argparse.Namespace, folder: FleetFolder) -> int:
    try:
        lost = run(folder, ENGINES[arguments.engine], say)
    except KeyboardInterrupt:
        say(f"interrupted: tfbench fleet run --engine {arguments.engine} {folder.path} goes on", error=True)
        raise
    report = merge(folder, lost)
    write_whole(folder.merged, json_format.lines(report))
    ruling = decided(report).ruling
    for verdict in ruling.verdicts[:20]:
        say(f"{verdict.outcome} {verdict.case.name}: {verdict.reason.message}")
    say(f"report written: {folder.merged}")
    say(f"{ruling.result}: {ruling.because}")
    return ruling.result.code


def _job(arguments: argparse.Namespace) -> int:
    folder = FleetFolder(arguments.folder)
    job = folder.job(arguments.index)
    root = arguments.root or Path(folder.plan().root)
    label = f"job {job.index} of {job.of}, {plural(len(job.cases), 'case')}"
    say(f"{label}: started on {platform.node()}")
    with terminable():
        did = do(folder, job.index, root.absolute(), partial(measured, PYTEST, arguments.cpus))
    say(f"{label}: {folder.report(job.index)}" if did else f"{label}: done already")
    return 0
