"""Race the same benchmarks on several versions at once, against the first of them.

A version is one of TensorFlow, as 2.20.0, or any specification of --against: tensorflow-cpu==2.20.0, keras==3.9.0,
git:REV, env:NAME=VALUE, joined by +; `self` is the reference once more. All sides run this checkout's benchmarks
unless git: says otherwise. Files, folders and cases among the words choose what is raced, as for pytest.
Environments are built by uv and kept, see `tfbench envs`.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from rich.console import Console

from tfbench.commands._setup import CommandSetup, add_selections, paths_among
from tfbench.compare.load import medians
from tfbench.fs import write_whole
from tfbench.model import Outcome, VariantResult
from tfbench.policy import PRESETS, preset
from tfbench.versions import matrix_report as report
from tfbench.versions.matrix import ordered, race, sides_of


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", metavar="VERSION|PATH", nargs="+", help="versions or specifications; files, cases")
    parser.add_argument("--reference", default="", metavar="VERSION", help="what the others are compared with")
    parser.add_argument(
        "--show-saved", type=Path, action="append", default=[], metavar="PATH",
        help="show times of an earlier result file as well, not raced; can be repeated",
    )  # fmt: skip
    parser.add_argument("--policy", default="quick", metavar="|".join(PRESETS), help="how sure, at what cost")
    parser.add_argument("--fail-on-regression", action="store_true", help="exit with 1 if a case is slower on any side")
    parser.add_argument("--report-json", type=Path, metavar="PATH", help="write everything as JSON")
    parser.add_argument("--report-markdown", type=Path, metavar="PATH", help="write the tables as Markdown")
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Race and print; 0 whatever became slower, as this is a question, unless a failure is asked for."""
    policy = preset(arguments.policy)
    paths, specs = paths_among(arguments.words)
    labels = ordered(specs, arguments.reference)
    saved = {name: times for path in arguments.show_saved for name, times in medians(path).items()}
    console = Console(highlight=False)
    with CommandSetup(arguments, paths, policy) as setup, console.status("looking for versions") as status:
        setup.tell = status.update
        setup.prefer_one_python(labels)
        sides = sides_of(labels, setup.side)
        found = race(setup.cases, sides, setup.launcher, policy, random.Random(), status.update)
        notes = setup.notes
    console.print(report.terminal(found.sides, found.rows, saved, console.width))
    for note in notes:
        console.print(note)
    console.print(
        f"{len(found.rows)} cases on {len(found.sides)} sides in {found.seconds:.0f} s (policy {policy.name})"
    )
    for path, text in (
        (arguments.report_json, report.as_json(found.sides, found.rows, saved, policy.as_json(), found.seconds)),
        (arguments.report_markdown, report.markdown(found.sides, found.rows, saved)),
    ):
        if path is not None:
            write_whole(path, text)
            console.print(f"written: {path}")
    return int(
        arguments.fail_on_regression and any(_is_slower(entry) for _, entries in found.rows for entry in entries)
    )


def _is_slower(entry: VariantResult | str) -> bool:
    return isinstance(entry, VariantResult) and entry.outcome is Outcome.REGRESSED
