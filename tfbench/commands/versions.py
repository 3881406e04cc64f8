"""Race the same benchmarks on several versions at once, against the first of them.

A version is one of TensorFlow, as 2.20.0, or any specification of --against: tensorflow-cpu==2.20.0, keras==3.9.0,
git:REV, env:NAME=VALUE, joined by +; `self` is the reference once more. All sides run this checkout's benchmarks
unless git: says otherwise. Environments are built by uv and kept, see `tfbench envs`.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from rich.console import Console

from tfbench.collection import collect
from tfbench.errors import UsageError
from tfbench.options import available_cpus
from tfbench.policy import PRESETS, preset
from tfbench.race.processes import ProcessLauncher, processors
from tfbench.report import versions as report
from tfbench.sides.environments import Environments, kept
from tfbench.sides.side import Side
from tfbench.store.files import FOLDER, write_whole
from tfbench.versions import race, sides_of


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("specs", metavar="VERSION", nargs="+", help="a version of TensorFlow, or a specification")
    parser.add_argument("--reference", default="", metavar="VERSION", help="what the others are compared with")
    parser.add_argument("--paths", nargs="+", default=[], metavar="PATH", help="files and folders of benchmarks")
    parser.add_argument("-k", dest="chosen", default="", metavar="EXPRESSION", help="choose cases, as pytest does")
    parser.add_argument("--policy", default="quick", metavar="|".join(PRESETS), help="how sure, at what cost")
    parser.add_argument("--report-json", type=Path, metavar="PATH", help="write everything as JSON")
    parser.add_argument("--report-markdown", type=Path, metavar="PATH", help="write the tables as Markdown")


def run(arguments: argparse.Namespace) -> int:
    """Race and print; 0 whatever became slower, as this is a question and no gate."""
    policy = preset(arguments.policy)
    collected = collect([*(["-k", arguments.chosen] if arguments.chosen else []), *arguments.paths])
    if not collected.cases:
        raise UsageError("no benchmark is chosen; `pytest --benchmark --collect-only -q` lists them")
    contender = Side("contender", sys.executable, collected.root)
    console = Console(highlight=False)
    launcher = ProcessLauncher(collected.suite, policy, processors(None, available_cpus()))
    with console.status("looking for versions") as status, Environments(kept(), status.update) as environments:
        try:
            trees = Path(collected.root, FOLDER, "trees")
            sides = sides_of(arguments.specs, arguments.reference, contender, trees, environments)
            found = race(list(collected.cases.values()), sides, launcher, policy, random.Random(), status.update)
        finally:
            launcher.close()
    console.print(report.terminal(found.sides, found.rows))
    console.print(
        f"{len(found.rows)} cases on {len(found.sides)} sides in {found.seconds:.0f} s (policy {policy.name})"
    )
    for path, text in (
        (arguments.report_json, report.as_json(found.sides, found.rows, policy.as_json(), found.seconds)),
        (arguments.report_markdown, report.markdown(found.sides, found.rows)),
    ):
        if path is not None:
            write_whole(path, text)
            console.print(f"written: {path}")
    return 0
