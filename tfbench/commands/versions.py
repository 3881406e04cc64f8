"""Race the same benchmarks on several versions at once, against the first version.

A version is one of TensorFlow, such as 2.20.0, or any specification of --against: tensorflow-cpu==2.20.0,
keras==3.9.0, git:REV, env:NAME=VALUE, joined by +. `self` is the reference again. All sides run this checkout's
benchmarks unless the specification has git:. Files, folders and cases among the arguments select benchmarks, as in
pytest. uv builds the environments and tfbench keeps them, see `tfbench envs`.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from tfbench.commands._setup import CommandSetup, add_selections
from tfbench.compare import medians
from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.model import Outcome
from tfbench.policy import PRESETS, preset
from tfbench.report.screen import Screen
from tfbench.ruling import Result
from tfbench.versions import matrix
from tfbench.versions.defaults import CASES
from tfbench.versions.matrix import FindingsFolder, Matrix, Writer, ordered, race, sides_of


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
    text = "write each regression that DIR does not have into DIR, with a file that shows it"
    option("--findings", type=Path, metavar="DIR", help=text)
    option("--imports", action="store_true", help="race the import of TensorFlow and Keras, instead of benchmarks")
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Race and print; return 0, or the code of --fail-on-regression."""
    policy = preset(arguments.policy)
    if arguments.min_slowdown is not None:
        if arguments.imports:
            raise UsageError("--min-slowdown: imports are judged as steps that run once; leave the option out")
        policy = policy.with_slowdown(arguments.min_slowdown)
    paths = [word for word in arguments.words if Path(word.partition("::")[0]).exists()]
    labels = ordered([word for word in arguments.words if word not in paths], arguments.reference)
    saved = {name: times for path in arguments.show_saved for name, times in medians(path).items()}
    console = Screen()
    with CommandSetup(arguments, paths, policy) as setup, console.status("looking for versions") as status:
        setup.tell = status.update
        setup.prefer_one_python(labels)
        sides = sides_of(labels, setup.side)
        cases, launcher = (CASES, setup.imports()) if arguments.imports else (setup.cases, setup.launcher)
        raced = race(cases, sides, launcher, policy, random.Random(), status.update)
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
    for path, text in (
        (arguments.report_json, matrix.as_json(raced, saved, policy.as_json())),
        (arguments.report_markdown, matrix.markdown(raced, saved)),
    ):
        if path is not None:
            write_whole(path, text)
            console.print(f"written: {path}")
    return _result(raced).code if arguments.fail_on_regression else 0


def _result(matrix: Matrix) -> Result:
    """Return the result whose exit code is that of --fail-on-regression."""
    if matrix.has_regression:
        return Result.REGRESSED
    if matrix.has_gaps:
        return Result.ERROR
    if not matrix.outcomes:
        return Result.INCOMPARABLE
    decided = {Outcome.UNCHANGED, Outcome.IMPROVED}
    return Result.PASS if decided.issuperset(matrix.outcomes) else Result.INCONCLUSIVE
