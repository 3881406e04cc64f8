"""Race the same benchmarks on several versions at once, against the first version.

A version is one of TensorFlow, such as 2.20.0, or any specification of --against: tensorflow-cpu==2.20.0,
keras==3.9.0, git:REV, env:NAME=VALUE, joined by +. `self` is the reference again. All sides run this checkout's
benchmarks unless the specification has git:. Files, folders and cases among the arguments select benchmarks, as in
pytest. uv builds the environments and tfbench keeps them, see `tfbench envs`.
"""

from __future__ import annotations

import argparse
import json
import random
from contextlib import ExitStack
from pathlib import Path

from tfbench.commands._setup import CommandSetup, add_selections
from tfbench.compare import medians, page_of
from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.policy import PRESETS, preset
from tfbench.report.html.page import check_library
from tfbench.report.screen import Screen
from tfbench.versions import matrix
from tfbench.versions.changes import Causes, ChangeFinder
from tfbench.versions.defaults import CASES, ImportLauncher
from tfbench.versions.matrix import FindingsFolder, Writer, ordered, race, sides_of


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    parser.set_defaults(intermixed="words")
    option("words", metavar="VERSION|PATH", nargs="+", help="versions or specifications; files, cases")
    option("--reference", default="", metavar="VERSION", help="compare with this version, not the first")
    text = "also show the times of an earlier result file, without racing them; repeatable"
    option("--show-saved", type=Path, action="append", default=[], metavar="PATH", help=text)
    option("--policy", default="quick", metavar="|".join(PRESETS), help="confidence and cost of verdicts")
    text = "smallest slowdown that counts, such as 0.05; a larger one takes fewer launches"
    option("--min-slowdown", type=float, metavar="FRACTION", help=text)
    option(
        "--fail-on-regression", action="store_true", help="exit with a code for what is slower, broken or inconclusive"
    )
    option("--report-json", type=Path, metavar="PATH", help="write all results as JSON")
    option("--report-markdown", type=Path, metavar="PATH", help="write the tables as Markdown")
    option("--html", type=Path, metavar="PATH", help="write all results as a page")
    text = "write each regression that DIR does not have into DIR, with a file that shows it"
    option("--findings", type=Path, metavar="DIR", help=text)
    text = "only race: leave out other metrics than time, and with them their causes"
    option("--no-changes", action="store_true", help=text)
    option(
        "--no-causes", action="store_true", help="do not look for the causes of changes, which takes most of the time"
    )
    option("--no-variants", action="store_true", help="do not race the variants of a case against each other")
    option("--imports", action="store_true", help="race the import of TensorFlow and Keras, instead of benchmarks")
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Race and print; return 0, or the code of --fail-on-regression."""
    policy = preset(arguments.policy)
    if arguments.html:
        check_library()
    if arguments.min_slowdown is not None:
        if arguments.imports:
            raise UsageError("--min-slowdown: imports are judged as steps that run once; leave the option out")
        policy = policy.with_slowdown(arguments.min_slowdown)
    paths = [word for word in arguments.words if Path(word.partition("::")[0]).exists()]
    labels = ordered([word for word in arguments.words if word not in paths], arguments.reference)
    saved = {name: times for path in arguments.show_saved for name, times in medians(path).items()}
    console = Screen()
    with ExitStack() as stack:
        setup, status = (
            stack.enter_context(CommandSetup(arguments, paths, policy)),
            stack.enter_context(console.status("")),
        )
        setup.tell = status.update
        setup.prefer_one_python(labels)
        sides, cases, launcher = sides_of(labels, setup.side), setup.cases, setup.launcher
        finder = None
        if arguments.imports:
            cases, launcher = list(CASES), ImportLauncher(setup.collected.suite, policy, launcher.processors)
            stack.callback(launcher.close)
        elif not arguments.no_changes:
            causes = None if arguments.no_causes else Causes(launcher, policy, status.update, race_defaults=False)
            finder = ChangeFinder(launcher, policy, len(cases) * (len(sides) - 1), causes)
        variants = not (arguments.imports or arguments.no_variants)
        raced = race(cases, sides, launcher, policy, random.Random(), status.update, finder, variants)
        notes = setup.notes
        if arguments.findings is not None and not arguments.imports:
            by_label = dict(zip(labels, sides, strict=True))
            folder, collected = FindingsFolder(arguments.findings), setup.collected
            writer = Writer(folder, collected.functions, collected.root, launcher, policy, by_label, status.update)
            notes = [*notes, *writer.write(raced)]
    console.print(matrix.terminal(raced, saved, console.width))
    for note in notes:
        console.print(note)
    size = f"{len(raced.rows)} cases on {len(raced.sides)} sides"
    console.print(f"{size} in {raced.seconds:.0f} s (policy {policy.name})")
    content = matrix.as_json(raced, saved, policy.as_json())
    texts = {arguments.report_json: json.dumps(content, indent=1, allow_nan=False) + "\n"}
    texts[arguments.report_markdown] = matrix.markdown(raced, saved)
    if arguments.html is not None:
        texts[arguments.html] = page_of(content, "the result")
    for path, text in texts.items():
        if path is not None:
            write_whole(path, text)
            console.print(f"written: {path}")
    return matrix.result(raced).code if arguments.fail_on_regression else 0
