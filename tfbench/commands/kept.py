"""The command about saved baselines."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench.errors import BaselineError, UsageError
from tfbench.fs import project_root
from tfbench.report.screen import Screen, add_row, folded, table
from tfbench.session.record import remove_baseline
from tfbench.sides.spec import TENSORFLOWS
from tfbench.storage.baselines import Baselines, Layout
from tfbench.untrusted import brief

_COMMIT, _MINUTES = 10, len("2026-01-01T00:00")
"""Characters of a commit and of a date."""


def add_baseline(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    parser.add_argument("--root", type=Path, default=project_root(), metavar="PATH", help="pytest's root directory (default: this folder, or the nearest one above with .tfbench)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="list all baselines with their environments")
    actions.add_parser("remove", help="delete a baseline, and its source tree from git").add_argument("name", metavar="NAME")
    # fmt: on


def run_baseline(arguments: argparse.Namespace) -> int:
    """List and remove saved baselines. `tfbench report NAME` shows the times of one.

    `pytest --benchmark --save-baseline NAME` saves a baseline, or replaces it.
    """
    if not arguments.root.is_dir():
        raise UsageError(f"--root {brief(arguments.root)} is no folder; name pytest's root directory")
    console = Screen()
    if arguments.action == "list":
        _list(Baselines(Layout.of(arguments.root).baselines), console)
    else:
        console.print(Text(f"removed: {remove_baseline(arguments.root, arguments.name)}"))
    return 0


def _list(saved: Baselines, console: Console) -> None:
    names = saved.names()
    if not names:
        console.print(f"no baseline in {saved.folder}; save one with pytest --benchmark --save-baseline NAME")
        return
    commits = "commit", {"no_wrap": False, "min_width": _COMMIT}
    made = table("baselines", *folded("name"), "saved", "cases", "policy", commits, "TensorFlow")
    problems = []
    for name in names:
        try:
            baseline = saved.fetch(name)
        except BaselineError as error:
            add_row(made, Text(name, "red"), "unreadable")
            problems.append(Text(str(error), "yellow"))
            continue
        environment, cases = baseline.environment, str(len(baseline.samples))
        commit = f"{environment.commit[:_COMMIT] or '-'}{' + changes' if environment.dirty else ''}"
        tensorflow = next(
            (environment.packages[package] for package in TENSORFLOWS if package in environment.packages), "-"
        )
        when = baseline.saved[:_MINUTES].replace("T", " ")
        add_row(made, name, when, cases, baseline.context.policy or "-", commit, tensorflow)
    console.print(made, *problems, sep="\n")
