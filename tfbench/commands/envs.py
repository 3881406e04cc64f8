"""List the environments that uv built for other versions, and remove those that nobody uses.

They are kept for all projects of a user, in the folder that is printed, until they are pruned.
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.text import Text

from tfbench.report.style import table
from tfbench.report.units import size
from tfbench.sides.environments import Environment, Environments, kept

_DAY = 86400


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    words = parser.add_subparsers(dest="what", metavar="list|prune", required=True)
    words.add_parser("list", help="what there is, how large it is, and when it was last used")
    prune = words.add_parser("prune", help="remove what has not been used for a while; what is in use stays")
    prune.add_argument("--days", type=float, default=30.0, help="unused for so many days (default: 30; 0 for all)")


def run(arguments: argparse.Namespace) -> int:
    """List or prune; returns the exit code."""
    environments = Environments(kept())
    console = Console(highlight=False, soft_wrap=True)
    if arguments.what == "prune":
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
