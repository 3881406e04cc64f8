"""Print what changed in a case's graphs, in what XLA made of it and in its exact metrics, between two sides.

Nothing is timed. The sides are those of `pytest --benchmark --against`; a second case, such as another variant of
the same workload, can be given instead.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from tfbench.errors import UsageError
from tfbench.explaining import explained
from tfbench.policy import preset
from tfbench.race.launcher import Entrant
from tfbench.race.prober import Prober
from tfbench.report.explained import render
from tfbench.sides.spec import KINDS
from tfbench.stage import Stage, add_selections


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("case", metavar="CASE", help="name of a case, as test_mine[axis=level]")
    parser.add_argument("other", metavar="OTHER", nargs="?", default="", help="a case to compare it with")
    parser.add_argument("--against", default="", metavar="SPEC", help=f"the other side: {KINDS}")
    parser.add_argument("--paths", nargs="+", default=[], metavar="PATH", help="where the benchmarks are")
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain; 0 whatever changed."""
    if bool(arguments.against) == bool(arguments.other):
        raise UsageError("give one thing to compare with: --against SPEC, or a second case")
    console = Console(highlight=False)
    with Stage(arguments, arguments.paths, preset("standard")) as stage, console.status("looking") as status:
        stage.tell = status.update
        case = stage.collected.named(arguments.case)
        if arguments.against:
            first = Entrant(case, stage.side(arguments.against, "baseline"))
            title = f"{case.name.rpartition('::')[2]}: from {arguments.against} to the working tree"
        else:
            first = Entrant(stage.collected.named(arguments.other), stage.contender)
            title = f"from {first.case.name.rpartition('::')[2]} to {case.name.rpartition('::')[2]}"
        second = Entrant(case, stage.contender)
        status.update("starting a process for each side")
        stage.launcher.ready([(entrant.side, entrant.case.env) for entrant in (first, second)], [0])
        status.update("probing")
        found = explained(Prober(stage.launcher, stage.policy), first, second)
    console.print(render(title, found.changes, found.metrics, found.notes))
    return 0
