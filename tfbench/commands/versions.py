"""Commands about two sides or more: race versions, find the one that became slower, and explain a difference."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfbench.commands.setup import CommandSetup, add_selections
from tfbench.errors import UsageError
from tfbench.fs import write_whole
from tfbench.model import TIME, short_name
from tfbench.plugin.options import set_by_suite
from tfbench.policy import PRESETS, preset
from tfbench.profiles.folders import named
from tfbench.race.launch import Entrant
from tfbench.race.prober import Prober
from tfbench.report import markdown, terminal
from tfbench.report.profile import attributed, changes_of, one_side
from tfbench.report.screen import Screen
from tfbench.ruling import Result, decided
from tfbench.session.profiling import BASELINE, Explainer, explained, reread
from tfbench.sides.spec import KINDS, is_package, of_version
from tfbench.storage.baselines import PROFILES
from tfbench.untrusted import command, plural, render_json
from tfbench.versions import bisect, matrix
from tfbench.versions.changes import RACED, ChangeFinder, Defaults
from tfbench.versions.matrix import race, sides_of
from tfbench.versions.repro import race_folder, write_folder


def add_versions(parser: argparse.ArgumentParser) -> None:
    # fmt: off
    option = parser.add_argument
    parser.set_defaults(intermixed="words")
    option("words", metavar="VERSION|PATH", nargs="+", help="versions or specifications; files, cases")
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
    labels = [word for word in arguments.words if word not in paths]
    if len(set(map(of_version, labels))) < max(2, len(labels)):
        text = "give two or more versions, each only once; to race one against itself, give `self` as the second"
        taken = ", ".join(labels) or "none of the arguments"
        raise UsageError(f"{text} (taken for versions, as no file has such a name: {taken})")
    console, began = Screen(), time.monotonic()
    with CommandSetup(arguments, paths, policy) as setup, console.status("") as status:
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
        terminal.show(console, report, root="")
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
    results = [decided(report).ruling.result for report in reports.values()]
    return min(results, key=list(Result).index).code if arguments.fail_on_regression else 0


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
    given = {"--metric": metric, "--min-slowdown": arguments.min_slowdown, "--policy": arguments.policy}
    options = [word for name, one in given.items() if one not in (TIME, None, "standard") for word in (name, str(one))]
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
            console.print(bisect.terminal(result, points, options))
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
