"""Commands for many machines: plan and run the jobs of a fleet, do one of them, and merge the reports."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tfbench.commands import PYTEST, amount
from tfbench.commands.setup import add_selections, selected_words
from tfbench.errors import UsageError
from tfbench.fleet import jobs
from tfbench.fleet.controller import Fleet, FleetProgress, Status, failed_logs
from tfbench.fleet.controller import merge as merge_fleet
from tfbench.fleet.engines import Engine, LocalEngine, RayEngine, SlurmEngine
from tfbench.fleet.jobs import FleetFolder, Plan, kept_report, load, node_name, pinned, sides_of
from tfbench.fleet.node import WAIT, Place, measured
from tfbench.fleet.node import run as execute
from tfbench.fs import require_linux, try_lock, write_whole
from tfbench.model.formats import plain
from tfbench.model.words import span
from tfbench.plugin.collect import COMMAND, Collected, collect
from tfbench.plugin.options import worker_processors
from tfbench.policy import PRESETS, Policy, preset
from tfbench.race.workers import terminable
from tfbench.report import json_format
from tfbench.report.artifact import load_report
from tfbench.report.screen import Screen, say
from tfbench.ruling import decided
from tfbench.sides.counterparts import Counterparts, benchmarks_of
from tfbench.sides.source_tree import materialise, tree_of
from tfbench.sides.spec import Side
from tfbench.storage.baselines import HISTORY_VARIABLE, Layout, now
from tfbench.storage.history import is_url, opened
from tfbench.suite import axes
from tfbench.untrusted import plural

ENGINES = ("local", "slurm", "ray")


def add_fleet(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (("plan", "cut the suite into jobs"), ("run", "run the jobs, and merge their reports")):
        action = actions.add_parser(name, help=text)
        option = action.add_argument
        option("paths", metavar="PATH", nargs="*", help="files, folders and cases, as in pytest")
        option("--against", default="", metavar="SPEC", help="the baseline side, as in pytest --benchmark")
        option("--policy", default="standard", metavar="|".join(PRESETS), help="confidence and cost of verdicts")
        option("--folder", type=Path, metavar="DIR", help="folder of the fleet, which all machines share")
        option("--job-seconds", type=float, default=jobs.JOB_SECONDS, metavar="SECONDS", help="cost of a job")
        text = "an earlier report, whose costs of cases are used; repeatable"
        option("--costs", type=Path, action="append", default=[], metavar="REPORT", help=text)
        option("--machine-class", default="any", metavar="NAME", help="machines of the engine that run the jobs")
        option("--driver", default="", metavar="VERSION", help="GPU driver that the machines must have")
        add_selections(action, cpus=False)
        if name == "run":
            action.set_defaults(given_for_plan=_not_default(action))
            option("--engine", default="local", metavar="|".join(ENGINES), help="what runs the jobs")
            option("--local-nodes", type=int, default=0, metavar="N", help="with ray: nodes of an own cluster here")
            text = "with slurm: an option of sbatch, such as --gres=gpu:1; repeatable"
            option("--engine-option", action="append", default=[], metavar="OPTION", help=text)
            option("--history", default="", metavar="DIR|URL", help="add each job's run to this history")
            option("--resume", type=Path, metavar="FOLDER", help="run the jobs of a fleet that have no report yet")
            option("--report-json", type=Path, metavar="PATH", help="write the merged report here as well")


def _not_default(planning: argparse.ArgumentParser) -> Callable[[argparse.Namespace], list[str]]:
    """Return a function that names the options of this parser that the user has set. Options added later do not count."""
    known = vars(planning.parse_args([]))

    def given(arguments: argparse.Namespace) -> list[str]:
        names = [name for name, default in known.items() if getattr(arguments, name) != default]
        return [name.removeprefix("select ") if " " in name else f"--{name.replace('_', '-')}" for name in names]

    return given


def run_fleet(arguments: argparse.Namespace) -> int:
    """Spread a suite over the machines of Slurm or Ray, or plan the jobs for another engine.

    `plan` cuts the selected benchmarks into jobs of about equal cost, as files in a folder that all machines share. `run`
    plans as well, or takes a folder, runs the jobs, and merges their reports. Both sides of a case always race on one
    machine. Ctrl-C ends the jobs, and --resume FOLDER goes on.

    Exit codes of `run` are those of `tfbench gate` for the merged report.
    """
    if arguments.action == "plan":
        folder, plan = _plan(arguments)
        say(_described(plan))
        say(f"{folder.path}: tfbench fleet run --resume {folder.path} runs them")
        return 0
    if arguments.engine not in ENGINES:
        raise UsageError(f"--engine {arguments.engine!r}: choose from {', '.join(ENGINES)}")
    if arguments.engine == "local":
        require_linux()
    if arguments.resume and (given := arguments.given_for_plan(arguments)):
        words = ", ".join(given).replace("--paths", "benchmarks")
        raise UsageError(f"--resume runs the jobs as they were planned: leave out {words}")
    if arguments.history:
        place = arguments.history if is_url(arguments.history) else str(Path(arguments.history).absolute())
        opened(place)  # a wrong password is found before anything is measured
        os.environ[HISTORY_VARIABLE] = place  # not in a file or a command line, where others read it
    if arguments.resume:
        folder = FleetFolder(arguments.resume)
        plan = folder.plan()
    else:
        folder, plan = _plan(arguments)
    say(_described(plan))
    held = try_lock(folder.lock)
    if held is None:
        raise UsageError(f"another process runs the fleet in {folder.path}; wait for it, or end it")
    with held, terminable(), ExitStack() as stack:
        engine = _engine(arguments, folder, plan)
        stack.callback(engine.close)
        return _run(arguments, folder, engine)


def _described(plan: Plan) -> str:
    kind = "any machine" if plan.machine_class == "any" else f"machines of the class {plan.machine_class}"
    return f"{plural(plan.cases, 'case')} in {plural(plan.jobs, 'job')} on {kind}, about {span(plan.seconds)} of machine time"


def _plan(arguments: argparse.Namespace) -> tuple[FleetFolder, Plan]:
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
        machine_class=arguments.machine_class,
        driver=arguments.driver,
        device=(selected["--device"] or ["all"])[-1],
        scale=(selected["--scale"] or [os.environ.get(axes.VARIABLE, axes.SMALL)])[-1],
    )
    parts = jobs.cut(cases, jobs.costs(cases, known, policy.name), arguments.job_seconds)
    layout = Layout.of(collected.root)
    layout.write_gitignore()
    place = arguments.folder or layout.fleets / f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
    if place.exists():
        raise UsageError(f"{place} exists: name another folder, or run its jobs with --resume")
    missing = _missing(collected, spec, policy, layout)
    return FleetFolder(place), jobs.write_plan(place, jobs.jobs_of(parts, make, now()), collected.root, missing)


def _missing(collected: Collected, spec: str, policy: Policy, layout: Layout) -> list[str]:
    """Return the cases that a revision in ``spec`` would run under the same options, and that are not planned."""
    revision = next((part[4:] for part in spec.split("+") if part.startswith("git:")), "")
    if not revision:
        return []
    root, redirect = materialise(collected.root, tree_of(collected.root, revision), layout.trees)
    side = Side("baseline", sys.executable, root, spec, tree_redirect=redirect)
    before = benchmarks_of(side, collected.selection, COMMAND, policy.start_seconds)
    cases = collected.cases
    gone = Counterparts(before, list(cases.values()), {*cases, *collected.deselected}).gone(cases)
    return sorted(case.name for case in gone if collected.selection.has(case.name))


def _engine(arguments: argparse.Namespace, folder: FleetFolder, plan: Plan) -> Engine:
    if arguments.local_nodes and arguments.engine != "ray":
        raise UsageError("--local-nodes is for --engine ray")
    if arguments.engine_option and arguments.engine != "slurm":
        raise UsageError("--engine-option is for --engine slurm")
    if arguments.engine == "slurm":
        return SlurmEngine(folder, plan.machine_class, arguments.engine_option)
    return RayEngine(plan.machine_class, arguments.local_nodes) if arguments.engine == "ray" else LocalEngine()


def _run(arguments: argparse.Namespace, folder: FleetFolder, engine: Engine) -> int:
    console = Screen()
    try:
        with FleetProgress(console, lambda: engine.slots) as progress:
            status = Fleet(folder, engine, progress).run()
    except KeyboardInterrupt:
        say(f"interrupted: tfbench fleet run --engine {arguments.engine} --resume {folder.path} goes on", error=True)
        raise
    return _conclude(arguments, folder, status)


def _conclude(arguments: argparse.Namespace, folder: FleetFolder, status: Status) -> int:
    for line in failed_logs(folder, status):
        say(line)
    report = merge_fleet(folder, status.lost)
    for path in (folder.merged, *([arguments.report_json] if arguments.report_json else [])):
        write_whole(path, json_format.lines(report))
    for machine in report.machines:
        aside = f", set aside: {machine['aside']}" if machine.get("aside") else ""
        say(f"{machine['host']}: {plural(machine['jobs'], 'job')}, {span(machine['seconds'])}{aside}")
    ruling = decided(report).ruling
    for verdict in ruling.verdicts[:20]:
        say(f"{verdict.outcome} {verdict.case.name}: {verdict.reason.message}")
    say(f"report written: {folder.merged}")
    say(f"{ruling.result}: {ruling.because}")
    return ruling.result.code


def add_job(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    action = actions.add_parser("run", help="measure a job, and write its report")
    option = action.add_argument
    option("job", metavar="JOB", type=Path, help="a job of tfbench fleet plan")
    option("--report-json", type=Path, metavar="PATH", help="write the report here (default: into the job's fleet)")
    option("--root", type=Path, metavar="PATH", help="pytest's root (default: that of the plan, else this folder)")
    option("--cpus", metavar="LIST", help="processors for the workers, such as 0,2-3")
    text = "wait so long for another service that measures on this host (default: a day)"
    option("--wait", type=amount, default=WAIT, metavar="SECONDS", help=text)


def run_job(arguments: argparse.Namespace) -> int:
    """Do a job of a fleet on this machine, and write its report.

    A job that has its complete report is done, and nothing is measured again. An interrupted job goes on where it was, on
    the same machine. A job is refused if this machine has other code, versions or thresholds than it was planned for, or
    if its file was edited.
    """
    job, place = load(arguments.job), Place.of(arguments.job, arguments.report_json)
    root = arguments.root or (Path(place.fleet.plan().root) if place.fleet else Path())
    label = f"job {job.index} of {job.of}, {plural(len(job.cases), 'case')}"
    if kept_report(job, place.report):
        say(f"{label}: done already: {place.report}")
        return 0
    say(f"{label}: started on {node_name()}")
    measure = partial(measured, PYTEST)
    with terminable():
        execute(place, root.absolute(), worker_processors(arguments.cpus), measure, wait=arguments.wait)
    say(f"{label}: {place.report}")
    return 0
