"""The command that explains the difference of a case between two sides, without times."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench.commands.setup import CommandSetup, add_selections
from tfbench.errors import UsageError
from tfbench.model import TIME, short_name
from tfbench.plugin.options import set_by_suite
from tfbench.policy import preset
from tfbench.profiles.folders import named
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.report.profile import attributed, changes_of, one_side
from tfbench.report.screen import Screen
from tfbench.session.profiling import BASELINE, Explainer, explained, reread
from tfbench.sides.spec import KINDS
from tfbench.storage.baselines import PROFILES
from tfbench.untrusted import command
from tfbench.versions.repro import race_folder, write_folder


def add_explain(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    option("case", metavar="CASE", help="name of a case, such as test_mine[axis=level]")
    option("other", metavar="OTHER", nargs="?", default="", help="a second case: what changes from CASE to it")
    option("--against", default="", metavar="SPEC", help=f"the other side: {KINDS}")
    option("--paths", nargs="+", default=[], metavar="PATH", help="files and folders of the benchmarks")
    option("--profile", nargs="?", const=PROFILES, default="", metavar="DIR", help=f"read the profiles there; with --against or OTHER, write them first (default: {PROFILES})")
    option("--repro", type=Path, metavar="DIR", help="also write a folder that races this Python and that of --against without tfbench, and run it")
    add_selections(parser)
    # fmt: on


def run_explain(arguments: argparse.Namespace) -> int:
    """Print the differences of a case between two sides: in its graphs, in XLA's modules and in its exact metrics.

    This takes no times. The sides are those of `pytest --benchmark --against`, or give a second case instead, such as
    another variant of the same workload. With `--profile DIR`, both are also profiled into DIR, and tfbench explains the
    difference of the profiles. `--profile DIR` alone reads the profiles that `pytest --benchmark --profile DIR` wrote for
    the case, or a log folder of another program with marked steps, for which CASE is a title. A part of a name selects
    all cases that contain it. With `--repro DIR`, the files of the benchmark and a
    runner are written into DIR for a bug report: the runner races both interpreters, which need TensorFlow, NumPy and
    pytest. A folder that shows no difference is removed.
    """
    if arguments.against and arguments.other:
        raise UsageError("give either --against SPEC or a second case, not both")
    if arguments.repro and not arguments.against:
        raise UsageError("--repro races two interpreters; name the other one with --against")
    console = Screen()
    if not arguments.against and not arguments.other:
        if not arguments.profile:
            raise UsageError("give --against SPEC or a second case to compare with, or --profile DIR to read")
        return _read(console, arguments)
    with CommandSetup(arguments, arguments.paths, preset("standard")) as setup, console.status("looking") as status:
        setup.tell = status.update
        case = setup.collected.named(arguments.case)
        if arguments.against:
            first, second = Entrant(case, setup.side(arguments.against, "baseline")), Entrant(case, setup.contender)
            title = f"{case.short_name}: from {arguments.against} to the working tree"
        else:
            other = setup.collected.named(arguments.other)
            first, second = Entrant(case, setup.contender), Entrant(other, setup.contender)
            title = f"from {case.short_name} to {other.short_name}"
        status.update("starting a process for each side")
        setup.launcher.start_pairs((first, second), [0])
        status.update("probing")
        explanation = explained(Prober(setup.launcher, setup.policy), first, second)
        answer = None
        if arguments.profile:
            explainer = Explainer(setup.launcher, setup.policy, status.update)
            answer = explainer.explain((first, second), TIME, None, explanation, Path(arguments.profile))
        if arguments.repro:
            function, variables = setup.collected.functions[case.name], set_by_suite()
            both = first.side, second.side
            write_folder(arguments.repro, function, case, setup.collected.root, both, variables)
    console.print(changes_of(title, explanation.metrics, (*explanation.results, *explanation.notes)))
    if answer is not None and answer.profiles is not None:
        console.print(attributed(answer.profiles.attribution, answer.lines))
        console.print(Text(f"profiles: {answer.profiles.kept.folder}"))
    if arguments.repro:
        race_folder(arguments.repro, first.side.executable)
        console.print(f"written: {arguments.repro}")
    return 0


def _read(console: Console, arguments: argparse.Namespace) -> int:
    """Print the saved profiles of all cases that the name selects."""
    for kept in named(Path(arguments.profile), arguments.case):
        with console.status("reading profiles"):
            explanation = reread(kept)
        if BASELINE in explanation.profiles:
            console.print(attributed(explanation.attribution, explanation.why))
        for side, steps in explanation.profiles.items():
            console.print(one_side(f"{short_name(kept.case)}{side and f', {side}'}: {kept.sides[side]}", steps))
    console.print(Text(f"all of it: {command('xprof', arguments.profile)}"))
    return 0
