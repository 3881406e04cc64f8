"""Find the released version, or the commit, in which a case became slower.

Each step is a race against the good end, with confirmation. An inconclusive step is raced again with more launches,
and may stay inconclusive. A metric that is counted, such as graph_ops, is read without a race. The command also prints
what changed in the graph between the last good and the first bad point. Ends are versions of TensorFlow (2.15.1),
specifications with a version (keras==3.5.0), or revisions of the benchmarks' checkout. Exit code 0: all cases are
answered. 3: a case stays inconclusive. 5: an end cannot run.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tfbench.commands._setup import CommandSetup, add_selections
from tfbench.fs import write_whole
from tfbench.model import TIME
from tfbench.policy import PRESETS, preset
from tfbench.report.screen import Screen
from tfbench.versions import bisect
from tfbench.versions.changes import RACED


def add(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    parser.set_defaults(intermixed="paths")
    option("paths", metavar="PATH", nargs="*", help="files, folders and cases of benchmarks")
    option("--good", required=True, metavar="END", help="a version or revision that was fast")
    option("--bad", required=True, metavar="END", help="a version or revision that is slower")
    text = "try every release, not only the last of each minor version"
    option("--all-releases", action="store_true", help=text)
    text = "the metric that became worse, or one that is counted, such as graph_ops or fused_ops"
    option("--metric", default=TIME, metavar="|".join(RACED), help=text)
    text = "smallest slowdown that counts, such as 0.1"
    option("--min-slowdown", type=float, metavar="FRACTION", help=text)
    option("--policy", default="standard", metavar="|".join(PRESETS), help="confidence and cost of verdicts")
    option("--report-json", type=Path, metavar="PATH", help="write the full result as JSON")
    text = "also name the cause, from profiles, sampled Python functions and defaults set back; minutes per case"
    option("--causes", action="store_true", help=text)
    add_selections(parser)


def run(arguments: argparse.Namespace) -> int:
    """Bisect, print the result of each case, and return the exit code."""
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
    console.print(f"{len(results)} cases in {seconds:.0f} s (policy {policy.name})")
    if arguments.report_json is not None:
        asked = {"policy": policy.as_json(), "metric": metric, "wall_seconds": round(seconds, 3)}
        write_whole(arguments.report_json, bisect.as_json(results, points, study.changes, study.causes, asked))
        console.print(f"written: {arguments.report_json}")
    return bisect.exit_code(results)
