"""The command about saved baselines."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.text import Text

from tfbench.commands import asked_reason
from tfbench.errors import BaselineError, UsageError
from tfbench.fs import project_root
from tfbench.model.words import duration
from tfbench.report.screen import Screen, add_row, break_name, folded, right, table
from tfbench.session.record import BaselineStore
from tfbench.sides.spec import TENSORFLOWS
from tfbench.untrusted import brief, plural

_COMMIT, _MINUTES, _REASON, _NUMBERS = 10, len("2026-01-01T00:00"), 8, 52
"""Characters of a commit and of a date, least width of the reasons, and width of the columns of numbers."""


def add_baseline(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    parser.add_argument("--root", type=Path, default=project_root(), metavar="PATH", help="pytest's root directory (default: this folder, or the nearest one above with .tfbench)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="list all baselines with their environments")
    show = actions.add_parser("show", help="show a baseline: its environment, its cases, why it was accepted")
    accept = actions.add_parser("accept", help="replace a baseline by the last run against it")
    remove = actions.add_parser("remove", help="delete a baseline, and its source tree from git")
    for action in (show, accept, remove):
        action.add_argument("name", metavar="NAME")
    accept.add_argument("--reason", default="", metavar="TEXT", help="why the change is intended (default: ask)")
    accept.add_argument("--drop-missing", action="store_true", help="remove cases from the baseline that the run did not measure")
    # fmt: on


def run_baseline(arguments: argparse.Namespace) -> int:
    """List, show, accept and remove saved baselines.

    A run with `pytest --benchmark --baseline NAME` keeps its measurements as a candidate. If its change is intended,
    `accept NAME --reason ...` makes the candidate the baseline. The file keeps the reasons of all acceptances.
    """
    if not arguments.root.is_dir():
        raise UsageError(f"--root {brief(arguments.root)} is no folder; name pytest's root directory")
    store = BaselineStore(arguments.root)
    console = Screen()
    if arguments.action == "list":
        _list(store, console)
    elif arguments.action == "show":
        _show(store, arguments.name, console)
    elif arguments.action == "accept":
        store.saved.fetch(arguments.name)  # an unknown baseline needs no reason
        reason = asked_reason(arguments.reason, "a baseline is not replaced")
        accepted = store.accept(arguments.name, reason, arguments.drop_missing)
        console.print(Text(f"{arguments.name}: {plural(len(accepted.samples), 'case')} accepted: {reason}"))
    else:
        console.print(Text(f"removed: {store.remove(arguments.name)}"))
    return 0


def _list(store: BaselineStore, console: Console) -> None:
    names = store.saved.names()
    if not names:
        console.print(f"no baseline in {store.saved.folder}; save one with pytest --benchmark --save-baseline NAME")
        return
    commits, reasons = (
        (name, {"no_wrap": False, "min_width": least})
        for name, least in (("commit", _COMMIT), ("accepted because", _REASON))
    )
    made = table("baselines", *folded("name"), "saved", "cases", "policy", commits, "TensorFlow", reasons)
    problems = []
    for name in names:
        try:
            baseline = store.saved.fetch(name)
        except BaselineError as error:
            add_row(made, Text(name, "red"), "unreadable")
            problems.append(Text(str(error), "yellow"))
            continue
        environment, cases = baseline.environment, str(len(baseline.samples))
        commit = f"{environment.commit[:_COMMIT] or '-'}{' + changes' if environment.dirty else ''}"
        tensorflow = next(
            (environment.packages[package] for package in TENSORFLOWS if package in environment.packages), "-"
        )
        reason = baseline.accepted[-1].reason if baseline.accepted else ""
        saved = baseline.saved[:_MINUTES].replace("T", " ")
        add_row(made, name, saved, cases, baseline.context.policy or "-", commit, tensorflow, reason)
    console.print(made, *problems, sep="\n")


def _show(store: BaselineStore, name: str, console: Console) -> None:
    baseline = store.saved.fetch(name)
    environment = baseline.environment
    facts = [
        ("saved", baseline.saved),
        ("policy", baseline.context.policy),
        ("commit", f"{environment.commit}{', with changes' if environment.dirty else ''}"),
        ("Python", environment.python),
        ("packages", ", ".join(f"{package} {version}" for package, version in sorted(environment.packages.items()))),
        ("settings", ", ".join(f"{key}={value}" for key, value in sorted(environment.settings.items()))),
        ("processors", f"{','.join(map(str, environment.cpus))} ({plural(environment.threads, 'thread')})"),
        ("machine", ", ".join(f"{key} {value}" for key, value in environment.machine.items() if value)),
        *(("accepted", f"{acceptance.when}: {acceptance.reason}") for acceptance in baseline.accepted),
    ]
    for label, value in facts:
        console.print(Text.assemble((f"{label:<11}", "dim"), value or "-"))
    made = table("cases", *folded("case"), *right("median", "floor", "launches"))
    for case, sample in sorted(baseline.samples.items()):
        cells = duration(median(sample.seconds)), duration(min(sample.floors)), str(len(sample.runs))
        add_row(made, break_name(case, max(20, console.width - _NUMBERS)), *cells)
    console.print(made)
