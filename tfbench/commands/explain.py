"""Print what changed in a case's graphs, in what XLA made of it and in its exact metrics, between two sides.

Nothing is timed. The sides are those of `pytest --benchmark --against`; a second case, such as another variant of
the same workload, can be given instead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from tfbench.analysis.difference import explain, metric_changes
from tfbench.analysis.parity import error, words
from tfbench.analysis.reading import Evidence, read
from tfbench.collection import collect
from tfbench.errors import BenchmarkError, UsageError
from tfbench.options import available_cpus
from tfbench.policy import preset
from tfbench.race.launcher import Entrant
from tfbench.race.prober import Prober
from tfbench.race.processes import ProcessLauncher, processors
from tfbench.report.explained import render
from tfbench.sides.environments import Environments, kept
from tfbench.sides.side import Side
from tfbench.sides.spec import KINDS, parse
from tfbench.store.files import FOLDER


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("case", metavar="CASE", help="name of a case, as test_mine[axis=level]")
    parser.add_argument("other", metavar="OTHER", nargs="?", default="", help="a case to compare it with")
    parser.add_argument("--against", default="", metavar="SPEC", help=f"the other side: {KINDS}")
    parser.add_argument("--paths", nargs="+", default=[], metavar="PATH", help="where the benchmarks are")


def run(arguments: argparse.Namespace) -> int:
    """Explain; 0 whatever changed."""
    if bool(arguments.against) == bool(arguments.other):
        raise UsageError("give one thing to compare with: --against SPEC, or a second case")
    collected = collect(arguments.paths)
    case = collected.named(arguments.case)
    contender = Side("contender", sys.executable, collected.root)
    environments = Environments(kept())
    if arguments.against:
        trees = Path(collected.root, FOLDER, "trees")
        first = Entrant(case, parse(arguments.against, contender, trees, environments))
        title = f"{case.name.rpartition('::')[2]}: from {arguments.against} to the working tree"
    else:
        first = Entrant(collected.named(arguments.other), contender)
        title = f"from {first.case.name.rpartition('::')[2]} to {case.name.rpartition('::')[2]}"
    second = Entrant(case, contender)
    policy = preset("standard")
    launcher = ProcessLauncher(collected.suite, policy, processors(None, available_cpus()))
    console = Console(highlight=False)
    try:
        with console.status("starting a process for each side"):
            launcher.ready([(entrant.side, entrant.case.env) for entrant in (first, second)], [0])
        with console.status("probing"):
            before, now = (_probed(found) for found in Prober(launcher, policy).probe([first, second]))
    finally:
        launcher.close()
        environments.close()
    changes = [(change.where, change.what, change.text) for change in explain(before, now)]
    console.print(render(title, changes, metric_changes(read(before), read(now)), _notes(before, now)))
    return 0


def _probed(found: Evidence | Exception) -> Evidence:
    if isinstance(found, BenchmarkError):
        raise BenchmarkError(f"{found}\n{found.output}" if found.output else str(found))
    if isinstance(found, Exception):
        raise found
    return found


def _notes(before: Evidence, now: Evidence) -> list[str]:
    notes = []
    dnn = ["on" if side.found["graph"]["onednn"] else "off" for side in (before, now) if "graph" in side.found]
    if len(set(dnn)) == 2:
        notes.append(f"oneDNN is {dnn[0]} before, {dnn[1]} now")
    for probe in ("graph", "xla"):
        if probe in before.absent and probe in now.absent:
            notes.append(f"{probe}: {now.absent[probe]}")
    if before.outputs and now.outputs:
        try:
            notes.append(f"the results differ by {words(error(now.outputs, before.outputs))} of their largest number")
        except ValueError as wrong:
            notes.append(str(wrong))
    return notes
