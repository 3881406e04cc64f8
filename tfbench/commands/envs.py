"""List the environments that uv built for other versions, and remove unused ones.

All projects of a user share the environments, which stay in the printed folder until they are pruned.
"""

from __future__ import annotations

import argparse
import time

from rich.text import Text

from tfbench.report.screen import Screen
from tfbench.report.style import table
from tfbench.report.units import size
from tfbench.sides.environments import Environment, Environments, kept

_DAY = 86400


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="list|prune", required=True)
    actions.add_parser("list", help="list the environments with size and last use")
    prune = actions.add_parser("prune", help="remove unused environments; environments in use stay")
    prune.add_argument(
        "--days",
        type=float,
        default=30.0,
        help="remove environments unused for N days (default: 30; 0 for all)",
        metavar="N",
    )


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
    found = environments.every()
    if found:
        made = table(str(kept()))
        for heading in ("asked for", "Python", "packages", "size", "last used"):
            made.add_column(heading, no_wrap=heading != "asked for")
        for one in found:
            made.add_row(*map(Text, _cells(one)))
        console.print(made)
    else:
        console.print(f"no environments in {kept()}")
    return 0


def _cells(one: Environment) -> tuple[str, ...]:
    days = (time.time() - one.used) / _DAY
    used = "today" if days < 1 else f"{days:.0f} days ago"
    return ", ".join(one.request), one.python, str(len(one.packages)), size(one.bytes), used
