"""Print what changed in a case's graphs, in what XLA made of it and in its exact metrics, between two sides.

Nothing is timed. The sides are those of `pytest --benchmark --against`; a second case, such as another variant of
the same workload, can be given instead. With `--profile DIR` both are profiled into DIR as well, and what the
profiles say of the difference is printed in full. With `--profile DIR` alone, the profiles of the case that lie in DIR
are read, as `pytest --benchmark --profile DIR` has left them; a part of a name means all that have it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench.commands._setup import CommandSetup, add_selections
from tfbench.errors import UsageError
from tfbench.policy import preset
from tfbench.profiles.folders import Kept, named
from tfbench.race.interfaces import Entrant
from tfbench.race.prober import Prober
from tfbench.race.profiler import USUAL, Profiler
from tfbench.report.attribution import attributed
from tfbench.report.explain import render
from tfbench.report.profile import render as sections
from tfbench.session.explain import explained
from tfbench.session.profiling import BASELINE, CONTENDER, reread, take
from tfbench.sides.spec import KINDS
from tfbench.storage.layout import PROFILES


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("case", metavar="CASE", help="name of a case, as test_mine[axis=level]")
    parser.add_argument("other", metavar="OTHER", nargs="?", default="", help="a case to compare it with")
    parser.add_argument("--against", default="", metavar="SPEC", help=f"the other side: {KINDS}")
    parser.add_argument("--paths", nargs="+", default=[], metavar="PATH", help="where the benchmarks are")
    words = f"read the profiles there; with something to compare with, take them first (default: {PROFILES})"
    parser.add_argument("--profile", nargs="?", const=PROFILES, default="", metavar="DIR", help=words)
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain; 0 whatever changed."""
    if arguments.against and arguments.other:
        raise UsageError("give one thing to compare with: --against SPEC, or a second case")
    console = Console(highlight=False)
    if not arguments.against and not arguments.other:
        if not arguments.profile:
            raise UsageError(
                "give something to compare with, --against SPEC or a second case, or --profile DIR to read"
            )
        return _read(console, arguments)
    with CommandSetup(arguments, arguments.paths, preset("standard")) as setup, console.status("looking") as status:
        setup.tell = status.update
        case = setup.collected.named(arguments.case)
        if arguments.against:
            first = Entrant(case, setup.side(arguments.against, "baseline"))
            title = f"{case.name.rpartition('::')[2]}: from {arguments.against} to the working tree"
        else:
            first = Entrant(setup.collected.named(arguments.other), setup.contender)
            title = f"from {first.case.name.rpartition('::')[2]} to {case.name.rpartition('::')[2]}"
        second = Entrant(case, setup.contender)
        status.update("starting a process for each side")
        setup.launcher.ready([(entrant.side, entrant.case.env) for entrant in (first, second)], [0])
        status.update("probing")
        found = explained(Prober(setup.launcher, setup.policy), first, second)
        taken = None
        if arguments.profile:
            profiler = Profiler(setup.launcher, setup.policy, USUAL)
            sides = {BASELINE: first, CONTENDER: second}
            taken = take(profiler, sides, Path(arguments.profile), setup.policy, tell=status.update)
    console.print(render(title, found.changes, found.metrics, found.notes))
    if taken is not None:
        console.print(attributed(taken.attribution, taken.why))
        console.print(Text(f"profiles: {taken.kept.folder}"))
    return 0


def _read(console: Console, arguments: argparse.Namespace) -> int:
    """Print what the profiles of a case say, or of several whose names are meant."""
    for kept in named(Path(arguments.profile), arguments.case):
        _print(console, kept)
    console.print(f"tensorboard --logdir {arguments.profile}", markup=False)
    return 0


def _print(console: Console, kept: Kept) -> None:
    with console.status("reading profiles"):
        found = reread(kept, preset("standard"))
    name = kept.case.rpartition("::")[2]
    if BASELINE in found.profiles:
        console.print(attributed(found.attribution, found.why))
    for side, profile in found.profiles.items():
        title = f"{name}, {side}: {kept.environment(side)}"
        console.print(sections(title, profile.sections))
    console.print(Text(f"\nwhole tables, trace and Markdown: {kept.folder}\n"))
