"""Commands about other versions: race them, find the one that became slower, and write a file that shows it."""

from __future__ import annotations

import argparse
import random
import time
from contextlib import ExitStack
from pathlib import Path

from rich.text import Text

from tfbench.commands.setup import CommandSetup, add_selections
from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.model import TIME
from tfbench.policy import PRESETS, preset
from tfbench.report import markdown, terminal
from tfbench.report.screen import Screen
from tfbench.session.profiling import Explainer
from tfbench.sides.spec import is_package, of_version
from tfbench.untrusted import plural, render_json
from tfbench.versions import bisect, matrix
from tfbench.versions.changes import RACED, ChangeFinder, Defaults
from tfbench.versions.matrix import ordered, race, sides_of


def add_versions(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    parser.set_defaults(intermixed="words")
    option("words", metavar="VERSION|PATH", nargs="+", help="versions or specifications; files, cases")
    option("--reference", default="", metavar="VERSION", help="compare with this version, not the first")
    option("--policy", default="quick", metavar="|".join(PRESETS), help="confidence and cost of verdicts")
    option("--min-slowdown", type=float, metavar="FRACTION", help="smallest slowdown that counts, such as 0.05; a larger one takes fewer launches")
    option("--fail-on-regression", action="store_true", help="exit with a code for what is slower, broken or inconclusive")
    option("--report-json", type=Path, metavar="PATH", help="write all results as JSON")
    option("--report-markdown", type=Path, metavar="PATH", help="write the table and the findings as Markdown")
    option("--no-changes", action="store_true", help="only race: leave out other metrics than time, and with them their causes")
    option("--no-causes", action="store_true", help="do not look for the causes of changes, which takes most of the time")
    option("--explain", action="store_true", help="also race the defaults of a slower version set back, for a cause that profiles do not show; minutes per case")
    add_selections(parser)
    # fmt: on


def run_versions(arguments: argparse.Namespace) -> int:
    """Race the same benchmarks on several versions at once, against the first version.

    A version is one of TensorFlow, such as 2.20.0, or any specification of --against: tensorflow-cpu==2.20.0,
    keras==3.9.0, git:REV, env:NAME=VALUE, joined by +. `self` is the reference again. All sides run this checkout's
    benchmarks unless the specification has git:. Files, folders and cases among the arguments select benchmarks, as in
    pytest. uv builds the environments and tfbench keeps them, see `tfbench doctor --envs`.
    """
    policy = preset(arguments.policy)
    if arguments.min_slowdown is not None:
        policy = policy.with_slowdown(arguments.min_slowdown)
    paths = [word for word in arguments.words if Path(word.partition("::")[0]).exists()]
    if both := [word for word in paths if word == "self" or is_package(of_version(word))]:
        raise UsageError(f"{both[0]} is a version, and a file or folder here; write ./{both[0]} for the file or folder")
    labels = ordered([word for word in arguments.words if word not in paths], arguments.reference)
    console, began = Screen(), time.monotonic()
    with ExitStack() as stack:
        setup = stack.enter_context(CommandSetup(arguments, paths, policy))
        status = stack.enter_context(console.status(""))
        setup.tell = status.update
        setup.prefer_one_python(labels)
        sides, cases, launcher = sides_of(labels, setup.side), setup.cases, setup.launcher
        finder = None
        if not arguments.no_changes:
            defaults = Defaults(launcher, policy, status.update) if arguments.explain else None
            explainer = None if arguments.no_causes else Explainer(launcher, policy, status.update, defaults)
            finder = ChangeFinder(launcher, policy, len(cases) * (len(sides) - 1), explainer)
        raced = race(cases, sides, launcher, policy, random.Random(), status.update, finder)
        notes = setup.notes
    table, reports = matrix.side_by_side(raced), matrix.reports(raced, policy.as_json())
    console.print(terminal.side_by_side(table))
    for label, report in reports.items():
        console.print(Text(f"\n{label} against {raced.labels[0]}", "bold"))
        terminal.show(console, report)
    for note in (*raced.notes, *notes):
        console.print(note)
    seconds = f"{time.monotonic() - began:.0f} s, {raced.seconds:.0f} s of it measuring"
    console.print(f"{plural(len(raced.rows), 'case')} on {len(raced.sides)} sides in {seconds} (policy {policy.name})")
    content = matrix.as_json(raced, policy.as_json())
    texts = {arguments.report_json: render_json(content, 1) + "\n"}
    heads = (f"## {markdown.plain(label)}\n\n{markdown.render(report)}" for label, report in reports.items())
    texts[arguments.report_markdown] = "\n".join([markdown.side_by_side(table), *heads])
    for path, text in texts.items():
        if path is not None:
            write_whole(path, text)
            console.print(f"written: {path}")
    return matrix.result(raced).code if arguments.fail_on_regression else 0


def add_bisect(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    parser.set_defaults(intermixed="paths")
    option("paths", metavar="PATH", nargs="*", help="files, folders and cases of benchmarks")
    option("--good", required=True, metavar="END", help="a version or revision that was fast")
    option("--bad", required=True, metavar="END", help="a version or revision that is slower")
    option("--all-releases", action="store_true", help="try every release, not only the last of each minor version")
    option("--metric", default=TIME, metavar="|".join(RACED), help="the metric that became worse, or one that is counted, such as graph_ops or fused_ops")
    option("--min-slowdown", type=float, metavar="FRACTION", help="smallest slowdown that counts, such as 0.1")
    option("--policy", default="standard", metavar="|".join(PRESETS), help="confidence and cost of verdicts")
    option("--report-json", type=Path, metavar="PATH", help="write the full result as JSON")
    option("--causes", action="store_true", help="also name the cause, from profiles, sampled Python functions and defaults set back; minutes per case")
    add_selections(parser)
    # fmt: on


def run_bisect(arguments: argparse.Namespace) -> int:
    """Find the released version, or the commit, in which a case became slower.

    Each step is a race against the good end, with confirmation. An inconclusive step is raced again with more launches,
    and may stay inconclusive. A metric that is counted, such as graph_ops, is read without a race. The command also prints
    what changed in the graph between the last good and the first bad point. Ends are versions of TensorFlow (2.15.1),
    specifications with a version (keras==3.5.0), or revisions of the benchmarks' checkout. Exit code 0: all cases are
    answered. 3: a case stays inconclusive. 5: an end cannot run.
    """
    metric, policy = arguments.metric, preset(arguments.policy)
    policy = bisect.policy_of(policy, metric, arguments.min_slowdown)
    console, began = Screen(), time.monotonic()
    with (
        CommandSetup(arguments, arguments.paths, policy) as setup,
        console.status("looking for points in between") as status,
    ):
        setup.tell = status.update
        root = setup.collected.root
        points = bisect.points_between(arguments.good, arguments.bad, root, arguments.all_releases)
        setup.prefer_one_python([point.spec for point in points])
        study = bisect.Study(points, setup.side, setup.launcher, policy, metric, status.update)
        console.print(study.announcement)
        results = study.run(setup.cases)
        for result in results:
            console.print(bisect.terminal(result, points))
            if (explanation := study.explain(result, arguments.causes)) is not None:
                console.print(explanation)
        for note in setup.notes:
            console.print(note)
    seconds = time.monotonic() - began
    console.print(f"{plural(len(results), 'case')} in {seconds:.0f} s (policy {policy.name})")
    if arguments.report_json is not None:
        asked = {"policy": policy.as_json(), "metric": metric, "wall_seconds": round(seconds, 3)}
        write_whole(arguments.report_json, bisect.as_json(results, study, asked))
        console.print(f"written: {arguments.report_json}")
    return bisect.exit_code(results)
