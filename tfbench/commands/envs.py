"""List the environments that uv built for other versions, and remove unused ones.

All projects of a user share the environments, which stay in the printed folder until they are pruned.
"""

from __future__ import annotations

import argparse
import time

from tfbench.model.words import size
from tfbench.report.screen import Screen, add_columns, add_row, table
from tfbench.sides.environments import Environments, kept

_DAY = 86400


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="list|prune", required=True)
    actions.add_parser("list", help="list the environments with size and last use")
    prune = actions.add_parser("prune", help="remove unused environments; environments in use stay")
    text = "remove environments unused for N days (default: 30; 0 for all)"
    prune.add_argument("--days", type=float, default=30.0, help=text, metavar="N")


def run(arguments: argparse.Namespace) -> int:
    """List or prune; always 0."""
    environments = Environments(kept())
    console = Screen(soft_wrap=True)
    if arguments.action == "prune":
        sizes = {one.folder: one.bytes for one in environments.every()}
        removed = environments.prune(arguments.days)
        freed = size(sum(sizes[one.folder] for one in removed))
        console.print(f"{len(removed)} removed, {freed} freed; {len(sizes) - len(removed)} left in {kept()}")
        return 0
    made = table(str(kept()))
    made.add_column("asked for")
    add_columns(made, "Python", "packages", "size", "last used")
    for one in environments.every():
        days = (time.time() - one.used) / _DAY
        used = "today" if days < 1 else f"{days:.0f} days ago"
        add_row(made, ", ".join(one.request), one.python, str(len(one.packages)), size(one.bytes), used)
    console.print(made if made.row_count else f"no environments in {kept()}")
    return 0
